"""Outbox rows for tests, and what receivers got: a ledger that all processes append to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pgqrs
from pgqrs.db import history
from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.history import Emission

WORKFLOW = "orders"


async def emit(store: pgqrs.Store, emissions: Sequence[tuple[int, str, str]]) -> None:
    """Events as `ctx.emit` writes them: (run_id, type, JSON)."""
    await _told(store.database, [Emission(*each) for each in emissions])


async def new_runs(store: pgqrs.Store, count: int) -> list[int]:
    await store.create_workflow(WORKFLOW)
    return [await pgqrs.workflow(WORKFLOW).trigger(None).execute(store) for _ in range(count)]


@store_call(Kind.UNIT)
async def _told(db: Database, emissions: Sequence[Emission]) -> None:
    await history.tell(db, [], emissions)


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
