"""The whole state, twice: as the tables hold it and as the model does, in the same words."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from pgqrs.db.database import Database, Kind
from pgqrs.db.queries import Query
from proof.model.queues import Name
from proof.model.records import Run, Step
from proof.model.schedules import WholeModel
from proof.model.world import World

State = dict[str, dict[Any, Any]]

_MESSAGES = Query(
    "model_messages",
    """select message_id, run_id, queue_id, {text payload}, priority, visible_after, enqueued_at, attempts,
        max_attempts, lease_token, leased_by
    from pgqrs_messages order by message_id""",
)
_ARCHIVED = Query(
    "model_archived",
    """select message_id, queue_id, {text payload}, priority, enqueued_at, attempts, lease_token, archived_by,
        archived_at
    from pgqrs_archived_messages order by message_id""",
)
# In the order of the fields of Run.
_RUNS = Query(
    "model_runs",
    """select run_id, workflow_id, {text input}, created_at, updated_at, max_attempts, priority, idempotency_key,
        parent_run_id, dead_letter_of, status, {text output}, {text error}, last_error, error_signature, attempt,
        worker_id, waiting_for, {text headers}, started_at, paused_at, completed_at, deleted_at, delete_reason
    from pgqrs_workflow_runs order by run_id""",
)
_STEPS = Query(
    "model_steps",
    """select run_id, step_id, ordinal, status, {text output}, {text error}, attempts, started_at, completed_at
    from pgqrs_workflow_steps""",
)
_SIGNALS = Query(
    "model_signals",
    """select run_id, name, {text payload}, created_at, consumed_at from pgqrs_signals order by signal_id""",
)
_EVENTS = Query("model_events", "select run_id, event_type from pgqrs_workflow_events order by event_id")
_SCHEDULES = Query(
    "model_schedules",
    """select schedule_id, name, workflow, overlap, catch_up, created_at, slots_after, next_slot_at, paused_at,
        last_slot_at, last_run_id
    from pgqrs_schedules""",
)
_SLOTS = Query("model_slots", "select schedule_id, slot_at, state, run_id, created_at from pgqrs_schedule_slots")
_QUEUES = Query("model_queues", "select name, paused_at from pgqrs_queues")
_EMPTY = [
    Query("model_resume_queues", "update pgqrs_queues set paused_at = null"),
    # Turso looks at each row that goes by itself: no parent before its child.
    Query("model_orphan_runs", "update pgqrs_workflow_runs set parent_run_id = null"),
    *(
        Query(f"model_empty_{table}", f"delete from pgqrs_{table}")
        for table in (
            "messages",
            "archived_messages",
            "workflow_steps",
            "signals",
            "workflow_events",
            "run_attributes",
            "workflow_runs",
            "schedule_slots",
            "schedules",
        )
    ),
]


async def empty(world: World) -> None:
    """Nothing is left of the walk before."""

    async def work(db: Database) -> None:
        for query in _EMPTY:
            await db.execute(query)

    await world.db.perform(work, kind=Kind.UNIT, idempotent=True)


async def bind_runs(world: World) -> None:
    """Gives the runs that nobody asked for, dead letters, their names."""
    named = {name: None for name in sorted(world.model.runs) if name not in world.ids}
    if named:
        rows = await world.db.fetch(_RUNS)
        unknown = [row[0] for row in rows if ("run", row[0]) not in world.names]
        for name, real in zip(named, unknown, strict=True):
            world.bind("run", name, real)


async def read(world: World) -> State:
    """What the tables hold, its ids said as the model's names."""

    async def work(db: Database) -> list[Any]:
        queries = (_QUEUES, _MESSAGES, _ARCHIVED, _RUNS, _STEPS, _SIGNALS, _EVENTS, _SCHEDULES, _SLOTS)
        return [await db.fetch(query) for query in queries]

    queues, messages, archived, runs, steps, signals, events, schedules, slots = await world.db.perform(
        work, kind=Kind.UNIT, idempotent=True
    )
    run = world.run_name
    queue_of = {real: name for name, real in world.queue_ids.items()}
    worker_of = {real: name for name, real in world.worker_ids.items()}
    workflow_of = {found.workflow_id: name for name, found in world.definitions.items()}
    state: State = {"queues": dict(queues), "messages": {}, "archived": {}, "runs": {}, "steps": {}, "signals": {}}
    for row in messages:
        mine = None if row[1] is None else run(row[1])
        name = world.names["message", row[0]] if mine is None else ("of", mine)
        payload = json.loads(row[3]) if mine is None else None
        state["messages"][name] = (queue_of[row[2]], payload, *row[4:9], mine, row[9], worker_of.get(row[10]))
    for row in archived:
        told = (queue_of[row[1]], json.loads(row[2]), *row[3:7], worker_of[row[7]], row[8])
        state["archived"][world.names["message", row[0]]] = told
    for real, workflow, given, *rest in runs:
        about = json.loads(given)
        if rest[6] is not None:
            about["run_id"] = run(about["run_id"])
        rest[5:7] = [None if each is None else run(each) for each in rest[5:7]]
        rest[8:10] = map(world.decoded, rest[8:10])
        rest[13] = worker_of.get(rest[13])
        rest[15] = world.decoded(rest[15])
        state["runs"][run(real)] = (workflow_of[workflow], about, *rest)
    for real, step, ordinal, status, output, error, *rest in steps:
        told = (ordinal, status, world.output(step, output), world.decoded(error), *rest)
        state["steps"][run(real), step] = told
    for number, (real, name, payload, *times) in enumerate(signals):
        state["signals"][number] = (run(real), name, json.loads(payload), *times)
    state["events"] = _by_run((run(real), event) for real, event in events)
    schedule_of = {real: name for real, name, *_ in schedules}
    state["schedules"] = {name: (*rest, None if last is None else run(last)) for _, name, *rest, last in schedules}
    state["slots"] = {
        (schedule_of[real], at): (what, None if fired is None else run(fired), created)
        for real, at, what, fired, created in slots
    }
    return state


def of_model(model: WholeModel) -> State:
    """What the model holds, in the same form."""
    messages = {
        name if m.run is None else ("of", m.run): (
            *(m.queue, m.payload, m.priority, m.visible_after, m.enqueued_at, m.attempts, m.max_attempts),
            *(m.run, m.token, m.holder),
        )
        for name, m in model.messages.items()
    }
    return {
        "queues": dict(model.queues),
        "messages": messages,
        "archived": {name: _row(a) for name, a in model.archived.items()},
        "runs": {name: _row(r) for name, r in model.runs.items()},
        "steps": {(run, step): _row(s) for run, steps in model.steps.items() for step, s in steps.items()},
        "signals": {number: _row(s) for number, s in enumerate(model.signals)},
        "events": _by_run(model.events),
        "schedules": {name: _row(s) for name, s in model.schedules.items()},
        "slots": {key: _row(s) for key, s in model.slots.items()},
    }


def _row(record: Any) -> tuple[Any, ...]:
    return tuple(getattr(record, each.name) for each in fields(record))


def _by_run(events: Any) -> dict[Name, list[str]]:
    found: dict[Name, list[str]] = {}
    for run, event in events:
        found.setdefault(run, []).append(event)
    return found


_COLUMNS = {"runs": Run, "steps": Step}


def differences(seen: State, wanted: State) -> list[str]:
    """One line for each row that is not as it must be."""
    found = []
    for table in wanted:
        for key in sorted({*seen[table], *wanted[table]}, key=str):
            is_so, must_be = seen[table].get(key, "missing"), wanted[table].get(key, "not there")
            if is_so != must_be:
                found.append(f"{table} {key}: is {_apart(table, is_so, must_be)}")
    return found


def _apart(table: str, is_so: Any, must_be: Any) -> str:
    if not isinstance(is_so, tuple) or not isinstance(must_be, tuple):
        return f"{is_so}, must be {must_be}"
    names = [each.name for each in fields(_COLUMNS[table])] if table in _COLUMNS else range(len(is_so))
    return ", ".join(
        f"{name} {a!r}, must be {b!r}" for name, a, b in zip(names, is_so, must_be, strict=True) if a != b
    )
