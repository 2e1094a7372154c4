"""The history of runs: events for people, outbox rows for other systems, in the transaction of the change."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pgqrs.audit import EventType
from pgqrs.db.database import WHOLE, Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.serialization import encode

_SQL = load(__package__, "history")

# What the type of a published event of ours begins with; `ctx.emit` gives its own.
TYPE_PREFIX = "pgqrs.run."


class RunEvent(NamedTuple):
    """Something that happened to a run; `data` is JSON."""

    run_id: int
    event: EventType
    data: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class Emission:
    """What a handler wants published: a type and JSON."""

    run_id: int
    event_type: str
    payload: str


@dataclass(frozen=True, slots=True)
class EventRow:
    event_id: int
    run_id: int
    event_type: str
    data: str | None
    actor: str | None
    created_at: datetime


async def record_events(db: Database, run_events: Sequence[RunEvent], emissions: Sequence[Emission] = ()) -> None:
    """Writes down what the journal wants of it. Last in a transaction that holds the lock of each run."""
    await insert_events(db, [run_event for run_event in run_events if run_event.event in db.audit_policy.kept])
    await publish(db, run_events, emissions)


async def insert_events(db: Database, run_events: Sequence[RunEvent]) -> None:
    """The first half of `tell`: what is kept. On PostgreSQL some statements write it themselves."""
    if run_events:
        await db.execute(_SQL["insert_events"], given=[(h.run_id, h.event, h.data, h.actor) for h in run_events])


async def publish(db: Database, run_events: Sequence[RunEvent], emissions: Sequence[Emission] = ()) -> None:
    """The second half of `tell`: what goes to the outbox."""
    published = [
        (str(uuid.uuid4()), h.run_id, TYPE_PREFIX + h.event, h.data or "{}")
        for h in run_events
        if h.event in db.audit_policy.published
    ]
    published += [(str(uuid.uuid4()), e.run_id, e.event_type, e.payload) for e in emissions]
    if published:
        await db.execute(_SQL["insert_outbox"], given=published)


@store_call(Kind.READ, idempotent=True)
async def events(db: Database, run_id: int, *, limit: int, after: int, cut: int = WHOLE) -> list[EventRow]:
    """Oldest first, a page at a time; data is cut."""
    rows = await db.fetch(_SQL["list_events"], run_id=run_id, most=limit, after=after, cut=cut)
    return [EventRow(*row) for row in rows]


def facts(**given: Any) -> str | None:
    """The data of an event as JSON, without what is not known; None when nothing is."""
    known = {name: value for name, value in given.items() if value is not None}
    return encode(known) if known else None
