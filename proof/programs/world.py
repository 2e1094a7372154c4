"""One database and the workers on it: executes a program under a fault, and brings back all that came of it.

Everything happens in one process and on a hand-set clock. A worker that is killed is not cancelled: its calls simply
never return, and nothing that its code still does is heard. Its tasks are cleared away when the execution is over.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pgqrs
from pgqrs import faults
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from pgqrs.db.tables import messages
from pgqrs.db.views import inspection
from pgqrs.engine.replay import recorder as engine_recorder
from pgqrs.engine.runs import lost_runs
from proof.programs.execution import LEASE_SECONDS, Execution
from proof.programs.faults import Fault, own_time, strike, track_tasks
from proof.programs.grammar import Program
from proof.programs.handlers import HANDLERS, TABLE, Case
from proof.programs.memory import CHILD_ATTEMPTS
from proof.programs.results import Result, Row

VICTIM = "victim"
_EMPTIED = (
    *("pgqrs_messages", "pgqrs_workflow_steps", "pgqrs_workflow_events", "pgqrs_signals", "pgqrs_outbox_events"),
    "pgqrs_run_attributes",
)
_RUNS = Query(
    "proof_runs",
    "select r.run_id, r.parent_run_id, r.status, {text r.input}, {text r.output}, r.last_error, r.waiting_for, "
    "r.attempt, {text r.headers}, w.name from pgqrs_workflow_runs as r "
    "join pgqrs_workflows as w on w.workflow_id = r.workflow_id order by r.run_id",
)
_STEPS = Query(
    "proof_steps", "select s.run_id, s.step_id, s.status, s.attempts from pgqrs_workflow_steps as s order by 1, 2"
)


class World:
    def __init__(self, store: pgqrs.Store, clock: pgqrs.ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.backend = store.config.backend
        self._rescuer: pgqrs.Worker | None = None
        self._queues: list[int] = []

    @classmethod
    @asynccontextmanager
    async def opened(cls, config: pgqrs.Config) -> AsyncIterator[World]:
        # Of what is expected to go wrong nothing need be told.
        logging.getLogger("pgqrs").setLevel(logging.CRITICAL)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        lost_runs._EVERY_SECONDS = 0.0
        # The database comes back when so many calls have failed, not after a while: waiting in between shows nothing.
        engine_recorder._AGAIN_SECONDS = 0.001
        clock = pgqrs.ManualClock()
        config = config.with_changes(lease_seconds=LEASE_SECONDS, max_attempts=CHILD_ATTEMPTS, maintenance=False)
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()
        async with pgqrs.connect_with(config, install=True, clock=clock) as store:
            world = cls(store, clock)
            with own_time(clock), faults.injected(strike):
                await world._prepare()
                track_tasks(loop)
                try:
                    yield world
                finally:
                    if world._rescuer is not None:
                        await world._rescuer.close()
        loop.set_task_factory(before)

    async def _prepare(self) -> None:
        schema = self._schema
        await self._run(f"create table if not exists {schema}{TABLE} (row_key text not null)")
        self._rescuer = await self._hire("rescuer")
        for name in HANDLERS:
            self._queues.append((await self.store.workflow(name)).queue_id)

    @property
    def _schema(self) -> str:
        return f'"{self.store.config.schema}".' if self.backend == "postgres" else ""

    async def _run(self, *statements: str) -> list[Any]:
        async def work(unit: Any) -> list[Any]:
            rows: list[Any] = []
            for each in statements:
                rows = await unit.run_as_given(each, ())
            return rows

        return await self.store.database.perform(work, kind=Kind.UNIT, idempotent=True)

    async def _fetch(self, query: Query) -> list[Any]:
        return await self.store.database.perform(lambda unit: unit.fetch(query), kind=Kind.READ, idempotent=True)

    async def empty(self) -> None:
        statements = [f"delete from {self._schema}{table}" for table in (*_EMPTIED, TABLE)]
        # Children first: Turso looks at each row when it goes.
        children = f"delete from {self._schema}pgqrs_workflow_runs where parent_run_id is not null"
        # Every execution has a victim; thousands of them are read again by each that follows.
        victims = f"delete from {self._schema}pgqrs_workers where hostname = '{VICTIM}'"
        await self._run(*statements, children, f"delete from {self._schema}pgqrs_workflow_runs", victims)

    async def _hire(self, name: str) -> pgqrs.Worker:
        return await pgqrs.worker(name, concurrency=4).workflows(HANDLERS).create(self.store)

    async def hire_victim(self) -> pgqrs.Worker:
        return await self._hire(VICTIM)

    # -- one execution -----------------------------------------------------------------------------------

    async def execute(self, program: Program, fault: Fault, *, is_racy: bool = False) -> Result:
        await self.empty()
        schema = self.store.config.schema if self.backend == "postgres" else ""
        case = Case(program, schema=schema, is_racy=is_racy)
        result = Result(case, fault)
        execution = Execution(self, case, result)
        try:
            await execution.run()
            await self._survey(result)
        finally:
            await execution.clear_away()
            case.close()
        return result

    async def rows(self) -> dict[str, Row]:
        found = {}
        for row in await self._fetch(_RUNS):
            headers = json.loads(row[8]) if row[8] else {}
            label = _label_of(row[3])
            found[label] = Row(*row[:3], label, *row[4:6], row[6] or "", row[7], headers.get("done") or 0, row[9])
        return found

    async def picture(self) -> list[Any]:
        """What a worker that has lost its lease may not change."""
        return [
            [tuple(row[:3]) + tuple(row[4:6]) for row in await self._fetch(_RUNS)],
            [tuple(row) for row in await self._fetch(_STEPS)],
        ]

    async def paused_steps(self) -> list[tuple[int, str]]:
        return [(row[0], row[1]) for row in await self._fetch(_STEPS) if row[2] == "PAUSED"]

    async def next_due(self) -> float | None:
        return await messages.next_due(self.store.database, self._queues)

    async def _survey(self, result: Result) -> None:
        result.rows = await self.rows()
        result.started = Counter(_label_of(row[3]) for row in await self._fetch(_RUNS))
        result.steps = await self._fetch(_STEPS)
        for event in await inspection.emitted(self.store.database):
            result.emitted[str(json.loads(event.payload))] += 1
        table = f"{self._schema}{TABLE}"
        prefix = result.case.given("")
        for row in await self._run(f"select row_key from {table}"):
            result.written[str(row[0]).removeprefix(prefix)] += 1
        violations = await pgqrs.admin(self.store).check_invariants()
        result.wrong += [f"invariant: {each}" for each in violations]


def _label_of(text: str | None) -> str:
    given = json.loads(text or '""')
    if isinstance(given, dict):
        given = given["given"]
    return str(given).partition("|")[2]
