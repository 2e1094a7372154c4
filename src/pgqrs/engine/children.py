"""Child runs: started once, and waited for without holding anything."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any

from pgqrs.db import claims
from pgqrs.db.driver import Driver
from pgqrs.db.tables import runs, workflows
from pgqrs.db.tables.runs import RunRow
from pgqrs.db.triggering import NewRuns
from pgqrs.db.writes import StepRecord
from pgqrs.engine.branches import Place, outside
from pgqrs.engine.execution import Execution, Wait
from pgqrs.engine.gathering import Gatherer
from pgqrs.engine.observing import triggered
from pgqrs.engine.registry import decorated
from pgqrs.errors import ExecutionFailed, RunCancelled, RunNotFound, WorkflowNotFound
from pgqrs.serialization import Encoded, decode, encode
from pgqrs.types import ENDED, RunStatus, StepStatus


class Child:
    """A run that this run has started."""

    def __init__(self, execution: Execution, run_id: int) -> None:
        self._execution = execution
        self.run_id = run_id

    def result(self) -> Awaitable[Any]:
        """What the child returned; ExecutionFailed or RunCancelled if it did not."""
        return _result_of(self._execution, self._execution.place(f"result:{self.run_id}"), self.run_id)


async def spawn(execution: Execution, place: Place, workflow: str, inputs: list[Any]) -> list[Child]:
    """One child for each input, and the step that remembers them, in one transaction."""
    recorded = execution.recorded(place)
    if recorded is not None and recorded.status is StepStatus.SUCCESS:
        return [Child(execution, run_id) for run_id in decode(recorded.output or "[]")]
    execution.begin()
    try:
        found = await outside(_found(execution.db, workflow))
        new = NewRuns(
            found.workflow_id,
            found.queue_id,
            [_text(value, max_bytes=execution.config.max_payload_bytes) for value in inputs],
            max_attempts=execution.config.max_attempts,
            parent_run_id=execution.claim.run_id,
        )
        pending = StepRecord(place.step_id, place.ordinal, StepStatus.PENDING)
        with triggered(workflow, len(new.inputs)) as origin:
            new = new.with_headers(origin.headers)
            run_ids = await outside(claims.spawn(execution.db, execution.claim.fence, pending, new))
            origin.made(run_ids or ())
    finally:
        execution.finish()
    if run_ids is None:
        execution.lost = True
        execution.check_alive()
    execution.db.hints.announce([found.queue_id])
    return [Child(execution, run_id) for run_id in run_ids or ()]


async def _found(db: Driver, name: str) -> workflows.Workflow:
    """Return the workflow; one that this process has decorated is created when it is missing."""
    try:
        return await workflows.get(db, name)
    except WorkflowNotFound:
        if name not in decorated:
            raise
        return await workflows.create(db, name)


def _text(value: Any, *, max_bytes: int) -> str:
    return value.text if isinstance(value, Encoded) else encode(value, max_bytes=max_bytes)


async def _result_of(execution: Execution, place: Place, run_id: int) -> Any:
    recorded = execution.recorded(place)
    if recorded is not None and recorded.status is StepStatus.SUCCESS:
        return _given_or_raised(run_id, *decode(recorded.output or "null"))
    execution.begin()
    try:
        ending = await _ending(execution, run_id)
        if ending is not None:
            text = encode(ending)
            await execution.record(StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=text))
            return _given_or_raised(run_id, *decode(text))
    finally:
        execution.finish()
    record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED)
    await execution.wait(Wait(f"run {run_id}", record, children=True))
    raise AssertionError("a wait does not return")


async def _ending(execution: Execution, run_id: int) -> list[Any] | None:
    """Asked together with whoever else asks at this moment: a parent of a thousand asks for all of them at once."""
    if execution.children is None:

        async def look(run_ids: Sequence[int]) -> list[RunRow | None]:
            found = {row.run_id: row for row in await runs.several(execution.db, run_ids)}
            return [found.get(each) for each in run_ids]

        execution.children = Gatherer(look, most=1_000)
    row = await execution.children.add(run_id)
    if row is None:
        raise RunNotFound(run_id)
    return _ending_of(row)


def _ending_of(row: RunRow) -> list[Any] | None:
    """How the child ended, and with what; None while it has not."""
    if row.status is RunStatus.SUCCESS:
        return [str(row.status), decode(row.output or "null")]
    if row.status in ENDED:
        return [str(row.status), row.last_error]
    if row.deleted_at is not None:
        # Nothing will come of it any more: for its parent it is as good as cancelled.
        return [str(RunStatus.CANCELLED), f"deleted: {row.delete_reason}"]
    return None


def _given_or_raised(run_id: int, status: str, details: Any) -> Any:
    match status:
        case RunStatus.SUCCESS:
            return details
        case RunStatus.CANCELLED:
            raise RunCancelled(run_id, details)
        case _:
            raise ExecutionFailed(run_id, details)
