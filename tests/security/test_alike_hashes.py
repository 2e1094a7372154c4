"""Numbers that were chosen to hash alike are refused where they would become a set or the keys of a dict."""

import dataclasses
import json
from uuid import UUID

import msgspec
import pytest

from pgqrs import SerializationError
from pgqrs.serialization import decode, encode
from pgqrs.serialization.hash_collisions import MOST_ALIKE

# Multiples of it hash to 0.
ALIKE = 2**61 - 1
MANY = range(1, MOST_ALIKE + 2)


@dataclasses.dataclass
class Inside:
    deep: list[dict[str, set[int]]]


class Struct(msgspec.Struct):
    by_id: dict[int, str]


NUMBERS = [number * ALIKE for number in MANY]
REFUSED = [
    (NUMBERS, set[int]),
    (NUMBERS, frozenset[int]),
    ([str(UUID(int=number)) for number in NUMBERS], set[UUID]),
    ({str(number): "x" for number in NUMBERS}, dict[int, str]),
    ({"deep": [{"a": NUMBERS}]}, Inside),
    ({"by_id": {str(number): "x" for number in NUMBERS}}, Struct),
]


@pytest.mark.parametrize(("value", "kind"), REFUSED)
def test_keys_that_were_chosen_to_collide_are_refused(value, kind):
    with pytest.raises(SerializationError, match="chosen to hash alike"):
        decode(json.dumps(value), kind)


@pytest.mark.parametrize("tag", ["$set", "$frozenset"])
def test_the_tags_of_sets_refuse_them_too(tag):
    with pytest.raises(SerializationError, match="chosen to hash alike"):
        decode(json.dumps({tag: NUMBERS}))


def test_the_pairs_of_a_dict_refuse_them_too():
    with pytest.raises(SerializationError, match="chosen to hash alike"):
        decode(json.dumps({"$dict": [[number, 1] for number in NUMBERS]}))


def test_as_a_list_they_are_just_numbers():
    assert decode(json.dumps(NUMBERS), list[int]) == NUMBERS
    assert decode(json.dumps(NUMBERS)) == NUMBERS
    assert decode(json.dumps({str(number): 1 for number in NUMBERS}), dict[str, int])


@pytest.mark.parametrize(
    "value",
    [
        set(range(100_000)),
        {number * 2**40 for number in range(20_000)},
        {-1, -2, 2**61, *range(5_000)},
        {UUID(int=number) for number in range(5_000)},
    ],
    ids=["small", "wide", "mixed", "uuids"],
)
def test_what_programs_store_comes_back(value):
    assert decode(encode(value)) == value
    kind = set[UUID] if isinstance(next(iter(value)), UUID) else set[int]
    assert decode(encode(value), kind) == value


def test_one_number_many_times_is_not_chosen():
    assert decode(json.dumps([ALIKE] * 50_000), set[int]) == {ALIKE}
    assert decode(json.dumps([0] * 50_000), set[int]) == {0}
