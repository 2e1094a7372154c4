"""Which runs: one filter, and one grammar for it, for programs, the command line, the API and the search box.

status:error,paused workflow:billing.* since:1h attr:customer=c42 text:"connection reset"
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pgqrs.clock import is_in_range
from pgqrs.errors import ConfigError, SerializationError
from pgqrs.serialization import encode
from pgqrs.text.durations import LONGEST, LONGEST_SECONDS, seconds_in, shown, write_duration
from pgqrs.types import RunStatus

# What the attributes by which runs are found can hold at most (a trigger leaves out longer ones).
MOST_ATTRIBUTE = 200
# A search asks for each of its attributes by itself.
MOST_ATTRIBUTES = 50
MOST_TEXT = 1_000
# As many attributes as there may be, each as long as it may be, quoted, with room for the rest.
MOST_FILTER = 65_536
# A time, or how long before the database's now.
Moment = datetime | timedelta

_PATTERN = re.compile(r"[A-Za-z0-9_.:*-]{1,255}", re.ASCII)
# Quantifiers are possessive (`++`, `*+`): what they took is never given back, so that no text makes them try twice.
_INSIDE = r'(?:[^"\\]++|\\.)*+'
# A word of the grammar: anything up to a blank; blanks stand inside double quotes.
_WORD = re.compile(rf'(?:[^\s"]++|"{_INSIDE}")++', re.DOTALL)
_BLANKS = re.compile(r"\s*+")
_QUOTED = re.compile(rf'"({_INSIDE})"', re.DOTALL)
_ATTRIBUTE = re.compile(rf'((?:[^"=]++|"{_INSIDE}")++)=(.*)', re.DOTALL)
_DELETED = {"no": False, "yes": True, "any": None}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Runs for which all of this is true; what is left out does not matter.

    `workflow` may hold `*` for any characters. Times are datetimes with a zone, or timedeltas: that long ago by the
    database's clock. `attributes` are compared as text, as they were at the trigger. `last_error_contains` does not
    tell a-z from A-Z and takes every character literally. `deleted`: False leaves deleted runs out, True wants only
    those, None does not care.
    """

    status: RunStatus | str | Iterable[RunStatus | str] = ()
    workflow: str | None = None
    created_after: Moment | None = None
    created_before: Moment | None = None
    completed_after: Moment | None = None
    completed_before: Moment | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    error_signature: str | None = None
    parent_run_id: int | None = None
    last_error_contains: str | None = None
    idempotency_key: str | None = None
    worker_id: int | None = None
    waiting_for: str | None = None
    deleted: bool | None = False

    def __post_init__(self) -> None:
        self._set("status", _statuses(self.status))
        self._set("attributes", _attributes(self.attributes))
        if self.workflow is not None and not (isinstance(self.workflow, str) and _PATTERN.fullmatch(self.workflow)):
            raise ConfigError(
                f"workflow {shown(self.workflow)} is no name or pattern", hint="use names with * for any characters"
            )
        for name in ("created_after", "created_before", "completed_after", "completed_before"):
            _check_moment(name, getattr(self, name))
        for name in ("error_signature", "last_error_contains", "idempotency_key", "waiting_for"):
            _check_text(name, getattr(self, name))
        for name in ("parent_run_id", "worker_id"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 0 <= value < 2**63):
                raise ConfigError(f"{name} must be an id, not {shown(value)}")
        if self.deleted not in (False, True, None):
            raise ConfigError(f"deleted must be False, True or None, not {self.deleted!r}")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def statuses(self) -> tuple[RunStatus, ...]:
        """The statuses asked for, in the order of RunStatus; none when any will do."""
        return cast(tuple[RunStatus, ...], self.status)

    @property
    def is_empty(self) -> bool:
        """True when it leaves out nothing but deleted runs."""
        return not any(_given(self, each.name) for each in dataclasses.fields(self) if each.name != "deleted") and (
            self.deleted is not True
        )

    def with_changes(self, **changes: Any) -> RunFilter:
        return dataclasses.replace(self, **changes)

    @classmethod
    def parse(cls, text: str) -> RunFilter:
        """`status:error,paused since:1h attr:customer=c42` as a filter; ConfigError names what it cannot read."""
        given: dict[str, Any] = {}
        for word in _words(text):
            key, colon, value = word.partition(":")
            token = _TOKENS.get(key)
            if token is None or not colon:
                near = difflib.get_close_matches(key[:40], _TOKENS, n=1)
                hint = f"; did you mean {near[0]}:?" if near else ""
                raise ConfigError(
                    f"the filter has {shown(word)}{hint}", hint=f"known are {' '.join(f'{k}:' for k in _TOKENS)}"
                )
            try:
                read = token.read(value)
            except ValueError as error:
                raise ConfigError(f"the filter has {shown(word)}; {error}") from None
            if token.field == "attributes":
                given.setdefault(token.field, {}).update(read)
            elif token.field in given:
                raise ConfigError(f"the filter has {key}: twice", hint=f"{token.twice}")
            else:
                given[token.field] = read
        return cls(**given)

    def __str__(self) -> str:
        """The text that `parse` reads back."""
        words = []
        for key, token in _TOKENS.items():
            value = getattr(self, token.field)
            if token.field == "attributes":
                words += [f"{key}:{_quoted(name)}={_quoted(text)}" for name, text in value.items()]
            elif _given(self, token.field):
                words.append(f"{key}:{_quoted(token.write(value))}")
        return " ".join(words)


def filter_of(text: str | None = None, /, *, attr: Iterable[str] = (), **words: str | None) -> RunFilter:
    """A filter from its text and from single words of the grammar (`status="error"`, `attr=["customer=c42"]`), as
    command lines and URLs have them: one grammar, one set of errors."""
    found = [text] if text else []
    found += [f"{name}:{_quoted(value)}" for name, value in words.items() if value is not None]
    found += [f"attr:{_quoted(name)}={_quoted(value)}" for name, _, value in (each.partition("=") for each in attr)]
    return RunFilter.parse(" ".join(found))


def _given(wanted: RunFilter, name: str) -> bool:
    value = getattr(wanted, name)
    return value is not False if name == "deleted" else value is not None and value not in ((), {})


# -- fields ----------------------------------------------------------------------------------------------


def _statuses(given: Any) -> tuple[RunStatus, ...]:
    wanted = {given} if isinstance(given, str) else given
    if wanted is None or not isinstance(wanted, Iterable):
        raise ConfigError(f"status must be one of {', '.join(RunStatus)}, or several, not {shown(given)}")
    chosen = {_status(each) for each in wanted}
    return tuple(status for status in RunStatus if status in chosen)


def _status(given: Any) -> RunStatus:
    try:
        return RunStatus(given.upper())
    except (ValueError, AttributeError):
        raise ConfigError(f"there is no status {shown(given)}", hint=f"use {', '.join(RunStatus)}") from None


def _attributes(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ConfigError(f"attributes must be a mapping, not {shown(given)}")
    if len(given) > MOST_ATTRIBUTES:
        raise ConfigError(f"a filter takes at most {MOST_ATTRIBUTES} attributes, not {len(given):,}")
    found = {}
    for name, value in given.items():
        text = value if isinstance(value, str) else _as_json(name, value)
        if not isinstance(name, str) or not name or len(name) > MOST_ATTRIBUTE or len(text) > MOST_ATTRIBUTE:
            raise ConfigError(
                f"runs are found by attributes of at most {MOST_ATTRIBUTE} characters, "
                f"not by {shown(name)} = {shown(value)}"
            )
        _check_storable(f"attribute {name!r}", name + text)
        found[name] = text
    return found


def _as_json(name: Any, value: Any) -> str:
    if value is not None and not isinstance(value, bool | int | float):
        raise ConfigError(
            "runs are found by attributes that are text, numbers, booleans or None, "
            f"not by {shown(name)} = {shown(value)}"
        )
    try:
        return encode(value)
    except SerializationError as error:
        raise ConfigError(f"runs cannot be found by {shown(name)} = {shown(value)}: {error.reason}") from None


def _check_text(name: str, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{name} must be text, not {shown(value)}")
    if len(value) > MOST_TEXT:
        raise ConfigError(f"{name} has {len(value):,} characters", hint=f"use at most {MOST_TEXT:,}")
    _check_storable(name, value)


def _check_storable(name: str, text: str) -> None:
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise ConfigError(f"{name} holds a character that no database stores: {shown(text)}")


def _check_moment(name: str, value: Any) -> None:
    if value is None:
        return
    if isinstance(value, timedelta):
        if not timedelta(0) <= value <= LONGEST:
            raise ConfigError(f"{name} must lie from 0 to 100 years back, not {value!r}")
    elif not isinstance(value, datetime) or value.utcoffset() is None or not is_in_range(value):
        raise ConfigError(
            f"{name} must be a datetime with a time zone, or a timedelta (that long ago), not {value!r}",
            hint="use datetime.now(UTC) or .replace(tzinfo=...)",
        )


# -- grammar ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Token:
    """A key of the grammar: the field it stands for, how its text is read and written."""

    field: str
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str
    twice: str = "give it once"


def _read_text(quoted: str) -> str:
    text = _unquoted(quoted)
    if not text:
        raise ValueError("it has no value")
    return text


def _read_statuses(text: str) -> list[str]:
    return _read_text(text).split(",")


def _read_moment(quoted: str) -> Moment:
    text = _read_text(quoted)
    seconds = seconds_in(text)
    if seconds is not None:
        if seconds > LONGEST_SECONDS:
            raise ValueError("that is more than 100 years ago")
        return timedelta(seconds=seconds)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "use 90s, 15m, 1h, 7d or 2w for that long ago, or a time such as 2030-01-31T12:00Z"
        ) from None
    # A date or time without a zone is UTC, as everything the databases hold.
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _write_moment(moment: Moment) -> str:
    return moment.isoformat() if isinstance(moment, datetime) else write_duration(moment)


def _read_attribute(quoted: str) -> dict[str, str]:
    match = _ATTRIBUTE.fullmatch(quoted)
    if match is None:
        raise ValueError("write it as attr:name=value")
    return {_unquoted(match.group(1)): _unquoted(match.group(2))}


def _read_id(quoted: str) -> int:
    text = _read_text(quoted)
    if not (text.isascii() and text.isdigit()):
        raise ValueError("it must be a number")
    return int(text)


def _read_deleted(quoted: str) -> bool | None:
    text = _read_text(quoted)
    if text not in _DELETED:
        raise ValueError(f"use {', '.join(_DELETED)}")
    return _DELETED[text]


def _write_deleted(value: bool | None) -> str:  # noqa: FBT001 - the field's value
    return next(word for word, meaning in _DELETED.items() if meaning is value)


_TOKENS = {
    "status": _Token("status", _read_statuses, ",".join, "several stand with commas between: status:error,paused"),
    "workflow": _Token("workflow", _read_text, twice="a pattern such as billing.* takes several"),
    "since": _Token("created_after", _read_moment, _write_moment),
    "before": _Token("created_before", _read_moment, _write_moment),
    "completed_since": _Token("completed_after", _read_moment, _write_moment),
    "completed_before": _Token("completed_before", _read_moment, _write_moment),
    "attr": _Token("attributes", _read_attribute),
    "error": _Token("error_signature", _read_text),
    "text": _Token("last_error_contains", _read_text, twice='several words stand in quotes: text:"connection reset"'),
    "parent": _Token("parent_run_id", _read_id),
    "key": _Token("idempotency_key", _read_text),
    "worker": _Token("worker_id", _read_id),
    "waiting": _Token("waiting_for", _read_text),
    "deleted": _Token("deleted", _read_deleted, _write_deleted),
}


def _words(text: str) -> Iterator[str]:
    if not isinstance(text, str):
        raise ConfigError(f"a filter is text such as 'status:error since:1h', not {shown(text)}")
    if len(text) > MOST_FILTER:
        raise ConfigError(f"the filter has {len(text):,} characters", hint=f"use at most {MOST_FILTER:,}")
    place = _end(_BLANKS, text, 0)
    while place < len(text):
        word = text[place : (end := _end(_WORD, text, place))]
        if end < len(text) and not text[end].isspace():
            # The only character that ends a word without being a blank.
            raise ConfigError(f"the filter has {shown(text[place:])}, a quotation mark without its partner")
        yield word
        place = _end(_BLANKS, text, end)


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return place if found is None else found.end()


def _unquoted(word: str) -> str:
    return _QUOTED.sub(lambda m: re.sub(r"\\(.)", r"\1", m.group(1), flags=re.DOTALL), word)


def _quoted(text: str) -> str:
    if text and not re.search(r'[\s"\\=]', text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'
