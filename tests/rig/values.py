"""Values: what equality in value and type means, and an endless supply of odd ones."""

from __future__ import annotations

import random
import struct
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo


def same(a, b):
    """Equal in value and type, all the way down, with what == overlooks: signs of zero, zones, folds, digits."""
    if type(a) is not type(b):
        return False
    match a:
        case float():
            return struct.pack("d", a) == struct.pack("d", b)
        case complex():
            return same([a.real, a.imag], [b.real, b.imag])
        case Decimal():
            return a.as_tuple() == b.as_tuple()
        case datetime() | time():
            wall = a.replace(tzinfo=None) == b.replace(tzinfo=None)
            return wall and a.fold == b.fold and type(a.tzinfo) is type(b.tzinfo) and a.tzinfo == b.tzinfo
        case list() | tuple():
            return len(a) == len(b) and all(map(same, a, b))
        case set() | frozenset():
            return len(a) == len(b) and all(any(same(x, y) for y in b) for x in a)
        case dict():
            return same(list(a.items()), list(b.items()))
    return a == b


STRINGS = [
    "", "a", "null", "\\", '"', "'", "; drop table x; --", "%_", "\n\r\t\b\x1b[31m", "\x7f", "\u2028", "\ufffe", "\ufeff",
    "\u202eevil", "é", "e\u0301", "名前", "\U0001f600", "\U0010ffff", "$tuple", "$", "{now}", ":now", "a" * 500,
]  # fmt: skip
INTEGERS = [0, -1, 1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, -(10**30), 10**400]
FLOATS = [0.0, -0.0, 1.0, 1e16, 1e22, 1e308, 5e-324, 0.1, -1.5, 123456789.123456789, 2.0**53]
ZONES = [
    None,
    UTC,
    timezone(timedelta(hours=-3, minutes=-30)),
    ZoneInfo("Europe/Berlin"),
    ZoneInfo("America/New_York"),
]
# What must be refused, wherever it stands.
BAD = [
    float("nan"), float("inf"), float("-inf"), "\ud800", "a\0b", Decimal("nan"), complex("nan"), 10**5000, object(), len,
    range(3), (n for n in ()), type("Mine", (str,), {})("x"), memoryview(b"x"),
]  # fmt: skip


class Values:
    """Random values of every kind that can be stored; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def good(self, depth: int = 3) -> Any:
        if depth == 0 or self._random.random() < 0.4:
            return self._leaf()
        size = self._random.randrange(4)
        match self._random.randrange(6):
            case 0:
                return [self.good(depth - 1) for _ in range(size)]
            case 1:
                return tuple(self.good(depth - 1) for _ in range(size))
            case 2:
                return {self._string(): self.good(depth - 1) for _ in range(size)}
            case 3:
                return {self._key(): self.good(depth - 1) for _ in range(size)}
            case 4:
                return {self._key() for _ in range(size)}
            case _:
                return frozenset(self._key() for _ in range(size))

    def bad(self) -> Any:
        """A value with exactly one thing in it that cannot be stored."""
        value = self._random.choice(BAD)
        for _ in range(self._random.randrange(4)):
            around = [self.good(1) for _ in range(self._random.randrange(3))]
            match self._random.randrange(3):
                case 0:
                    value = [*around, value]
                case 1:
                    value = (*around, value)
                case _:
                    value = {"k": around, "bad": value}
        return value

    def _leaf(self) -> Any:
        pick = self._random
        makers = [
            lambda: pick.choice([None, True, False]),
            lambda: pick.choice(INTEGERS),
            lambda: pick.randrange(-(2**70), 2**70),
            lambda: pick.choice(FLOATS),
            lambda: struct.unpack("d", struct.pack("Q", pick.getrandbits(62)))[0],
            self._string,
            lambda: pick.randbytes(pick.randrange(20)),
            lambda: bytearray(pick.randbytes(3)),
            self._moment,
            lambda: self._moment().date(),
            lambda: self._moment().time(),
            lambda: timedelta(days=pick.randrange(-(10**6), 10**6), microseconds=pick.randrange(10**12)),
            lambda: UUID(int=pick.getrandbits(128)),
            lambda: Decimal(pick.randrange(-(10**20), 10**20)).scaleb(pick.randrange(-30, 30)),
            lambda: pick.choice([Decimal("-0"), Decimal("1.10"), Decimal("Infinity"), Decimal("1E+400")]),
            lambda: complex(pick.choice(FLOATS), pick.choice(FLOATS)),
        ]
        return pick.choice(makers)()

    def _moment(self) -> datetime:
        moment = datetime(1900, 1, 1) + timedelta(  # noqa: DTZ001 - naive ones are values too
            days=self._random.randrange(80_000), microseconds=self._random.randrange(86_400_000_000)
        )
        return moment.replace(tzinfo=self._random.choice(ZONES), fold=self._random.randrange(2))

    def _string(self) -> str:
        return "".join(self._random.choice(STRINGS) for _ in range(self._random.randrange(3)))

    def _key(self) -> Any:
        """Keys that do not equal each other across types: 1, 1.0 and True are one key to Python itself."""
        pick = self._random
        makers = [
            self._string,
            lambda: pick.randrange(2, 10**6),
            lambda: pick.randbytes(4),
            lambda: date(2000 + pick.randrange(50), 1, 1),
            lambda: time(pick.randrange(24), 30),
            lambda: UUID(int=pick.getrandbits(128)),
            lambda: (pick.randrange(2, 99), self._string()),
        ]
        return pick.choice(makers)()
