"""How runs come to be: triggered once however often their key is used, and by runs that have failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pgqrs.audit import EventType
from pgqrs.db.database import Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.db.runs.history import RunEvent, facts, publish, record_events
from pgqrs.errors import IdempotencyConflict, PgqrsError, SerializationError
from pgqrs.inputs import given_text, same_input
from pgqrs.serialization import decode, encode

_SQL = load(__package__, "triggers")

# A run that has the key may be deleted between our insert and our look, and another one triggered: try again.
_KEY_TRIES = 5
# Attributes are for finding runs; longer values are kept with the run, but not looked up.
_MOST_ATTRIBUTE = 200


@dataclass(frozen=True, slots=True)
class NewRuns:
    """Runs of one workflow with the same options. `inputs` are encoded; `keys` has one for each of them, or none."""

    workflow_id: int
    queue_id: int
    inputs: Sequence[str]
    keys: Sequence[str] = ()
    priority: int = 0
    run_at: datetime | None = None
    delay: float = 0.0
    max_attempts: int = 3
    parent_run_id: int | None = None
    attributes: str | None = None
    dead_letter_of: int | None = None
    # What they remember of where they come from, such as a trace; JSON.
    headers: str | None = None
    # Who triggered them, for their history.
    actor: str | None = None

    def with_headers(self, headers: str | None) -> NewRuns:
        return self if headers is None else replace(self, headers=headers)


@dataclass(frozen=True, slots=True)
class Triggered:
    """A run, and whether this call made it or found it by its idempotency key."""

    run_id: int
    is_new: bool


def _needed(db: Database, new: NewRuns) -> Kind:
    """One statement on PostgreSQL, unless runs are looked up by their keys, or more than they is to be written."""
    more = new.keys or new.attributes or EventType.CREATED in db.audit_policy.published
    return Kind.UNIT if more else Kind.STATEMENT


@store_call(_needed)
async def trigger(db: Database, new: NewRuns) -> list[int]:
    """The runs' ids in the order given: runs and messages, all or none."""
    return [each.run_id for each in await _trigger(db, new)]


@store_call(Kind.UNIT, idempotent=True)
async def trigger_once(db: Database, new: NewRuns) -> list[Triggered]:
    """As `trigger`, for runs that all have a key: after a lost reply it finds what it has made."""
    return await _trigger(db, new)


async def _trigger(db: Database, new: NewRuns) -> list[Triggered]:
    if not new.keys:
        run_ids = sorted(row[0] for row in await _insert(db, new, [(text, None) for text in new.inputs]))
        await _follow_up(db, new, run_ids)
        return [Triggered(run_id, is_new=True) for run_id in run_ids]
    inputs = _by_key(new)
    runs: dict[str, Triggered] = {}
    for _ in range(_KEY_TRIES):
        missing = [(text, key) for key, text in inputs.items() if key not in runs]
        made = await _insert(db, new, missing)
        runs |= {key: Triggered(run_id, is_new=True) for run_id, key in made}
        runs |= await _found(db, new, {key: text for text, key in missing if key not in runs})
        if len(runs) == len(inputs):
            await _follow_up(db, new, sorted(each.run_id for each in runs.values() if each.is_new))
            return [runs[key] for key in new.keys]
    raise PgqrsError(
        f"idempotency key {missing[0][1]!r} is in use by a transaction that this one cannot see",
        hint="try yours again",
    )


def _by_key(new: NewRuns) -> dict[str, str]:
    """The inputs by their keys; a key that is given twice must be given with one input."""
    inputs: dict[str, str] = {}
    for text, key in zip(new.inputs, new.keys, strict=True):
        if not same_input(inputs.setdefault(key, text), text):
            raise IdempotencyConflict(key, None)
    return inputs


async def _insert(db: Database, new: NewRuns, given: Sequence[tuple[str, str | None]]) -> Sequence[Any]:
    """(run id, key) of those that are new. On PostgreSQL their messages and their first events come with them."""
    run = {
        "workflow_id": new.workflow_id,
        "max_attempts": new.max_attempts,
        "priority": new.priority,
        "parent_run_id": new.parent_run_id,
        "attributes": new.attributes,
        "dead_letter_of": new.dead_letter_of,
        "headers": new.headers,
        "actor": new.actor,
        "given": given,
    }
    if not db.dialect.is_postgres:
        return await db.fetch(_SQL["insert_runs"], **run)
    tells = EventType.CREATED in db.audit_policy.kept
    return await db.fetch(
        _SQL["trigger_runs"], **run, **_message(new), tells=tells, created=_origin(new) if tells else None
    )


def _message(new: NewRuns) -> dict[str, Any]:
    return {"queue_id": new.queue_id, "run_at": new.run_at, "delay": new.delay}


def _origin(new: NewRuns) -> str | None:
    """Where a run comes from, as the data of its first event."""
    return facts(parent_run_id=new.parent_run_id, dead_letter_of=new.dead_letter_of)


async def _found(db: Database, new: NewRuns, inputs: Mapping[str, str]) -> dict[str, Triggered]:
    """Live runs with one of the keys; IdempotencyConflict when one is not the run that this would have been."""
    rows = await live_runs_by_key(db, list(inputs))
    for key, run_id, workflow_id, text in rows:
        try:
            is_same = workflow_id == new.workflow_id and same_input(text or "null", inputs[key])
        except SerializationError:
            # That run's input cannot be read: whatever it is, it is not this one.
            is_same = False
        if not is_same:
            raise IdempotencyConflict(key, run_id)
    return {key: Triggered(run_id, is_new=False) for key, run_id, _, _ in rows}


async def live_runs_by_key(db: Database, keys: Sequence[str]) -> Sequence[Any]:
    """(key, run id, workflow id, input) of the runs that have one of the keys and are not deleted."""
    return await db.fetch(_SQL["find_runs_by_key"], given=[(key,) for key in keys]) if keys else []


async def _follow_up(db: Database, new: NewRuns, run_ids: Sequence[int]) -> None:
    """What a new run brings with it: its message, its attributes, its first event."""
    if not run_ids:
        return
    if not db.dialect.is_postgres:
        await db.execute(
            _SQL["insert_run_messages"],
            priority=new.priority,
            max_attempts=new.max_attempts,
            given=[(run_id,) for run_id in run_ids],
            **_message(new),
        )
    searchable = searchable_attributes(new.attributes)
    if searchable:
        given = [(name, value, run_id) for run_id in run_ids for name, value in searchable.items()]
        await db.execute(_SQL["insert_attributes"], given=given)
    if db.audit_policy.wants(EventType.CREATED):
        data = _origin(new)
        created = [RunEvent(run_id, EventType.CREATED, data, new.actor) for run_id in run_ids]
        await (publish if db.dialect.is_postgres else record_events)(db, created)


def searchable_attributes(text: str | None) -> dict[str, str]:
    """What of a run's attributes it can be found by: top-level text, numbers, yes and no, none; short ones."""
    given = decode(text) if text else None
    if not isinstance(given, Mapping):
        return {}
    found = {
        name: value if isinstance(value, str) else encode(value)
        for name, value in given.items()
        if value is None or isinstance(value, str | int | float)
    }
    return {
        name: value for name, value in found.items() if len(name) <= _MOST_ATTRIBUTE and len(value) <= _MOST_ATTRIBUTE
    }


async def trigger_dead_letters(db: Database, run_ids: Sequence[int]) -> None:
    """For runs that have just failed: a run of the workflow that their own names for that."""
    for run_id, name, workflow_id, queue_id, text, error, last_error, attempt, max_attempts in await db.fetch(
        _SQL["dead_letters_of_runs"], run_ids=run_ids
    ):
        # Input and error are JSON already.
        about = encode({"run_id": run_id, "workflow": name, "last_error": last_error, "attempt": attempt})
        params = f'{about[:-1]},"input":{given_text(text or "null")},"error":{error or "null"}}}'
        new = NewRuns(workflow_id, queue_id, [params], max_attempts=max_attempts, dead_letter_of=run_id)
        await _trigger(db, new)
