"""Child runs: started once, and waited for without holding anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pgqrs.db import claims
from pgqrs.db.driver import Driver
from pgqrs.db.tables import runs, workflows
from pgqrs.db.tables.runs import RecordedStep, RunRow
from pgqrs.db.triggering import NewRuns
from pgqrs.db.writes import StepRecord
from pgqrs.engine.arguments import bound_inputs, storable_inputs
from pgqrs.engine.branches import Branch, Place, current_branch, outside
from pgqrs.engine.execution import Execution, Wait
from pgqrs.engine.gathering import Gatherer
from pgqrs.engine.observing import triggered
from pgqrs.engine.registry import decorated
from pgqrs.engine.steps import Raise, apart, failed_before, replayed_text
from pgqrs.engine.waiting import Answer, Waiter
from pgqrs.errors import ExecutionFailed, InvalidArguments, RunCancelled, RunNotFound, WorkflowNotFound
from pgqrs.serialization import decode, encode
from pgqrs.types import ENDED, RunStatus, StepStatus


class Child:
    """A run that this run has started."""

    def __init__(self, execution: Execution, run_id: int) -> None:
        self.execution = execution
        self.run_id = run_id

    def result(self) -> Waiter:
        """What the child returned; ExecutionFailed or RunCancelled if it did not."""
        return result_of(self.execution, self.execution.place(f"result:{self.run_id}"), self.run_id)


async def spawn(execution: Execution, place: Place, workflow: str, inputs: list[Any]) -> list[Child]:
    """One child for each input, and the step that remembers them, in one transaction."""
    recorded = execution.recorded(place)
    if recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR):
        if recorded.status is StepStatus.SUCCESS:
            # Before its turn: the children of a branch that is cancelled until then are open all the same.
            execution.open_children.update(decode(recorded.output or "[]"))
        return _known(execution, decode(await replayed_text(execution, place) or "[]"))
    values = storable_inputs(inputs, max_bytes=execution.config.max_payload_bytes)
    await execution.leave_behind()
    execution.begin()
    attempt = _spawn(execution, place, workflow, values, current_branch.get())
    answer = await apart(execution, attempt, place.step_id)
    if isinstance(answer, Raise):
        raise execution.raised(answer.error)
    return _known(execution, answer)


async def _spawn(
    execution: Execution, place: Place, workflow: str, values: list[Any], branch: Branch | None
) -> list[int] | Raise:
    """The ids of the children, which are recorded now; or the error that is."""
    try:
        found = await execution.ask(lambda _again: _found(execution.db, workflow), answers=(WorkflowNotFound,))
        texts = bound_inputs(found, values)
    except (WorkflowNotFound, InvalidArguments) as error:
        # What a workflow takes may change: the handler must get the same answer in every pass.
        refused = error
    else:
        return await _spawned(execution, place, found, workflow, texts)
    record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR)
    return Raise(await execution.fail(record, refused, branch=branch))


async def _found(db: Driver, name: str) -> workflows.Workflow:
    """Return the workflow; one that this process has decorated is created when it is missing."""
    try:
        return await workflows.get(db, name)
    except WorkflowNotFound:
        if name not in decorated:
            raise
        return await workflows.create(db, name)


def _known(execution: Execution, run_ids: list[int]) -> list[Child]:
    execution.open_children.update(run_ids)
    return [Child(execution, run_id) for run_id in run_ids]


async def _spawned(
    execution: Execution, place: Place, found: workflows.Workflow, workflow: str, texts: list[str]
) -> list[int]:
    new = NewRuns(
        found.workflow_id,
        found.queue_id,
        texts,
        max_attempts=execution.config.max_attempts,
        parent_run_id=execution.claim.run_id,
    )
    number = execution.number(place.step_id)
    pending = StepRecord(place.step_id, place.ordinal, StepStatus.PENDING, sequence=number)
    with triggered(workflow, len(new.inputs)) as origin:
        new = new.with_headers(origin.headers)
        try:
            run_ids: list[int] | None = await execution.ask(
                lambda again: claims.spawn(execution.db, execution.claim.fence, pending, new, again=again)
            )
        finally:
            execution.is_numbered(place.step_id)
        origin.made(run_ids or ())
    if run_ids is None:
        raise execution.lose()
    execution.db.hints.announce([found.queue_id])
    execution.open_children.update(run_ids)
    return run_ids


def result_of(execution: Execution, place: Place, run_id: int) -> Waiter:
    """Waits for the end of a child."""

    async def ended_at(_sent: Mapping[str, datetime]) -> datetime | None:
        row = await _row(execution, run_id)
        return None if row is None or row.status not in ENDED else row.completed_at

    async def replayed_answer(recorded: RecordedStep) -> Answer:
        execution.open_children.discard(run_id)
        if recorded.status is StepStatus.ERROR:
            return Answer(error=failed_before(execution, place))
        status, details = decode(recorded.output or "null")
        # Before failures were recorded as errors, they were values.
        return Answer(details) if status == RunStatus.SUCCESS else Answer(error=_failure(run_id, status, details))

    async def ask(branch: Branch | None) -> Answer | Wait:
        answer = await _asked(execution, place, run_id, branch)
        if not isinstance(answer, Wait):
            execution.open_children.discard(run_id)
        return answer

    return Waiter(execution, place, replayed_answer, ask, ended_at=ended_at)


async def _asked(execution: Execution, place: Place, run_id: int, branch: Branch | None) -> Answer | Wait:
    row = await _row(execution, run_id)
    if row is not None and row.status not in ENDED and row.deleted_at is None:
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED)
        return Wait(f"run {run_id}", record, child=run_id)
    if row is not None and row.status is RunStatus.SUCCESS:
        text = encode([str(row.status), decode(row.output or "null")])
        await execution.record(StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=text))
        return Answer(decode(text)[1])
    record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR)
    failed = RunNotFound(run_id) if row is None else _failure(run_id, *_ending_of(row))
    return Answer(error=await execution.fail(record, failed, branch=branch))


async def _row(execution: Execution, run_id: int) -> RunRow | None:
    """The child's row, asked for together with the others of this moment; None when it was deleted for good."""
    if execution.children is None:

        async def look(run_ids: Sequence[int]) -> list[RunRow | None]:
            rows = await execution.ask(lambda _again: outside(runs.several(execution.db, run_ids)))
            found = {row.run_id: row for row in rows}
            return [found.get(each) for each in run_ids]

        execution.children = Gatherer(look, most=1_000)
    return await execution.children.add(run_id)


def _ending_of(row: RunRow) -> tuple[str, Any]:
    if row.status in ENDED:
        return str(row.status), row.last_error
    # Nothing will come of it any more: for its parent it is as good as cancelled.
    return str(RunStatus.CANCELLED), f"deleted: {row.delete_reason}"


def _failure(run_id: int, status: str, details: Any) -> Exception:
    return (RunCancelled if status == RunStatus.CANCELLED else ExecutionFailed)(run_id, details)
