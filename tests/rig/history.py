"""Runs with a past, written straight into the tables: what a search must find without anybody executing it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pgqrs.api.store import Store
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from pgqrs.db.tables import workflows

ENDED = ("SUCCESS", "ERROR", "CANCELLED")

_INSERT = Query(
    "insert_past",
    """
    insert into pgqrs_workflow_runs
        (run_id, workflow_id, status, input, last_error, created_at, started_at, completed_at, updated_at, worker_id,
         max_attempts, idempotency_key, parent_run_id, waiting_for, deleted_at, error_signature, attributes)
    select given.run_id, given.workflow_id, given.status, given.input, given.last_error, given.created_at,
        given.started_at, given.completed_at, given.created_at, given.worker_id, 3, given.idempotency_key,
        given.parent_run_id, given.waiting_for, given.deleted_at, given.error_signature, given.attributes
    from {rows given: run_id id, workflow_id id, status text, input json, last_error text, created_at time, started_at time, completed_at time, worker_id id, idempotency_key text, parent_run_id id, waiting_for text, deleted_at time, error_signature text, attributes json}
    where true
    order by given.position""",
)
_ATTRIBUTES = Query(
    "insert_past_attributes",
    """
    insert into pgqrs_run_attributes (name, value, run_id)
    select given.name, given.value, given.run_id
    from {rows given: name text, value text, run_id id}
    where true""",
)
# PostgreSQL counts by itself, and has not seen the ids that were given.
_NEXT_ID = Query(
    "next_id",
    """
    select setval(pg_get_serial_sequence(:table, 'run_id'), (select max(run_id) from pgqrs_workflow_runs))""",
)


@dataclass(frozen=True)
class PastRun:
    run_id: int
    workflow: str
    status: str
    created_at: datetime
    started_at: datetime | None = None
    completed_at: datetime | None = None
    last_error: str | None = None
    error_signature: str | None = None
    worker_id: int | None = None
    idempotency_key: str | None = None
    parent_run_id: int | None = None
    waiting_for: str | None = None
    deleted_at: datetime | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


async def write(store: Store, past: list[PastRun]) -> None:
    """The runs and what they are found by; their workflows are made."""
    ids = {}
    for name in dict.fromkeys(run.workflow for run in past):
        await store.create_workflow(name)
        ids[name] = (await workflows.get(store.database, name)).workflow_id
    rows = [
        (
            run.run_id, ids[run.workflow], run.status, "null", run.last_error, run.created_at, run.started_at,
            run.completed_at, run.worker_id, run.idempotency_key, run.parent_run_id, run.waiting_for, run.deleted_at,
            run.error_signature, json.dumps(run.attributes),
        )
        for run in past
    ]  # fmt: skip
    attributes = [(name, text(value), run.run_id) for run in past for name, value in run.attributes.items()]

    async def both(unit) -> None:
        await unit.execute(_INSERT, given=rows)
        await unit.execute(_ATTRIBUTES, given=attributes)
        if unit.dialect.is_postgres:
            await unit.fetch(_NEXT_ID, table=f'"{unit.dialect.schema}".pgqrs_workflow_runs')

    await store.database.perform(both, kind=Kind.UNIT, idempotent=False)


def text(value: Any) -> str:
    """An attribute as it is found by."""
    return value if isinstance(value, str) else json.dumps(value)


def random_past(rng: random.Random, now: datetime, number: int) -> list[PastRun]:
    """Runs of every kind in a few workflows, some of them imported: older than their neighbours."""
    past: list[PastRun] = []
    keys: set[str] = set()
    for run_id in range(1, number + 1):
        status = rng.choice(["PENDING", "RUNNING", "PAUSED", "SUCCESS", "SUCCESS", "ERROR", "ERROR", "CANCELLED"])
        age = timedelta(seconds=(number - run_id) * 60 + rng.choice([0, 0, 0, 90_000]))
        created = now - age
        started = None if status == "PENDING" else created + timedelta(seconds=rng.randrange(100))
        completed = started and min(now, started + timedelta(seconds=rng.randrange(7_000)))
        failed = status == "ERROR" or (status in ("RUNNING", "CANCELLED") and rng.random() < 0.3)
        key = rng.choice([None, None, f"key-{rng.randrange(40)}"])
        deleted = now if status in ENDED and rng.random() < 0.2 else None
        if deleted is None and key in keys:
            key = None
        if deleted is None and key is not None:
            keys.add(key)
        past.append(
            PastRun(
                run_id,
                rng.choice(["billing.invoice", "billing.refund", "billing_x", "mail"]),
                status,
                created,
                started,
                completed if status in ENDED else None,
                last_error=rng.choice(["TimeoutError: no answer", "ValueError: 100% wrong_", "Über: ÄRGER", "x\\y"])
                if failed
                else None,
                error_signature=rng.choice(["TimeoutError-1", "ValueError-2", None]) if failed else None,
                worker_id=None if started is None else rng.randrange(3),
                idempotency_key=key,
                parent_run_id=rng.choice([None, None, None, *[run.run_id for run in past[:3]]]),
                waiting_for=rng.choice(["approval", "signal a"]) if status == "PAUSED" else None,
                deleted_at=deleted,
                attributes=rng.choice(
                    [{}, {"customer": "c1"}, {"customer": "c2", "n": 5}, {"customer": "c1", "ok": True}, {"n": None}]
                ),
            )
        )
    return past
