"""Values that were chosen to hash alike: a set of them takes quadratic time, with the interpreter held meanwhile.

Hashes of texts differ in every process. Those of numbers do not: all multiples of 2**61 - 1 hash to 0, and 80,000 of
them fit into a payload. UUIDs hash as the numbers that they are.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

from pgqrs.errors import SerializationError

# So many in one set take some milliseconds.
MOST_ALIKE = 1_000
_DIGITS = re.compile(r"-?[0-9]{1,4300}", re.ASCII)
_UUID = re.compile(r"[0-9a-fA-F-]{32,36}", re.ASCII)


def checked(keys: Collection[Any]) -> Collection[Any]:
    """The keys of a set or dict to be; SerializationError when more than MOST_ALIKE different ones hash alike."""
    if len(keys) > MOST_ALIKE:
        _check((hash(key), key) for key in keys)
    return keys


def check_for(as_type: Any, value: Any) -> None:
    """The same for plain data, all of it, that is about to be read as a type with sets or keys other than text."""
    if isinstance(value, dict | list) and _may_hash(as_type):
        for each in _containers(value):
            _check((_hash_of(item), item) for item in each)


def _check(hashed: Iterable[tuple[int | None, Any]]) -> None:
    found = [pair for pair in hashed if pair[0] is not None]
    for alike, count in Counter(number for number, _ in found).most_common(1):
        # Compared by their texts: Python salts the hashes of those, so a caller cannot choose them.
        if count > MOST_ALIKE and len({repr(key) for number, key in found if number == alike}) > MOST_ALIKE:
            raise SerializationError(f"more than {MOST_ALIKE:,} of its keys were chosen to hash alike")


def _containers(value: Any) -> Iterator[Collection[Any]]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if len(each) > MOST_ALIKE:
            yield each
        items = each.values() if isinstance(each, dict) else each
        waiting += [item for item in items if isinstance(item, dict | list)]


def _hash_of(item: Any) -> int | None:
    """What it would hash to as a number or a UUID; None for everything else."""
    if type(item) is int:
        return hash(item)
    if type(item) is not str:
        return None
    if _DIGITS.fullmatch(item):
        return hash(int(item))
    if _UUID.fullmatch(item):
        digits = item.replace("-", "")
        return hash(int(digits, 16)) if digits else None
    return None


@functools.lru_cache(maxsize=1024)
def _known(as_type: Any) -> bool:
    try:
        return _has_keys(msgspec.inspect.type_info(as_type), set())
    except Exception:  # noqa: BLE001 - a type that cannot be looked into may hold anything
        return True


def _may_hash(as_type: Any) -> bool:
    try:
        return _known(as_type)
    except TypeError:
        return True


def _has_keys(info: Any, seen: set[int]) -> bool:
    """Whether a type has a set in it, a dict with keys other than text, or a part that msgspec does not know."""
    if id(info) in seen:
        return False
    seen.add(id(info))
    kinds = msgspec.inspect
    if isinstance(info, kinds.SetType | kinds.FrozenSetType | kinds.CustomType | kinds.RawType):
        return True
    if isinstance(info, kinds.DictType):
        return not isinstance(info.key_type, kinds.StrType) or _has_keys(info.value_type, seen)
    parts = [getattr(info, name, ()) for name in ("item_type", "item_types", "types", "fields")]
    flat = [each for part in parts for each in (part if isinstance(part, tuple) else (part,))]
    return any(_has_keys(getattr(each, "type", each), seen) for each in flat)
