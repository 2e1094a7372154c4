"""Triggers for test databases: what must never happen raises at the statement that does it.

The checker (`admin.check_invariants`) finds what is broken afterwards; a guard names the guilty statement. The error's
text begins with "guard:"; `fired` finds it where a worker has taken it for an error of its run. Nothing of this is ever
installed where people keep their data.

What is not guarded: a step deleted (only reset does that, and a trigger cannot know who asks), a write under a stale
token while somebody else holds the lease (steps carry no token; the run's end does, by deleting the message), and an
event of `ctx.emit` without a lease (it comes after the end of its run, in the same transaction).
"""

from __future__ import annotations

from typing import NamedTuple

from pgqrs.api.store import Store
from pgqrs.db.database import Database, Kind, Row, store_call
from pgqrs.db.queries import Query


class Guard(NamedTuple):
    """Raises before `on` when `broken` is true; `new` and `old` are the row."""

    name: str
    on: str
    broken: str
    says: str


_ENDED = "('SUCCESS', 'ERROR', 'CANCELLED')"
# On PostgreSQL this is asked as of the beginning of the statement: one statement there records the last step and
# deletes the message, in no order that could be relied on.
_NOT_LEASED = """not exists (
    select 1 from pgqrs_messages as m
    where m.run_id = new.run_id and m.leased_by is not null
)"""
# Copied from the former layout, by nobody's lease.
_NOT_IMPORTED = """not exists (
    select 1 from pgqrs_workflow_runs as r
    where r.run_id = new.run_id and r.idempotency_key like 'v1:%'
)"""

GUARDS = (
    Guard(
        "step_changed",
        "update on pgqrs_workflow_steps",
        "old.status = 'SUCCESS' and (new.status <> 'SUCCESS' or {text new.output} is distinct from {text old.output})",
        "a succeeded step is changed",
    ),
    Guard(
        "step_without_lease",
        "insert on pgqrs_workflow_steps",
        f"{_NOT_LEASED} and {_NOT_IMPORTED}",
        "a step is recorded for a run that nobody holds",
    ),
    Guard(
        "step_changed_without_lease",
        "update on pgqrs_workflow_steps",
        # `resume` answers a paused step from outside.
        f"old.status <> 'SUCCESS' and not (old.status = 'PAUSED' and new.status = 'SUCCESS') and {_NOT_LEASED}",
        "a step is changed whose run nobody holds",
    ),
    Guard(
        "token_sank",
        "update on pgqrs_messages",
        "new.lease_token < old.lease_token",
        "the lease token of a message goes down",
    ),
    Guard(
        "end_undone",
        "update of status on pgqrs_workflow_runs",
        # Restart and reset clear what the end left behind.
        f"old.status in {_ENDED} and new.status <> old.status"
        " and not (new.status = 'PENDING' and new.completed_at is null and new.output is null)",
        "a run that has ended gets another status, and not by restart or reset",
    ),
    Guard(
        "ended_twice",
        "update of completed_at on pgqrs_workflow_runs",
        f"old.status in {_ENDED} and new.status in {_ENDED}",
        "a run that has ended ends once more",
    ),
    Guard(
        "success_without_lease",
        "update of status on pgqrs_workflow_runs",
        f"new.status = 'SUCCESS' and old.status <> 'SUCCESS' and {_NOT_LEASED}",
        "a run succeeds that nobody holds",
    ),
    Guard(
        "signal_read_twice",
        "update of consumed_at on pgqrs_signals",
        "old.consumed_at is not null",
        "a signal is read twice",
    ),
    Guard(
        "event_published_twice",
        "update of published_at on pgqrs_outbox_events",
        "old.published_at is not null",
        "an event of the outbox is marked as published twice",
    ),
    Guard(
        "slot_fired_twice",
        "update on pgqrs_schedule_slots",
        "old.state = 'fired'",
        "a slot that has fired is changed",
    ),
)

_FIRED = Query(
    "guards_fired",
    """
    select run_id, last_error from pgqrs_workflow_runs where last_error like '%guard: %'
    union all
    select run_id, {text data} from pgqrs_workflow_events where {text data} like '%guard: %'""",
)


async def install_guards(store: Store) -> None:
    """From now on this database refuses what breaks an invariant. Installing again changes nothing."""
    await _install(store.database)


@store_call(Kind.UNIT, idempotent=True)
async def _install(db: Database) -> None:
    for guard in GUARDS:
        for statement in _on_postgres(guard, db) if db.dialect.is_postgres else _on_sqlite(guard):
            await db.execute(Query(f"guard_{guard.name}", statement))


async def fired(db: Database) -> list[str]:
    """What guards have stopped, as the runs that it happened to tell: a worker takes it for an error of theirs."""
    return [f"run {run_id}: {said}" for run_id, said in await _fired(db)]


@store_call(Kind.READ, idempotent=True)
async def _fired(db: Database) -> list[Row]:
    return await db.fetch(_FIRED)


def _on_sqlite(guard: Guard) -> tuple[str, ...]:
    trigger = f"create trigger if not exists pgqrs_guard_{guard.name} before {guard.on} when {guard.broken}"
    return (f"{trigger} begin select raise(abort, 'guard: {guard.says}'); end",)


def _on_postgres(guard: Guard, db: Database) -> tuple[str, ...]:
    name = f"pgqrs_guard_{guard.name}"
    function = f'"{db.dialect.schema}".{name}()'
    raises = f"raise exception 'guard: {guard.says}' using errcode = '23000'"
    body = f"begin if {guard.broken} then {raises}; end if; return new; end"
    return (
        # Stable: it sees what was there when the statement began.
        f"create or replace function {function} returns trigger language plpgsql stable as $${body}$$",
        f"create or replace trigger {name} before {guard.on} for each row execute function {function}",
    )
