"""What goes into JSON text and comes out again, and what is refused."""

import dataclasses
import enum
import json
import math
import os
import subprocess
import sys
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any, Generic, NamedTuple, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from asyncpg.pgproto import pgproto
from hypothesis import given, settings
from hypothesis import strategies as st

from pgqrs.errors import PayloadTooLarge, SerializationError
from pgqrs.serialization import decode, encode
from pgqrs.serialization.tags import MAX_DEPTH
from rig.values import same

PARIS = ZoneInfo("Europe/Paris")
INDIA = timezone(timedelta(hours=5, minutes=30))
ID = UUID("12345678-1234-5678-1234-567812345678")


def kind_name(value):
    """The name of a case whose own text is too long, too odd, or not text at all."""
    return type(value).__name__


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Line:
    start: Point
    end: Point
    colour: Colour = Colour.RED


@dataclass
class Everything:
    when: datetime
    numbers: set[int]
    pair: tuple[int, str]
    price: Decimal
    id: UUID
    raw: bytes
    colour: Colour
    by_id: dict[int, Line]
    maybe: Line | None
    number_or_text: int | str | None
    lasting: timedelta
    anything: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    x: int


@dataclass
class Area:
    width: int
    height: int
    size: int = field(init=False)
    notes: list[str] = field(default_factory=list, init=False)

    def __post_init__(self):
        self.size = self.width * self.height


T = TypeVar("T")


@dataclass
class Box(Generic[T]):
    content: T


@attrs.define
class Parcel:
    _weight: int
    sent: datetime | None = None
    stamps: list[Point] = attrs.field(factory=list, init=False)


class Cat(msgspec.Struct, tag="cat", tag_field="$kind", rename="camel"):
    full_name: str
    born: date
    owner: str | msgspec.UnsetType = msgspec.UNSET


class Dog(msgspec.Struct, tag="dog", tag_field="$kind"):
    tricks: set[str]


class Row(msgspec.Struct, array_like=True, tag=True):
    a: int
    b: tuple[int, int]


class Address(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    street: str = pydantic.Field(alias="streetName")
    house: int = pydantic.Field(default=1, validation_alias="houseIn", serialization_alias="houseOut")

    @pydantic.computed_field
    @property
    def line(self) -> str:
        return f"{self.street} {self.house}"


class Person(pydantic.BaseModel):
    name: str
    born: datetime | None = None
    tags: set[int] = set()
    homes: list[Address] = []
    colour: Colour = Colour.RED


@dataclass
class Order:
    buyer: Person
    others: list[Person]
    gift_from: Person | None = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    colour: Colour
    when: datetime


class Options(TypedDict):
    when: datetime
    size: int


class NoOffset(tzinfo):
    def utcoffset(self, moment):
        return None


class Moscow(tzinfo):
    def utcoffset(self, moment):
        return timedelta(hours=3)

    def dst(self, moment):
        return timedelta(0)


text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
offsets = st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
zones = st.none() | offsets | st.timezones()
hashable_leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**100), 10**100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text
    | text.map("$".__add__)
    | st.sampled_from(["$tuple", "$dict", "$set", "$nope"])
    | st.binary()
    | st.datetimes(timezones=zones)
    | st.builds(datetime.replace, st.datetimes(timezones=zones), fold=st.integers(0, 1))
    | st.dates()
    | st.times(timezones=zones)
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.complex_numbers(allow_nan=False, allow_infinity=False)
)
hashables = st.recursive(
    hashable_leaves,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
values = st.recursive(
    hashables | st.binary().map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.sets(hashables, max_size=4)
        | st.dictionaries(text, inner, max_size=4)
        | st.dictionaries(hashables, inner, max_size=4)
    ),
    max_leaves=12,
)
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)
TAGS = [
    "$tuple", "$set", "$frozenset", "$bytes", "$bytearray", "$datetime", "$date", "$time",
    "$timedelta", "$uuid", "$decimal", "$complex", "$int", "$dict",
]  # fmt: skip


def test_a_uuid_from_a_database_row_is_stored_as_the_plain_uuid_it_equals():
    plain = UUID("12345678-1234-5678-1234-567812345678")

    assert decode(encode({"id": pgproto.UUID(str(plain))})) == {"id": plain}
    assert type(decode(encode(pgproto.UUID(str(plain))))) is UUID


@pytest.mark.row("B7.4")
@settings(deadline=None)  # the first zone takes long to load
@given(values)
def test_any_builtin_value_comes_back_equal_in_value_and_type(value):
    back = decode(encode(value))

    assert same(back, value)


@pytest.mark.row("B7.1")
@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, 1, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64, 10**400,
        10**4300 - 1, -(10**4300) + 1,
        0.0, -0.0, 1.0, 1e16, -1e16, 1e22, 1e308, sys.float_info.max, 5e-324, sys.float_info.min, 0.1, 1 / 3,
        "", "text", "\ufffe", "\u202eright to left", "\U0001f600", "\u2028", '"\\/\b\f\n\r\t\x1f\x7f', "$", "$tuple",
        b"", b"\x00\xff", bytearray(b"\x00\xff"),
        date.min, date.max, timedelta.min, timedelta.max, timedelta(microseconds=-1),
        time(1, 2, 3, 4), time(1, tzinfo=UTC), time(1, tzinfo=PARIS), time(1, fold=1),
        ID, Decimal("1.10"), Decimal("-0"), Decimal("1E+400"), Decimal("Infinity"), Decimal("-Infinity"),
        1j, complex(-0.0, 0.0), complex(0.0, -0.0), complex(1e16, 5e-324),
        [], [[]], (), ((),), {}, set(), frozenset(), {frozenset({1, frozenset()})},
        [1, (2, [3, {4: (5,)}])], {1: "a", "1": "b"}, {None: 1, (1, 2): {3}}, {True: 1, 2.5: 2, b"x": 3},
    ],
    ids=kind_name,
)  # fmt: skip
def test_a_builtin_at_the_edge_comes_back_identical(value):
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize(
    "moment",
    [
        datetime.fromisoformat("2024-05-01T12:00:00"),
        datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=UTC),
        datetime(2024, 5, 1, 12, tzinfo=INDIA),
        datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(seconds=-1))),
        datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=0),
        datetime(2024, 10, 27, 2, 30, tzinfo=PARIS, fold=1),
        datetime(2024, 3, 31, 2, 30, tzinfo=PARIS),
        datetime(2024, 5, 1, tzinfo=ZoneInfo("UTC")),
        datetime.fromisoformat("2024-05-01T12:00:00").replace(fold=1),
        datetime(2024, 5, 1, tzinfo=INDIA, fold=1),
        datetime.min.replace(tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_type", [Any, datetime, datetime | None])
def test_a_datetime_keeps_its_wall_time_zone_and_fold(moment, as_type):
    assert same(decode(encode(moment), as_type), moment)


def test_another_time_zone_class_becomes_its_fixed_offset():
    back = decode(encode(datetime(2024, 5, 1, 12, tzinfo=Moscow())))

    assert same(back, datetime(2024, 5, 1, 12, tzinfo=timezone(timedelta(hours=3))))


@pytest.mark.row("B10.5")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, 2.0, None, True, "x"]}, '{"a":[1,2.0,null,true,"x"]}'),
        (2**63, '{"$int":"9223372036854775808"}'),
        ((1, 2), '{"$tuple":[1,2]}'),
        ({3, 1, 2}, '{"$set":[1,2,3]}'),
        (frozenset({1}), '{"$frozenset":[1]}'),
        (b"ab", '{"$bytes":"YWI="}'),
        (bytearray(b"ab"), '{"$bytearray":"YWI="}'),
        (datetime(2024, 5, 1, tzinfo=UTC), '{"$datetime":"2024-05-01T00:00:00+00:00"}'),
        (datetime(2024, 5, 1, tzinfo=PARIS), '{"$datetime":["2024-05-01T00:00:00","Europe/Paris",0]}'),
        (date(2024, 5, 1), '{"$date":"2024-05-01"}'),
        (time(1, 2), '{"$time":"01:02:00"}'),
        (timedelta(1, 2, 3), '{"$timedelta":[1,2,3]}'),
        (ID, '{"$uuid":"12345678-1234-5678-1234-567812345678"}'),
        (Decimal("1.10"), '{"$decimal":"1.10"}'),
        (1 + 2j, '{"$complex":[1.0,2.0]}'),
        ({1: "a"}, '{"$dict":[[1,"a"]]}'),
        ({"$set": [1]}, '{"$dict":[["$set",[1]]]}'),
        ({"$not_yet_a_tag": 1}, '{"$dict":[["$not_yet_a_tag",1]]}'),
        (Frozen(1), '{"x":1}'),
        (Point(1, 2), "[1,2]"),
        (Colour.RED, '"red"'),
    ],
)
def test_the_stored_text_does_not_change_between_versions(value, text):
    assert encode(value) == text


def test_equal_sets_have_equal_texts():
    program = "from pgqrs.serialization import encode; print(encode({'a', 'b', 'c', 1, (2, 'd'), None}))"
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(texts) == 1


@pytest.mark.parametrize(
    "value",
    [
        {"$tuple": [1]},
        {"$int": "5"},
        {"$dict": [[1, 2]]},
        {"$datetime": "no date at all"},
        {"$nope": 1},
        {"$": 1},
        {"$tuple": [1], "other": 2},
        {"a": {"$set": {"$set": [1]}}},
        [{"$dict": [["$dict", {"$dict": []}]]}],
    ],
)
def test_data_that_looks_like_a_tag_stays_data(value):
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"$type":"os.system"}', {"$type": "os.system"}),
        ('{"$tuple":[1],"b":2}', {"$tuple": [1], "b": 2}),
        ('{"b":2,"$tuple":[1]}', {"b": 2, "$tuple": [1]}),
        ('[{"$nope":{"$tuple":[1]}}]', [{"$nope": (1,)}]),
        ('"$tuple"', "$tuple"),
        ('{"a":"$5"}', {"a": "$5"}),
        ("123456789012345678901234567890", 123456789012345678901234567890),
    ],
)
def test_objects_written_by_hand_are_tags_only_with_one_known_key(text, value):
    assert same(decode(text), value)


class Str(str):
    __slots__ = ()


class Int(int):
    pass


class Float(float):
    pass


class Moment(datetime):
    pass


class Planet(enum.Enum):
    EARTH = (5.97e24, 6.37e6)


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


@dataclass
class WithInitVar:
    x: int
    seed: dataclasses.InitVar[int] = 0


@dataclass
class WithUnreadableUnion:
    x: str | bytes


class WithUnreadableItem(NamedTuple):
    x: str | bytes


@dataclass
class WithUnsetField:
    x: int = field(init=False)


@attrs.define
class WithoutAnnotation:
    x = attrs.field()


class Secret(pydantic.BaseModel):
    word: pydantic.SecretStr


def a_generator():
    yield 1


@pytest.mark.row("B7.2")
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (math.nan, "JSON has no nan"),
        (math.inf, "JSON has no inf"),
        (-math.inf, "JSON has no -inf"),
        (complex(math.nan, 0), "JSON has no nan"),
        (complex(0, math.inf), "JSON has no inf"),
        (Decimal("NaN"), r"Decimal\('NaN'\)"),
        (Decimal("sNaN"), r"Decimal\('sNaN'\)"),
        (10**4300, "4300 digits"),
        (-(10**4300), "4300 digits"),
        (10**5000, "4300 digits"),
        ("a\0b", "NUL"),
        ("\ud800", "lone surrogate"),
        ("caf\u00e9 \udfff", "lone surrogate"),
        (datetime(2024, 1, 1, tzinfo=NoOffset()), "NoOffset.* gives no UTC offset"),
        (time(1, tzinfo=NoOffset()), "NoOffset.* gives no UTC offset"),
        (datetime(2024, 1, 1, tzinfo=timezone(timedelta(microseconds=1))), "no UTC offset in whole seconds"),
        (Str("a"), "Str is a subclass of str"),
        (Int(1), "Int is a subclass of int"),
        (Float(1), "Float is a subclass of float"),
        (Moment(2024, 1, 1), "Moment is a subclass of datetime"),
        (OrderedDict(a=1), "OrderedDict is a subclass of dict"),
        (defaultdict(list), "defaultdict is a subclass of dict"),
        (Counter("aab"), "Counter is a subclass of dict"),
        (type("Tuple", (tuple,), {})(), "Tuple is a subclass of tuple"),
        (Planet.EARTH, "Planet could not be read back"),
        (Mixed.ONE, "Mixed could not be read back"),
        (WithInitVar(1), "WithInitVar could not be read back"),
        (WithUnreadableUnion("a"), "WithUnreadableUnion could not be read back"),
        (WithUnreadableItem("a"), "WithUnreadableItem could not be read back"),
        (WithoutAnnotation(1), "WithoutAnnotation could not be read back"),
        (WithUnsetField(), "has a field without a value"),
        (Secret(word="x"), "cannot store a value of type SecretStr"),
        (Person.model_construct(name=5), "Person does not dump"),
        (object(), "cannot store a value of type object; use plain data, a dataclass"),
        (len, "builtin_function_or_method"),
        (same, "function"),
        (lambda: None, "function"),
        (json, "module"),
        (a_generator(), "generator"),
        (int, "type"),
        (Frozen, "type"),
        (range(3), "range"),
        (memoryview(b"a"), "memoryview"),
        (ValueError("x"), "ValueError"),
        (..., "ellipsis"),
        ({Frozen(1)}, "cannot store a Frozen as a key or in a set"),
        ({Frozen(1): 1}, "cannot store a Frozen as a key or in a set"),
        ({(1, Frozen(1))}, "cannot store a Frozen as a key or in a set"),
        ({Str("a"): 1}, "cannot store a Str"),
        ({Colour.RED, "red"}, "would come back as one"),
        ({Colour.RED: 1, "red": 2}, "would come back as one"),
        ({frozenset({Colour.RED, "red"})}, "would come back as one"),
    ],
    ids=kind_name,
)
def test_what_would_not_come_back_is_refused(value, reason):
    with pytest.raises(SerializationError, match=reason):
        encode([value])


@pytest.mark.row("B7.3")
@pytest.mark.parametrize("setting", [0, 640])
def test_the_limit_of_digits_does_not_grow_or_crash_with_the_interpreters(setting):
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(setting)
    try:
        with pytest.raises(SerializationError, match="4300 digits"):
            encode(10**4300)
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.row("B7.4")
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (math.nan, "$"),
        ([math.nan], "$[0]"),
        ({"a": [0, 1, 2, {"b": math.nan}]}, "$.a[3].b"),
        ({"my key": {"ok": math.nan}}, '$["my key"].ok'),
        ({'say "hi"': math.nan}, '$["say \\"hi\\""]'),
        ({"": math.nan}, '$[""]'),
        ({"a": (1, math.nan)}, "$.a[1]"),
        ({1: [math.nan]}, "$[1][0]"),
        ({"$a": {"b": math.nan}}, '$["$a"].b'),
        ({(1, "x"): math.nan}, "$[(1, 'x')]"),
        ({"a": {1, math.nan}}, "$.a"),
        ({"a\0": 1}, '$["a\\u0000"]'),
        ([Line(Point(1, math.nan), Point(0))], "$[0].start[1]"),
        ({"p": Person.model_construct(name="\0")}, "$.p.name"),
        (Cat(full_name="\0", born=date.min), "$.fullName"),
        (Parcel(math.nan), "$._weight"),
    ],
)
def test_a_refusal_names_the_path(value, path):
    with pytest.raises(SerializationError) as caught:
        encode(value)

    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ")


def nested(wrap, depth):
    value = wrap()
    for _ in range(depth - 1):
        value = wrap(value)
    return value


WRAPPERS = [
    lambda *inner: list(inner),
    lambda *inner: tuple(inner),
    lambda *inner: frozenset(inner),
    lambda *inner: dict.fromkeys("a", *inner),
    lambda *inner: dict.fromkeys([1], *inner),
]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_containers_may_be_nested_to_the_limit(wrap):
    value = nested(wrap, MAX_DEPTH)

    assert same(decode(encode(value)), value)


@pytest.mark.parametrize("wrap", WRAPPERS)
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 300])
def test_deeper_nesting_is_refused(wrap, depth):
    with pytest.raises(SerializationError, match="nested deeper than 100"):
        encode(nested(wrap, depth))


@pytest.mark.row("B7.6")
@pytest.mark.parametrize("depth", [1_000, 100_000])
def test_absurd_nesting_is_refused_and_does_not_crash(depth):
    with pytest.raises(SerializationError, match="nested deeper than 100"):
        encode(nested(lambda *inner: list(inner), depth))


def holding_itself():
    a_list: list[Any] = []
    a_list.append(a_list)
    a_dict: dict[Any, Any] = {}
    a_dict["me"] = [a_dict]
    by_number: dict[Any, Any] = {}
    by_number[1] = (by_number,)
    box: Box[Any] = Box(None)
    box.content = box
    return [a_list, a_dict, by_number, box]


@pytest.mark.row("B7.6")
@pytest.mark.parametrize("value", holding_itself(), ids=["list", "dict", "dict of pairs", "dataclass"])
def test_a_value_that_holds_itself_is_refused(value):
    with pytest.raises(SerializationError, match="holding itself"):
        encode(value)


def test_a_stack_that_is_nearly_full_gives_a_serialization_error():
    def descend():
        try:
            descend()
        except RecursionError:
            encode([[[[[1]]]]])

    with pytest.raises(SerializationError, match="nested deeper"):
        descend()


def test_a_text_within_the_limit_is_returned():
    assert encode("é", max_bytes=4) == '"é"'


def test_a_text_over_the_limit_is_refused_with_its_size_in_bytes():
    with pytest.raises(PayloadTooLarge) as caught:
        encode("é", max_bytes=3)

    assert (caught.value.size, caught.value.limit) == (4, 3)


EVERYTHING = Everything(
    when=datetime(2024, 5, 1, tzinfo=PARIS),
    numbers={1, 2},
    pair=(1, "a"),
    price=Decimal("1.10"),
    id=ID,
    raw=b"\x00\xff",
    colour=Colour.BLUE,
    by_id={1: Line(Point(1, 2), Point(3)), 2: Line(Point(0), Point(0), Colour.BLUE)},
    maybe=None,
    number_or_text="x",
    lasting=timedelta(days=1),
    anything=(1, {2: b"x"}),
)


@pytest.mark.row("B7.4")
@pytest.mark.parametrize(
    ("value", "as_type"),
    [
        (Colour.RED, Colour),
        (Level.HIGH, Level),
        (Access.READ | Access.WRITE, Access),
        (Point(1, 2), Point),
        (Line(Point(1, 2), Point(3, 4), Colour.BLUE), Line),
        (EVERYTHING, Everything),
        (dataclasses.replace(EVERYTHING, maybe=Line(Point(1), Point(2)), number_or_text=5), Everything),
        (Frozen(1), Frozen),
        (Frozen(1), Frozen | None),
        (None, Frozen | None),
        ([Frozen(1)], list[Frozen]),
        ((Frozen(1), 2), tuple[Frozen, int]),
        ({"a": Frozen(1)}, dict[str, Frozen]),
        ({Colour.RED: Frozen(1)}, dict[Colour, Frozen]),
        ({Point(1, 2): 3}, dict[Point, int]),
        ({Point(1, 2)}, set[Point]),
        ({Colour.RED, Colour.BLUE}, set[Colour]),
        (Box(Frozen(1)), Box[Frozen]),
        (Box({1, 2}), Box[set[int]]),
        (Parcel(5, sent=datetime(2024, 5, 1, tzinfo=UTC)), Parcel),
        (Cat(full_name="Tom", born=date(2024, 1, 1)), Cat),
        (Cat(full_name="Tom", born=date(2024, 1, 1), owner="x"), Cat | Dog),
        (Dog({"sit"}), Cat | Dog),
        (Row(1, (2, 3)), Row),
        (Person(name="x", born=datetime(2024, 5, 1, tzinfo=UTC), tags={1}, colour=Colour.BLUE), Person),
        (Person(name="x", homes=[Address(streetName="Main", houseIn=5)]), Person),
        (Strict(colour=Colour.RED, when=datetime(2024, 5, 1, tzinfo=UTC)), Strict),
        ([Person(name="x")], list[Person]),
        ({"a": Person(name="x")}, dict[str, Person]),
        (Order(Person(name="x"), [Person(name="y")]), Order),
        (pydantic.RootModel[list[int]]([1]), pydantic.RootModel[list[int]]),
        (1j, complex),
        ([1j], list[complex]),
        (2**70, int),
        (b"x", str | bytes),
        ("x", str | bytes),
        ([date.min, "x"], list[str | date]),
        ({1: date.min}, dict[int, str | date]),
        ((b"x", "y"), tuple[bytes | str, bytes | str]),
        ((b"x", "y"), tuple[bytes | str, ...]),
        (None, str | bytes | None),
        ({"when": datetime(2024, 5, 1, tzinfo=UTC), "size": 1}, Options),
    ],
)
def test_an_annotation_gives_the_class_back(value, as_type):
    back = decode(encode(value), as_type)

    assert back == value
    assert type(back) is type(value)


def test_an_init_false_field_comes_back_as_it_was():
    area = Area(2, 3)
    area.notes.append("kept")

    back = decode(encode(area), Area)

    assert back == area
    assert back.notes == ["kept"]


def test_an_attrs_field_that_is_not_an_argument_comes_back_as_it_was():
    parcel = Parcel(5)
    parcel.stamps.append(Point(1, 2))

    assert decode(encode(parcel), Parcel) == parcel


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Frozen(1), {"x": 1}),
        (Point(1, 2), [1, 2]),
        (Colour.RED, "red"),
        (Level.HIGH, 2),
        ({Colour.RED}, {"red"}),
        ({Point(1, 2): 3}, {(1, 2): 3}),
        (Box((1, 2)), {"content": (1, 2)}),
        (Parcel(5), {"_weight": 5, "sent": None, "stamps": []}),
        (Cat(full_name="Tom", born=date.min), {"$kind": "cat", "fullName": "Tom", "born": date.min}),
        (Row(1, (2, 3)), ["Row", 1, (2, 3)]),
        (Address(streetName="Main"), {"street": "Main", "house": 1}),
    ],
)
def test_without_an_annotation_a_class_comes_back_as_plain_data(value, plain):
    assert same(decode(encode(value)), plain)


@pytest.mark.parametrize(
    ("text", "as_type", "value"),
    [
        ('"2024-01-01T00:00:00Z"', datetime, datetime(2024, 1, 1, tzinfo=UTC)),
        ('"2024-01-01"', date, date(2024, 1, 1)),
        ('"P1D"', timedelta, timedelta(days=1)),
        ('"YWI="', bytes, b"ab"),
        ('"1.10"', Decimal, Decimal("1.10")),
        (f'"{ID}"', UUID, ID),
        ("[1,2,2]", set[int], {1, 2}),
        ('[1,"a"]', tuple[int, str], (1, "a")),
        ('{"1":"a"}', dict[int, str], {1: "a"}),
        ('{"1":"a"}', dict[int | str, str], {"1": "a"}),
        ('{"red":1}', dict[Colour, int], {Colour.RED: 1}),
        ("1", float, 1.0),
        ('{"x":1,"unknown":2}', Frozen, Frozen(1)),
        ('{"when":"2024-01-01T00:00:00Z","size":1}', Options, {"when": datetime(2024, 1, 1, tzinfo=UTC), "size": 1}),
        ('{"_weight":1,"sent":"2024-01-01T00:00:00Z"}', Parcel, Parcel(1, datetime(2024, 1, 1, tzinfo=UTC))),
        ('{"streetName":"Main","houseIn":2}', Address, Address(streetName="Main", houseIn=2)),
        ('{"name":"x","born":"2024-01-01T00:00:00Z"}', Person, Person(name="x", born=datetime(2024, 1, 1, tzinfo=UTC))),
    ],
)  # fmt: skip
def test_an_annotation_reads_plain_json_that_others_wrote(text, as_type, value):
    back = decode(text, as_type)

    assert back == value
    assert type(back) is type(value)


@dataclass
class Touchy:
    x: int

    def __post_init__(self):
        raise KeyError(self.x)


@pytest.mark.parametrize(
    ("text", "as_type", "path", "reason"),
    [
        ('{"x":"a"}', Frozen, "$.x", "Expected `int`, got `str`"),
        ('[{"x":1},{"x":null}]', list[Frozen], "$[1].x", "Expected `int`, got `null`"),
        ("{}", Frozen, "$", "missing required field `x`"),
        ('"green"', Colour, "$", "Invalid enum value 'green'"),
        ('{"green":1}', dict[Colour, int], "$", "Invalid enum value 'green' as a key"),
        ('{"a":{"$tuple":[1]}}', dict[str, int], "$[...]", "Expected `int`, got `array`"),
        ('{"name":5}', Person, "$", "Person.name: Input should be a valid string"),
        ('{"buyer":{"name":"x","homes":[{}]},"others":[]}', Order, "$.buyer", "Person.homes.0.streetName: Field required"),
        ("1", complex, "$", "Expected `complex`, got `int`"),
        ("1", str | bytes, "$", "cannot be read as str | bytes"),
        ('{"$tuple":["a"]}', tuple[str | bytes, str | bytes], "$", "cannot be read as tuple"),
        ('["a",1]', list[str | bytes], "$", "cannot be read as list"),
        ('{"a":"b"}', dict[bytes | date, str | bytes], "$", "cannot be read as dict"),
        ('{"x":1}', Touchy, "$", "cannot be read as Touchy: KeyError(1)"),
        ('{"x":1}', "Frozen", "$", "cannot be read as Frozen"),
    ],
)  # fmt: skip
def test_a_text_that_does_not_fit_the_type_is_refused_with_its_path(text, as_type, path, reason):
    with pytest.raises(SerializationError) as caught:
        decode(text, as_type)

    assert caught.value.path == path
    assert reason in caught.value.reason


def test_a_refusal_by_pydantic_does_not_repeat_the_input():
    with pytest.raises(SerializationError) as caught:
        decode('{"name":"x","born":"hunter2"}', Person)

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "{", "[1,", "nul", "NaN", "Infinity", "1 2", "{'a':1}", '"\\ud800"', '"\ud800"', "1e400",
        "1" * 5000, "[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000,
        '{"$tuple":' * 5_000 + "[]" + "}" * 5_000, "cos\nsystem\n(S'true'\ntR.", "\x80\x04K\x01.",
    ],
    ids=kind_name,
)  # fmt: skip
def test_a_broken_text_is_a_serialization_error(text):
    with pytest.raises(SerializationError):
        decode(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"$tuple":1}', '{"$tuple":{"$tuple":[]}}', '{"$set":[[1]]}', '{"$set":[{}]}', '{"$frozenset":"ab"}',
        '{"$bytes":"%%%"}', '{"$bytes":1}', '{"$bytearray":"a"}', '{"$datetime":"yesterday"}', '{"$datetime":1}',
        '{"$datetime":["2024-01-01T00:00:00","Not/AZone",0]}', '{"$datetime":["2024-01-01T00:00:00","../etc",0]}',
        '{"$datetime":["2024-01-01T00:00:00","Europe",0]}', '{"$datetime":["2024-01-01T00:00:00","UTC",2]}',
        '{"$datetime":["2024-01-01T00:00:00","UTC"]}', '{"$date":"2024-13-01"}', '{"$date":null}', '{"$time":"25:00"}',
        '{"$timedelta":[1,2]}', '{"$timedelta":[1,2,"3"]}', '{"$timedelta":[9999999999,0,0]}', '{"$uuid":"1"}',
        '{"$uuid":1}', '{"$decimal":"x"}', '{"$decimal":"NaN"}', '{"$decimal":1}', '{"$complex":[1.0]}',
        '{"$complex":["1",2.0]}', '{"$int":"1_0"}', '{"$int":" 1"}', '{"$int":1}', '{"$int":"' + "1" * 5000 + '"}',
        '{"$dict":{}}', '{"$dict":[1]}', '{"$dict":["ab"]}', '{"$dict":[[1,2,3]]}', '{"$dict":[[[],1]]}',
    ],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_a_malformed_tag_is_refused_with_its_path(text):
    with pytest.raises(SerializationError, match="malformed \\$") as caught:
        decode(f'{{"a":[0,{text}]}}')

    assert caught.value.path == "$.a[1]"


@settings(deadline=None)
@given(st.sampled_from(TAGS), plain_json)
def test_no_content_of_a_tag_raises_anything_else(tag, content):
    text = msgspec.json.encode({tag: content}).decode()

    try:
        decode(text)
    except SerializationError as error:
        assert "malformed" in error.reason  # noqa: PT017 - either a value or this error


def test_reading_and_writing_import_neither_pydantic_nor_attrs():
    program = (
        "import sys; from pgqrs.serialization import decode, encode; decode(encode({1: {2}}), dict[int, set[int]]);"
        "print([name for name in ('pydantic', 'attrs', 'attr', 'pickle') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
