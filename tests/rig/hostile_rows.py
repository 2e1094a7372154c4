"""Rows written straight into the tables, past every check: what a client with SQL, or a broken tool, can leave there.

Each is a row as the library writes it, in which some columns hold what it never would: times that Python has no
datetime for, numbers at both ends, texts that are no JSON, bytes that are no text. What the database itself refuses
is counted and left out.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pgqrs.api.store import Store
from pgqrs.db.database import Database, Kind
from pgqrs.db.queries import Query

WORKFLOW = "flow"
QUEUE = "tasks"

_NESTED = '{"a":' * 400 + "1" + "}" * 400
_BIG = 100_000

TEXTS = (
    "", " ", "x" * _BIG, "\x1b[31mred\x1b[0m\x07", "a\nforged: line\r", "\u202egnp.exe", "<script>pwned()</script>", "%00", "' or 1=1 --",
    "\U0001f422" * 300, "null", "0", "wait_for:go", "../../etc/passwd", "🐢\ufeff", "*", "status:error", "a:b:c", "%s %d {0}", "$(touch x)",
)  # fmt: skip
# What only SQLite and Turso store in a column of text.
BYTES = (b"\xff\xfe", b"a\x00b", b"\xed\xa0\x80", b"\x80" * 300)
JSON = (
    "null", "[]", "{}", "5", "-0.0", '"x"', "true", "1e308", "[[[[[]]]]]", _NESTED, '{"$datetime": 5}', '{"$datetime": "x"}', '{"$int": "x"}',
    '{"$dict": [[{}, 1]]}', '{"$tuple": 7}', '{"$args": "names"}', '{"$args": "nonsense", "n": 1}', '{"$args": 5}', '{"$error": {}}',
    '{"type": 5, "message": {"a": []}, "traceback": 7, "steps": "x"}', '{"type": "ValueError", "message": "m", "steps": [1, null, {}]}',
    '{"handlers": 5, "prefixes": "x", "pid": "no", "process": 7, "slots": {}}', '{"handlers": [1, null, {}], "prefixes": [2]}',
    '{"traceparent": 5}', '{"traceparent": "x", "tracestate": []}', '{"done": "x", "total": [], "note": {}}', '{"run_id": "x", "call": 5}',
    '["SUCCESS"]', '["NONSENSE", 1]', '[1, 2, "x", null]', '{"request": []}', '{"error": 5, "delay": "x", "step": [], "attempt": "y"}',
    '{"attributes": 5, "priority": "x", "max_attempts": -3}', '"\\u202e"', '{"a": 1, "a": 2}', json.dumps("x" * _BIG), json.dumps(["y"] * 5_000),
    json.dumps({f"k{n}": n for n in range(2_000)}), '{"n": 1e400}', '"\\u0000"', '"\\ud800"', '{"$bytes": "%%%"}', '{"$decimal": "x"}',
)  # fmt: skip
# What PostgreSQL's `json` refuses.
BROKEN_JSON = ("", "{", "nonsense", '{"a":}', "NaN", "[1,]", '{"a": 1}}', "\x01", "'x'")
POSTGRES_TIMES = (
    "infinity", "-infinity", "4713-01-01 00:00:00 BC", "0044-03-15 12:00:00 BC", "294276-12-31 23:59:59", "0001-01-01 00:00:00 UTC",
    "9999-12-31 23:59:59.999999 UTC", "10000-01-01 00:00:00 UTC", "1969-12-31 23:59:59 UTC", "1900-01-01 UTC", "2971-01-01 UTC",
)  # fmt: skip
SQLITE_TIMES = (
    -(2**63), 2**63 - 1, -62_135_596_800_000_001, 253_402_300_800_000_000, 10**18, -1, 0, 1, "text", b"\x00", 1.5, 9e999, -9e999, "", "2030-01-01",
)  # fmt: skip
SMALL = (-(2**31), 2**31 - 1, -5, -1, 0, 1, 2, 1000)
LARGE = (-(2**63), 2**63 - 1, 2**53 + 1, *SMALL)
WRONG = ("text", b"blob", 1.5, 9e999, -9e999, "", "12abc")
FLOATS = ("NaN", "Infinity", "-Infinity", -1.0, 0.0, 1e300, 1e-300, 3.2e9, 0.001)
RUN_STATUSES = ("PENDING", "RUNNING", "PAUSED", "SUCCESS", "ERROR", "CANCELLED")
STEP_STATUSES = ("PENDING", "RUNNING", "PAUSED", "SUCCESS", "ERROR")
EVENTS = ("created", "failed", "retried", "step_failed", "restarted", "log", "signalled", "paused")
STEP_IDS = ("one", "two", "wait_for:go", "sleep", "spawn:other", "result:other", "one#2", "child", "log:1", "map:x:0")

# Kinds: id and int (whole numbers), seconds (a float), time, text, json; `?` may be null. A tuple is an enum with a CHECK.
_COLUMNS: dict[str, dict[str, Any]] = {
    "pgqrs_workflow_runs": {
        "workflow_id": "ref", "status": RUN_STATUSES, "input": "json?", "output": "json?", "error": "json?", "last_error": "text?",
        "created_at": "time", "started_at": "time?", "paused_at": "time?", "completed_at": "time?", "updated_at": "time",
        "worker_id": "id?", "attempt": "int", "max_attempts": "int", "priority": "int", "idempotency_key": "text?", "waiting_for": "text?",
        "headers": "json?", "attributes": "json?", "deleted_at": "time?", "delete_reason": "text?", "error_signature": "text?",
        "dead_letter_of": "id?",
    },
    "pgqrs_messages": {
        "queue_id": "ref", "payload": "json", "run_id": "ref", "priority": "int", "visible_after": "time", "enqueued_at": "time",
        "attempts": "int", "max_attempts": "int", "lease_token": "id", "leased_by": "id?",
    },
    "pgqrs_archived_messages": {
        "message_id": "ref", "queue_id": "ref", "payload": "json", "priority": "int", "enqueued_at": "time", "attempts": "int",
        "lease_token": "id", "archived_by": "id?", "archived_at": "time",
    },
    "pgqrs_workflow_steps": {
        "run_id": "ref", "step_id": "text", "ordinal": "int", "status": STEP_STATUSES, "input": "json?", "output": "json?", "error": "json?",
        "attempts": "int", "started_at": "time?", "completed_at": "time?",
    },
    "pgqrs_workflow_events": {"run_id": "ref", "event_type": "text", "data": "json?", "actor": "text?", "created_at": "time"},
    "pgqrs_signals": {
        "run_id": "ref", "name": "text", "payload": "json?", "created_at": "time", "consumed_at": "time?", "actor": "text?",
    },
    "pgqrs_outbox_events": {
        "event_uuid": "text", "aggregate_id": "ref", "workflow": "text", "event_type": "text", "payload": "json", "created_at": "time",
        "visible_after": "time", "attempts": "int", "lease_token": "id", "last_error": "text?", "published_at": "time?", "dead_at": "time?",
    },
    "pgqrs_workers": {
        "queue_id": "ref", "hostname": "text", "port": "int", "status": ("READY", "STOPPED"), "created_at": "time", "heartbeat_at": "time",
        "stopped_at": "time?", "info": "json",
    },
    "pgqrs_schedules": {
        "name": "text", "workflow": "text", "kind": ("cron", "interval", "once"), "cron": "text?", "interval_seconds": "seconds?",
        "once_at": "time?", "timezone": "text", "input": "json?", "options": "json?", "overlap": ("allow", "skip", "queue", "cancel"),
        "catch_up": ("none", "last", "all"), "catch_up_limit": "int", "jitter_seconds": "seconds", "created_at": "time",
        "updated_at": "time", "paused_at": "time?", "slots_after": "time", "last_slot_at": "time?", "last_run_id": "id?",
        "next_slot_at": "time?", "last_error": "text?",
    },
    "pgqrs_schedule_slots": {
        "schedule_id": "ref", "slot_at": "time", "state": ("fired", "queued", "skipped", "missed"), "run_id": "id?", "created_at": "time",
    },
    "pgqrs_retention": {
        "what": ("workers", "schedule_slots", "deleted_runs"), "workflow": "text", "status": "text", "keep_seconds": "seconds",
        "visible_after": "time",
    },
    "pgqrs_run_attributes": {"name": "text", "value": "text", "run_id": "ref"},
    "pgqrs_queues": {"name": "text", "created_at": "time", "paused_at": "time?"},
    "pgqrs_workflows": {
        "name": "text", "queue_id": "ref", "created_at": "time", "input_schema": "json?", "paused_at": "time?", "dead_letter": "text?",
    },
}  # fmt: skip
_TYPES = {
    "ref": "bigint", "id": "bigint", "int": "integer", "seconds": "float8", "time": "timestamptz", "text": "text", "json": "json",
}  # fmt: skip
# How often each is written; a run comes with its message and a few steps, events and signals.
_SHARES = {
    "pgqrs_workflow_runs": 40, "pgqrs_messages": 12, "pgqrs_outbox_events": 10, "pgqrs_workers": 6, "pgqrs_schedules": 6,
    "pgqrs_archived_messages": 4, "pgqrs_schedule_slots": 3, "pgqrs_retention": 2, "pgqrs_workflow_events": 4, "pgqrs_workflow_steps": 4,
    "pgqrs_signals": 3, "pgqrs_run_attributes": 2, "pgqrs_workflows": 2, "pgqrs_queues": 2,
}  # fmt: skip


@dataclass
class HostileRows:
    """Writes rows into a store's tables, the same for the same seed."""

    store: Store
    seed: int
    written: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    run_ids: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._is_postgres = self.store.database.dialect.is_postgres
        self._unit: Any = None
        self._serial = 0
        self._schedule_ids: list[int] = []

    async def write(self, count: int, *, workflow_id: int, flow_queue_id: int, queue_id: int) -> None:
        """So many rows, a hundred in a transaction; `queue_id` is that of a plain queue."""
        self._workflow_id, self._flow_queue_id, self._queue_id = workflow_id, flow_queue_id, queue_id
        while (left := count - sum(self.written.values())) > 0:

            async def some(unit: Database, left: int = left) -> None:
                self._unit = unit
                until = sum(self.written.values()) + min(left, 100)
                while sum(self.written.values()) < until:
                    await self._one()

            await self.store.database.perform(some, kind=Kind.UNIT, idempotent=False)

    async def _one(self) -> None:
        table = self._random.choices(list(_SHARES), weights=list(_SHARES.values()))[0]
        if table == "pgqrs_workflow_runs":
            await self._run()
        elif table == "pgqrs_schedules":
            if (schedule_id := await self._insert(table, self._usual(table), returning="schedule_id")) is not None:
                self._schedule_ids.append(schedule_id)
        elif table == "pgqrs_workflows":
            queue_id = await self._insert("pgqrs_queues", self._usual("pgqrs_queues"), returning="queue_id")
            if queue_id is not None:
                await self._insert(table, self._usual(table), queue=queue_id)
        else:
            await self._insert(table, self._usual(table))

    async def _run(self) -> None:
        chance = self._random
        run_id = await self._insert("pgqrs_workflow_runs", self._usual("pgqrs_workflow_runs"), returning="run_id")
        if run_id is None:
            return
        self.run_ids.append(run_id)
        if chance.random() < 0.8:
            await self._insert(
                "pgqrs_messages", {**self._usual("pgqrs_messages"), "run_id": run_id}, queue=self._flow_queue_id
            )
        for table, most in (("pgqrs_workflow_steps", 3), ("pgqrs_workflow_events", 2), ("pgqrs_signals", 1)):
            for _ in range(chance.randint(0, most)):
                await self._insert(table, {**self._usual(table), "run_id": run_id})
        if chance.random() < 0.15:
            parent = chance.choice([run_id, *self.run_ids[-20:]])
            await self._run_sql(
                "update {t} set parent_run_id = {v} where run_id = {v}",
                "pgqrs_workflow_runs",
                [parent, run_id],
                ["ref"] * 2,
            )
            # And the other way round: a circle.
            if chance.random() < 0.5:
                await self._run_sql(
                    "update {t} set parent_run_id = {v} where run_id = {v}",
                    "pgqrs_workflow_runs",
                    [run_id, parent],
                    ["ref"] * 2,
                )

    def _usual(self, table: str) -> dict[str, Any]:
        """The row as the library writes it."""
        chance = self._random
        self._serial += 1
        row: dict[str, Any] = {}
        for column, kind in _COLUMNS[table].items():
            if isinstance(kind, tuple):
                row[column] = chance.choice(kind)
            elif kind.endswith("?") and chance.random() < 0.6:
                row[column] = None
            else:
                row[column] = self._healthy(kind.rstrip("?"))
        known = {
            "workflow_id": self._workflow_id, "run_id": chance.choice(self.run_ids) if self.run_ids else 1, "queue_id": self._queue_id,
            "name": f"{table}-{self._serial}", "workflow": WORKFLOW, "timezone": "UTC", "max_attempts": 3, "attempts": 0, "attempt": 0,
            "event_uuid": f"u{self._serial}", "step_id": chance.choice(STEP_IDS), "event_type": chance.choice(EVENTS), "lease_token": 0,
            "leased_by": None, "message_id": 10**9 + self._serial, "schedule_id": chance.choice(self._schedule_ids or [10**6]), "catch_up_limit": 5,
            "aggregate_id": chance.choice(self.run_ids) if self.run_ids else 1, "idempotency_key": f"k{self._serial}", "status": row.get("status"),
        }  # fmt: skip
        row.update({column: value for column, value in known.items() if column in row})
        if table == "pgqrs_workflow_runs" and chance.random() < 0.6:
            row["status"] = "PENDING"
        if table == "pgqrs_schedules":
            row.update(_cadence(row["kind"]))
        if table == "pgqrs_retention":
            row.update(status="", workflow=f"w{self._serial}", keep_seconds=1e9)
        return self._spoiled(table, row)

    def _spoiled(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        chance = self._random
        kinds = {
            column: kind for column, kind in _COLUMNS[table].items() if not isinstance(kind, tuple) and kind != "ref"
        }
        for column in chance.sample(list(kinds), k=min(len(kinds), chance.choice((1, 1, 1, 2, 2, 3, 6)))):
            row[column] = self._hostile(kinds[column])
        return row

    def _healthy(self, kind: str) -> Any:
        chance = self._random
        match kind:
            case "time":
                ago = chance.randint(0, 3600)
                return (
                    f"2029-12-31 23:{59 - ago // 60 % 60:02}:{ago % 60:02} UTC"
                    if self._is_postgres
                    else 1_893_455_000_000_000 - ago * 10**6
                )
            case "json":
                return json.dumps({"n": chance.randint(0, 9)})
            case "text":
                return f"text-{self._serial}"
            case "seconds":
                return 5.0
        return chance.randint(0, 3)

    def _hostile(self, kind: str) -> Any:
        chance = self._random
        if kind.endswith("?") and chance.random() < 0.1:
            return None
        anything = not self._is_postgres and chance.random() < 0.3
        match kind.rstrip("?"):
            case "time":
                return chance.choice(POSTGRES_TIMES if self._is_postgres else SQLITE_TIMES)
            case "int":
                return chance.choice(WRONG if anything else SMALL if self._is_postgres else LARGE)
            case "id":
                return chance.choice(WRONG if anything else LARGE)
            case "seconds":
                return chance.choice(WRONG if anything else FLOATS)
            case "json":
                return chance.choice((*BYTES, *BROKEN_JSON) if anything else JSON)
        return chance.choice(BYTES if anything else TEXTS)

    async def _insert(self, table: str, row: dict[str, Any], *, returning: str = "", queue: int | None = None) -> Any:
        if queue is not None:
            row["queue_id"] = queue
        kinds = [kind if isinstance(kind, str) else "text" for kind in (_COLUMNS[table][column] for column in row)]
        sql = f"insert into {{t}} ({', '.join(row)}) values ({', '.join('{v}' for _ in row)})"
        found = await self._run_sql(
            f"{sql} returning {returning}" if returning else sql, table, list(row.values()), kinds
        )
        if found is None:
            self.refused += 1
            return None
        self.written[table] += 1
        return found[0][0] if returning else True

    async def _run_sql(self, template: str, table: str, values: list[Any], kinds: list[str]) -> list[Any] | None:
        """None when the database refuses it."""
        kinds = [kind.rstrip("?") for kind in kinds]
        dialect = self.store.database.dialect
        if self._is_postgres:
            marks = iter([f"${n}::text::{_TYPES[kind]}" for n, kind in enumerate(kinds, 1)])
            values = [None if value is None else str(value).replace("\0", "") for value in values]
        else:
            # Bytes in a text column, now and then, as text that is no UTF-8.
            marks = iter(
                [
                    "cast(? as text)" if isinstance(v, bytes) and k in ("text", "json") and self._serial % 2 else "?"
                    for v, k in zip(values, kinds, strict=True)
                ]
            )
        sql = template.replace("{t}", dialect.table(table))
        while "{v}" in sql:
            sql = sql.replace("{v}", next(marks), 1)
        session = self._unit
        await session.run_as_given("savepoint hostile", ())
        try:
            found: list[Any] = await session.run_as_given(sql, values)
        except Exception:  # noqa: BLE001 - whatever it says, it is not written
            session.trouble = None
            await session.run_as_given("rollback to savepoint hostile", ())
            return None
        await session.run_as_given("release savepoint hostile", ())
        return found


def _cadence(kind: str) -> dict[str, Any]:
    return {
        "cron": "*/5 * * * *" if kind == "cron" else None,
        "interval_seconds": 60.0 if kind == "interval" else None,
        "once_at": None,
    }


async def furnish(store: Store) -> dict[str, int]:
    """The workflow and the queue that hostile rows are about; what `write` wants to know of them."""
    await store.create_workflow(WORKFLOW)
    await store.create_queue(QUEUE)
    rows = await store.database.fetch(
        Query("ids", "select w.workflow_id, w.queue_id from pgqrs_workflows as w where w.name = :name"), name=WORKFLOW
    )
    queue = await store.database.fetch(
        Query("queue", "select queue_id from pgqrs_queues where name = :name"), name=QUEUE
    )
    return {"workflow_id": rows[0][0], "flow_queue_id": rows[0][1], "queue_id": queue[0][0]}
