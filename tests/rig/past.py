"""Rows that lay around for a long time, written as the engine writes them, at an age of one's choice."""

from __future__ import annotations

import secrets

import pgqrs
from pgqrs.db.queries import Query
from pgqrs.db.tables import queues, workflows

DAY = 86400.0

_RUN = Query(
    "past_run",
    """
insert into pgqrs_workflow_runs (workflow_id, status, created_at, updated_at, started_at, completed_at, paused_at,
    attempt, max_attempts, output, error, parent_run_id, deleted_at, worker_id)
values (:workflow_id, cast(:status as text), {after -:age}, {after -:age}, {after -:age},
    case when cast(:status as text) in ('SUCCESS', 'ERROR', 'CANCELLED') then {after -:age} end,
    case when cast(:status as text) = 'PAUSED' then {after -:age} end, 1, 3,
    case when cast(:status as text) = 'SUCCESS' then cast('1' as {json}) end,
    case when cast(:status as text) = 'ERROR' then cast('[]' as {json}) end, :parent,
    case when cast(:deleted as integer) = 1 then {after -:deleted_age} end, :worker_id)
returning run_id""",
)
_STEPS = Query(
    "past_steps",
    """
insert into pgqrs_workflow_steps (run_id, step_id, ordinal, status, output, started_at, completed_at)
values (:run_id, 'one', 0, 'SUCCESS', '1', {after -:age}, {after -:age}),
    (:run_id, 'two', 1, 'SUCCESS', '1', {after -:age}, {after -:age})""",
)
_EVENT = Query(
    "past_event",
    "insert into pgqrs_workflow_events (run_id, event_type, created_at) values (:run_id, 'created', {after -:age})",
)
_SIGNAL = Query(
    "past_signal",
    "insert into pgqrs_signals (run_id, name, created_at) values (:run_id, 'go', {after -:age})",
)
_ATTRIBUTE = Query(
    "past_attribute", "insert into pgqrs_run_attributes (name, value, run_id) values ('customer', '42', :run_id)"
)
_MESSAGE = Query(
    "past_message",
    """
insert into pgqrs_messages
    (queue_id, payload, run_id, visible_after, enqueued_at, attempts, max_attempts, leased_by, lease_token)
values (:queue_id, '[]', :run_id, {after :visible}, {now}, 1, 3, :leased_by, 1)""",
)
_OUTBOX = Query(
    "past_outbox",
    """
insert into pgqrs_outbox_events (event_uuid, aggregate_id, workflow, event_type, payload, created_at, visible_after,
    attempts, last_error, published_at, dead_at)
values (:uuid, :run_id, 'flow', 'x', '[]', {after -:age}, {after -:age},
    1, case when cast(:state as text) <> 'published' then 'no' end,
    case when cast(:state as text) = 'published' then {after -:age} end,
    case when cast(:state as text) = 'dead' then {after -:age} end)
returning event_id""",
)
_ARCHIVED = Query(
    "past_archived",
    """
insert into pgqrs_archived_messages
    (message_id, queue_id, payload, priority, enqueued_at, attempts, lease_token, archived_at)
values (:message_id, :queue_id, '[]', 0, {after -:age}, 1, 1, {after -:age})""",
)
_WORKER = Query(
    "past_worker",
    """
insert into pgqrs_workers (hostname, port, status, created_at, heartbeat_at, stopped_at, info)
values ('w', 0, cast(:status as text), {after -:age}, {after -:age},
    case when cast(:status as text) = 'STOPPED' then {after -:age} end, '[]')
returning worker_id""",
)
_SCHEDULE = Query(
    "past_schedule",
    """
insert into pgqrs_schedules (schedule_id, name, workflow, kind, overlap, catch_up, catch_up_limit, created_at,
    updated_at, last_slot_at, slots_after)
values (:schedule_id, :name, 'flow', 'cron', 'skip', 'none', 1, {now}, {now}, {after -:last}, {after -:last})""",
)
_SLOT = Query(
    "past_slot",
    """
insert into pgqrs_schedule_slots (schedule_id, slot_at, state, run_id, created_at)
values (:schedule_id, {after -:age}, :state, :run_id, {after -:age})""",
)


class Past:
    """Ages are in days."""

    def __init__(self, store: pgqrs.Store) -> None:
        self._store = store
        self._db = store.database
        self._archived = 0

    async def run(
        self,
        status: str = "SUCCESS",
        *,
        age: float = 10,
        workflow: str = "flow",
        parent: int | None = None,
        deleted: float | None = None,
        worker_id: int | None = None,
    ) -> int:
        """A run with two steps, an event, a signal, an attribute, and its message if it has not ended."""
        await self._store.create_workflow(workflow)
        found = await workflows.get(self._db, workflow)
        rows = await self._db.fetch(
            _RUN,
            workflow_id=found.workflow_id,
            status=status,
            age=age * DAY,
            parent=parent,
            deleted=int(deleted is not None),
            deleted_age=(deleted or 0) * DAY,
            worker_id=worker_id,
        )
        run_id = int(rows[0][0])
        # A minute before its end.
        await self._db.execute(_STEPS, run_id=run_id, age=age * DAY + 60)
        for query in (_EVENT, _SIGNAL):
            await self._db.execute(query, run_id=run_id, age=age * DAY)
        await self._db.execute(_ATTRIBUTE, run_id=run_id)
        if status in ("PENDING", "RUNNING", "PAUSED"):
            await self._db.execute(_MESSAGE, queue_id=found.queue_id, run_id=run_id, visible=0.0, leased_by=None)
        return run_id

    async def event(self, run_id: int, *, age: float) -> None:
        await self._db.execute(_EVENT, run_id=run_id, age=age * DAY)

    async def outbox(self, run_id: int, state: str = "published", *, age: float = 10) -> int:
        uuid = secrets.token_hex(16)
        return int((await self._db.fetch(_OUTBOX, uuid=uuid, run_id=run_id, state=state, age=age * DAY))[0][0])

    async def archived(self, queue: str, *, age: float) -> None:
        await self._store.create_queue(queue)
        self._archived += 1
        queue_id = (await queues.get(self._db, queue)).queue_id
        await self._db.execute(_ARCHIVED, message_id=1_000_000 + self._archived, queue_id=queue_id, age=age * DAY)

    async def worker(self, status: str = "STOPPED", *, age: float) -> int:
        return int((await self._db.fetch(_WORKER, status=status, age=age * DAY))[0][0])

    async def leased(self, worker_id: int, *, for_seconds: float) -> None:
        await self._store.create_queue("tasks")
        queue_id = (await queues.get(self._db, "tasks")).queue_id
        await self._db.execute(_MESSAGE, queue_id=queue_id, run_id=None, visible=for_seconds, leased_by=worker_id)

    async def schedule(self, schedule_id: int, *, last: float) -> None:
        await self._db.execute(_SCHEDULE, schedule_id=schedule_id, name=f"s{schedule_id}", last=last * DAY)

    async def slot(self, schedule_id: int, *, age: float, state: str = "skipped", run_id: int | None = None) -> None:
        await self._db.execute(_SLOT, schedule_id=schedule_id, age=age * DAY, state=state, run_id=run_id)

    async def left(self, table: str, column: str) -> list[int]:
        rows = await self._db.fetch(Query("left", f"select {column} from pgqrs_{table} order by 1"))
        return [row[0] for row in rows]
