"""Outbox rows for tests, and what receivers got: a ledger that all processes append to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pgqrs
from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.runs import history
from pgqrs.db.runs.history import Emission

WORKFLOW = "orders"


async def emit(store: pgqrs.Store, emissions: Sequence[tuple[int, str, str]]) -> None:
    """Events as `ctx.emit` writes them: (run_id, type, JSON)."""
    await _told(store.database, [Emission(*each) for each in emissions])


async def new_runs(store: pgqrs.Store, count: int) -> list[int]:
    await store.create_workflow(WORKFLOW)
    return await pgqrs.workflow(WORKFLOW).trigger_many([None] * count).execute(store)


@store_call(Kind.UNIT)
async def _told(db: Database, emissions: Sequence[Emission]) -> None:
    await history.record_events(db, [], emissions)


def an_event(**fields: object) -> pgqrs.OutboxEvent:
    """An event that is in no database."""
    given: dict[str, object] = {
        "id": "3f0c3d52-0d4c-4a5c-8a52-6a3d7d0e5d2a",
        "type": "order.shipped",
        "source": "/pgqrs/public",
        "run_id": 1,
        "workflow": WORKFLOW,
        "payload_text": '{"n": 1e16, "z": -0.0}',
        "created_at": datetime(2030, 1, 1, tzinfo=UTC),
        "attempts": 0,
        "last_error": None,
        "published_at": None,
        "dead_at": None,
        "event_id": 1,
    }
    return pgqrs.OutboxEvent(**{**given, **fields})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Delivery:
    """One line of a ledger."""

    run_id: int
    number: int
    event_id: str
    pid: int


def deliveries(ledger: Path) -> list[Delivery]:
    found = []
    for line in ledger.read_text().splitlines() if ledger.exists() else ():
        run_id, number, event_id, pid = line.split()
        found.append(Delivery(int(run_id), int(number), event_id, int(pid)))
    return found


def first_deliveries(ledger: Path) -> dict[int, list[int]]:
    """Of each run the numbers of its events, in the order in which each was received first."""
    order: dict[int, list[int]] = {}
    for each in deliveries(ledger):
        numbers = order.setdefault(each.run_id, [])
        if each.number not in numbers:
            numbers.append(each.number)
    return order
