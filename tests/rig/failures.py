"""Runs that have failed, made step by step under a lease: with the steps, culprits and children that a test wants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pgqrs
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from pgqrs.db.runs import claims, settlement, triggers
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.records import Ended, RunWrite, StepRecord
from pgqrs.db.tables import workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.serialization import encode
from pgqrs.types import RunStatus, StepStatus

LEASE_SECONDS = 30.0


class Failures:
    """Executes runs of one workflow by hand: `step` records, `spawn` makes children, `fail` ends."""

    def __init__(self, store: Any, name: str = "flow") -> None:
        self.store, self.db, self.name = store, store.database, name

    async def begin(self) -> Failures:
        self.workflow = await workflows.create(self.db, self.name)
        self.worker_id = await workers.register(
            self.db, queue_id=self.workflow.queue_id, name="w", port=0, info={"pid": 1}
        )
        return self

    async def running(self) -> Claim:
        """A new run, leased."""
        new = triggers.NewRuns(self.workflow.workflow_id, self.workflow.queue_id, ["null"])
        [run_id] = await triggers.trigger(self.db, new)
        return await self.claim(run_id)

    async def claim(self, run_id: int) -> Claim:
        return await claims.claim_run(self.db, run_id, worker_id=self.worker_id, lease_seconds=LEASE_SECONDS)

    async def claim_due(self) -> list[Claim]:
        """Whatever a worker would take now."""
        source = Source(self.workflow.queue_id, LEASE_SECONDS)
        return await claims.claim(self.db, [source], worker_id=self.worker_id, batch=100)

    async def spawn(self, parent: Claim, count: int, *, step_id: str = "spawn") -> list[int]:
        new = triggers.NewRuns(
            self.workflow.workflow_id, self.workflow.queue_id, ["null"] * count, parent_run_id=parent.run_id
        )
        step = StepRecord(step_id, len(step_id), StepStatus.PENDING)
        found = await claims.spawn(self.db, parent.fence, step, new)
        assert found is not None
        return found

    async def end(
        self,
        claim: Claim,
        *steps: StepRecord,
        culprits: Sequence[str] | None = None,
        last_error: str = "ValueError: no",
        **details: Any,
    ) -> int:
        """In ERROR; without `culprits` as older versions recorded it."""
        error = {"type": "ValueError", "message": "no", **details}
        if culprits is not None:
            error["steps"] = list(culprits)
        ending = Ended(RunStatus.ERROR, error=encode(error), last_error=last_error, signature="ValueError")
        assert await settlement.commit(self.db, [RunWrite(claim.fence, steps, ending)]) == {claim.fence}
        return claim.run_id

    async def failed(self, *steps: StepRecord, culprits: Sequence[str] | None = None, **details: Any) -> int:
        return await self.end(await self.running(), *steps, culprits=culprits, **details)

    async def succeed(self, run_id: int) -> None:
        claim = await self.claim(run_id)
        ending = Ended(RunStatus.SUCCESS, output='"fine"')
        assert await settlement.commit(self.db, [RunWrite(claim.fence, (), ending)]) == {claim.fence}

    async def steps(self, run_id: int) -> dict[str, tuple[Any, ...]]:
        """Its recorded steps, in full."""
        rows = await self.db.fetch(
            Query("steps", f"select * from pgqrs_workflow_steps where run_id = {run_id} order by step_id")
        )
        return {row[1]: tuple(row) for row in rows}

    async def rows(self, run_id: int) -> dict[str, list[tuple[Any, ...]]]:
        """All that is on record of the run."""
        tables = ("workflow_runs", "messages", "workflow_steps", "workflow_events")
        return {
            table: [
                tuple(row)
                for row in await self.db.fetch(
                    Query(table, f"select * from pgqrs_{table} where run_id = {run_id} order by 1, 2")
                )
            ]
            for table in tables
        }

    async def status(self, run_id: int) -> str:
        [[status]] = await self.db.fetch(
            Query("status", f"select status from pgqrs_workflow_runs where run_id = {run_id}")
        )
        return str(status)


def step(step_id: str, status: StepStatus, *, output: Any = None, ordinal: int = 0, attempts: int = 1) -> StepRecord:
    """As the engine records it: an error for what failed, a value for what did not."""
    error = encode({"type": "ValueError", "message": step_id}) if status is StepStatus.ERROR else None
    text = None if output is None and status is not StepStatus.SUCCESS else encode(output)
    return StepRecord(step_id, ordinal, status, output=text, error=error, attempts=attempts)


def result(child: int, status: str = "ERROR", *, old: bool = False) -> StepRecord:
    """How a parent records that its child failed; `old`: as versions did that recorded it as a value."""
    if old:
        return step(f"result:{child}", StepStatus.SUCCESS, output=[status, "ValueError: no"])
    return step(f"result:{child}", StepStatus.ERROR)


async def restarted_data(store: Any, run_id: int) -> list[dict[str, Any]]:
    """What the history says of each restart, without the id of the call."""
    events = await pgqrs.admin(store).events(run_id)
    found = [dict(event.data) for event in events if event.event_type == "restarted"]
    return [{name: value for name, value in data.items() if name != "request"} for data in found]


class Retried:
    """A unit of work that is run again, as after a lost reply."""

    retried = True

    def __init__(self, unit: Any) -> None:
        self._unit = unit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._unit, name)


async def once_more(db: Any, verb: Any, *args: Any, **given: Any) -> Any:
    """The same call again, told that its first try may have been carried out."""
    return await db.perform(
        lambda unit: verb.__wrapped__(Retried(unit), *args, **given), kind=Kind.UNIT, idempotent=True
    )


async def failed_family(failures: Failures, children: int = 1) -> tuple[int, list[int]]:
    """A run that failed because of the first of its children, all of which failed."""
    parent = await failures.running()
    ids = await failures.spawn(parent, children)
    for child in ids:
        await failures.end(await failures.claim(child), step("work", StepStatus.ERROR), culprits=["work"])
    await failures.end(parent, *(result(child) for child in ids), culprits=[f"result:{ids[0]}"])
    return parent.run_id, ids
