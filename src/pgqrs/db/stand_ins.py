"""A database that stands in for the default one: while a kit is open, no test opens the real one by mistake."""

from __future__ import annotations

import weakref
from typing import Protocol

from pgqrs.clock import Clock
from pgqrs.config import Config
from pgqrs.db.driver import Driver


class StandIn(Protocol):
    """What a kit tells of its database."""

    @property
    def clock(self) -> Clock: ...

    @property
    def is_installed(self) -> bool:
        """True when its tables are there."""
        ...

    def settings_for(self, config: Config) -> Config:
        """Return the config that was asked for, with the database of the kit."""
        ...

    async def lent(self) -> Driver | None:
        """Return the kit's own connection if no other one can reach the database, else None."""
        ...


# The newest last. Not held: a kit that a program has forgotten to close ends with its last reference.
_open: list[weakref.ref[StandIn]] = []


def current() -> StandIn | None:
    """Return the newest one that is open; None in production."""
    while _open:
        stand_in = _open[-1]()
        if stand_in is not None:
            return stand_in
        _open.pop()
    return None


def begin(stand_in: StandIn) -> None:
    """Let it stand in from now on, before those that do already. Idempotent."""
    if all(each() is not stand_in for each in _open):
        _open.append(weakref.ref(stand_in))


def end(stand_in: StandIn) -> None:
    """Let the one before it stand in again. Idempotent."""
    _open[:] = [each for each in _open if each() not in (None, stand_in)]
