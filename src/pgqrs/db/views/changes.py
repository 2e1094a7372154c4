"""What has changed since the last look: a few numbers for each kind of thing, and the runs that moved.

The history tells which runs moved, where it is kept (Config.audit); the numbers tell that something did in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load

_SQL = load(__package__, "changes")

# Of each kind, the newest that are looked at.
MOST_LOOKED_AT = 200
# Runs at work whose steps are counted, and how far.
MOST_AT_WORK, MOST_STEPS = 50, 500
# More than so many events at once are not told one by one.
MOST_EVENTS = 1_000

# Which of the numbers are whose, in the order of the statement.
_PARTS = (("run", 7), ("queue", 4), ("worker", 2), ("outbox", 4), ("schedule", 5))


# By run: when it was last changed, what it says of its progress, and how many steps it has done.
AtWork = Mapping[int, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class ChangeMarks:
    """How things stand. Two looks at the same state are equal."""

    # By kind: run, queue, worker, outbox, schedule.
    numbers: Mapping[str, Sequence[Any]]
    newest_run: int
    newest_event: int
    # (event, run) of what happened after the event that was asked for; None when it is too much.
    events: Sequence[tuple[int, int]] | None
    # Those after the run that was asked for, the first of them.
    new_runs: Sequence[int]
    # How far each of the newest runs is that are at work.
    at_work: AtWork


@store_call(Kind.READ, idempotent=True)
async def pulse(db: Database, *, after_event: int | None, after_run: int | None) -> ChangeMarks:
    """A look; `after_event` and `after_run` are None at the first, when nothing is new."""
    [row] = await db.fetch(_SQL["pulse"], most=MOST_LOOKED_AT)
    numbers: dict[str, Sequence[Any]] = {}
    at = 0
    for kind, count in _PARTS:
        numbers[kind] = tuple(row[at : at + count])
        at += count
    newest = await db.fetch(_SQL["newest_event"])
    newest_event = int(newest[0][0]) if newest else 0
    newest_run = int(row[0] or 0)
    events: list[tuple[int, int]] | None = []
    if after_event is not None:
        found = await db.fetch(_SQL["events_after"], after=after_event, most=MOST_EVENTS)
        events = [(each[0], each[1]) for each in found] if len(found) < MOST_EVENTS else None
    new_runs: list[int] = []
    if after_run is not None and newest_run > after_run:
        new_runs = [each[0] for each in await db.fetch(_SQL["runs_after"], after=after_run, most=MOST_LOOKED_AT)]
    at_work = await db.fetch(_SQL["runs_at_work"], most=MOST_AT_WORK, most_steps=MOST_STEPS)
    return ChangeMarks(
        numbers=numbers,
        newest_run=newest_run,
        newest_event=newest_event,
        events=events,
        new_runs=new_runs,
        at_work={each[0]: tuple(each[1:]) for each in at_work},
    )
