"""Child runs: started once, and waited for without holding anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pgqrs.db.driver import Driver
from pgqrs.db.runs import claims
from pgqrs.db.runs.records import StepRecord
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import runs, workflows
from pgqrs.db.tables.runs import RecordedStep, RunRow
from pgqrs.engine.batching import Batcher
from pgqrs.engine.ctx.recorded_results import failed_before, replayed_text
from pgqrs.engine.ctx.steps import Raise, apart
from pgqrs.engine.ctx.wait import WaitAnswer, Waiter
from pgqrs.engine.definitions.arguments import bound_inputs, is_stored_as, storable_inputs
from pgqrs.engine.definitions.handlers import decorated
from pgqrs.engine.instrumentation import triggered
from pgqrs.engine.replay.branches import Branch, BranchPlace, current_branch
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.suspension import Wait
from pgqrs.engine.replay.task_factory import outside
from pgqrs.errors import ExecutionFailed, InvalidArguments, RunCancelled, RunNotFound, WorkflowNotFound
from pgqrs.serialization import decode, encode
from pgqrs.text import step_ids
from pgqrs.text.names import checked_name
from pgqrs.types import ENDED, RunStatus, StepStatus


class ChildRun:
    """A run that this run has started."""

    def __init__(self, run_pass: RunPass, run_id: int) -> None:
        self.run_pass = run_pass
        self.run_id = run_id

    def result(self) -> Waiter:
        """What the child returned; ExecutionFailed or RunCancelled if it did not."""
        return result_of(self.run_pass, self.run_pass.place(step_ids.result(self.run_id)), self.run_id)


def workflow_name(workflow: Any) -> str:
    """Of a decorated workflow, of a handle to one, or the name itself."""
    return checked_name("workflow", workflow if isinstance(workflow, str) else getattr(workflow, "name", workflow))


async def spawn(run_pass: RunPass, place: BranchPlace, workflow: str, inputs: list[Any]) -> list[ChildRun]:
    """One child for each input, and the step that remembers them, in one transaction."""
    recorded = run_pass.recorded(place)
    is_known = recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR)
    if recorded is not None and is_known and await _is_ours(run_pass, recorded, workflow, inputs):
        if recorded.status is StepStatus.SUCCESS:
            # Before its turn: the children of a branch that is cancelled until then are open all the same.
            run_pass.open_children.update(decode(recorded.output or "[]"))
        return _known(run_pass, decode(await replayed_text(run_pass, place) or "[]"))
    values = storable_inputs(inputs, max_bytes=run_pass.config.max_payload_bytes)
    await run_pass.leave_behind()
    run_pass.in_flight.begin()
    attempt = _spawn(run_pass, place, workflow, values, current_branch.get())
    answer = await apart(run_pass, attempt, place.step_id)
    if isinstance(answer, Raise):
        raise run_pass.failures.raised(answer.error)
    return _known(run_pass, answer)


async def _spawn(
    run_pass: RunPass, place: BranchPlace, workflow: str, values: list[Any], branch: Branch | None
) -> list[int] | Raise:
    """The ids of the children, which are recorded now; or the error that is."""
    try:
        found = await run_pass.recorder.ask(lambda _again: _found(run_pass.db, workflow), answers=(WorkflowNotFound,))
        texts = bound_inputs(found, values)
    except (WorkflowNotFound, InvalidArguments) as error:
        # What a workflow takes may change: the handler must get the same answer in every pass.
        refused = error
    else:
        return await _spawned(run_pass, place, found, workflow, texts)
    record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR)
    return Raise(await run_pass.recorder.fail(record, refused, branch=branch))


async def _is_ours(run_pass: RunPass, recorded: RecordedStep, workflow: str, inputs: list[Any]) -> bool:
    """False when an attempt that went another way has started other children here; its record makes room then.

    A handler cannot name what it spawns: the first child of a refund has the id that the first of a delivery has.
    """
    if recorded.status is not StepStatus.SUCCESS or not run_pass.places.has_lost(recorded.step_id):
        return True
    with run_pass.order.held(recorded.step_id):
        if await _has_started(run_pass, decode(recorded.output or "[]"), workflow, inputs):
            return True
        fence, step_id = run_pass.claim.fence, recorded.step_id
        await run_pass.recorder.ask_under_lease(lambda: outside(claims.make_room(run_pass.db, fence, step_id)))
        del run_pass.claim.steps[step_id]
    return False


async def _has_started(run_pass: RunPass, run_ids: list[int], workflow: str, inputs: list[Any]) -> bool:
    """True when these children may be of that workflow, with these inputs."""
    rows = await run_pass.recorder.ask(lambda _again: outside(runs.several(run_pass.db, run_ids)))
    given = {row.run_id: row for row in rows}
    if len(given) < len(run_ids):
        # One was deleted for good, and may have been the same.
        return True
    children = [given[run_id] for run_id in run_ids]
    # `ctx.map(limit=...)` asks for as many as there is room for, which may be more than began together.
    if len(children) > len(inputs) or any(row.workflow != workflow for row in children):
        return False
    values = storable_inputs(inputs[: len(children)], max_bytes=run_pass.config.max_payload_bytes)
    found = await run_pass.recorder.ask(lambda _again: outside(_found(run_pass.db, workflow)))
    return all(is_stored_as(found, value, row.input) for row, value in zip(children, values, strict=True))


async def _found(db: Driver, name: str) -> workflows.WorkflowRow:
    """Return the workflow; one that this process has decorated is created when it is missing."""
    try:
        return await workflows.get(db, name)
    except WorkflowNotFound:
        if name not in decorated:
            raise
        return await workflows.create(db, name)


def _known(run_pass: RunPass, run_ids: list[int]) -> list[ChildRun]:
    run_pass.open_children.update(run_ids)
    return [ChildRun(run_pass, run_id) for run_id in run_ids]


async def _spawned(
    run_pass: RunPass, place: BranchPlace, found: workflows.WorkflowRow, workflow: str, texts: list[str]
) -> list[int]:
    new = NewRuns(
        found.workflow_id,
        found.queue_id,
        texts,
        max_attempts=run_pass.config.max_attempts,
        parent_run_id=run_pass.claim.run_id,
    )
    number = run_pass.order.number(place.step_id)
    pending = StepRecord(place.step_id, place.ordinal, StepStatus.PENDING, sequence=number)
    with triggered(workflow, len(new.inputs)) as origin:
        new = new.with_headers(origin.headers)
        try:
            run_ids: list[int] | None = await run_pass.recorder.ask(
                lambda again: claims.spawn(run_pass.db, run_pass.claim.fence, pending, new, again=again)
            )
        finally:
            run_pass.order.is_numbered(place.step_id)
        origin.made(run_ids or ())
    if run_ids is None:
        raise run_pass.lease.lose()
    run_pass.db.hints.announce([found.queue_id])
    run_pass.open_children.update(run_ids)
    return run_ids


def result_of(run_pass: RunPass, place: BranchPlace, run_id: int) -> Waiter:
    """Waits for the end of a child."""

    async def ended_at(_sent: Mapping[str, datetime]) -> datetime | None:
        row = await _row(run_pass, run_id)
        return None if row is None or row.status not in ENDED else row.completed_at

    async def replayed_answer(recorded: RecordedStep) -> WaitAnswer:
        run_pass.open_children.discard(run_id)
        if recorded.status is StepStatus.ERROR:
            return WaitAnswer(error=failed_before(run_pass, place, is_final=True))
        match decode(recorded.output or "null"):
            case [RunStatus.SUCCESS, details]:
                return WaitAnswer(details)
            case [(RunStatus.ERROR | RunStatus.CANCELLED) as status, details]:
                # Before failures were recorded as errors, they were values.
                return WaitAnswer(error=_failure(run_id, status, details))
            case given:
                # A person has answered in the place of the child.
                return WaitAnswer(given)

    async def ask(branch: Branch | None) -> WaitAnswer | Wait:
        answer = await _asked(run_pass, place, run_id, branch)
        if not isinstance(answer, Wait):
            run_pass.open_children.discard(run_id)
        return answer

    return Waiter(run_pass, place, replayed_answer, ask, ended_at=ended_at)


async def _asked(run_pass: RunPass, place: BranchPlace, run_id: int, branch: Branch | None) -> WaitAnswer | Wait:
    row = await _row(run_pass, run_id)
    if row is not None and row.status not in ENDED and row.deleted_at is None:
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED)
        return Wait(f"run {run_id}", record, child=run_id)
    if row is not None and row.status is RunStatus.SUCCESS:
        text = encode([str(row.status), decode(row.output or "null")])
        await run_pass.recorder.record(StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=text))
        return WaitAnswer(decode(text)[1])
    record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR)
    failed = RunNotFound(run_id) if row is None else _failure(run_id, *_ending_of(row))
    # Another attempt of this run would find the same end.
    return WaitAnswer(error=await run_pass.recorder.fail(record, failed, is_final=True, branch=branch))


async def _row(run_pass: RunPass, run_id: int) -> RunRow | None:
    """The child's row, asked for together with the others of this moment; None when it was deleted for good."""
    if run_pass.children is None:

        async def look(run_ids: Sequence[int]) -> list[RunRow | None]:
            rows = await run_pass.recorder.ask(lambda _again: outside(runs.several(run_pass.db, run_ids)))
            found = {row.run_id: row for row in rows}
            return [found.get(each) for each in run_ids]

        run_pass.children = Batcher(look, most=1_000)
    return await run_pass.children.add(run_id)


def _ending_of(row: RunRow) -> tuple[str, Any]:
    if row.status in ENDED:
        return str(row.status), row.last_error
    # Nothing will come of it any more: for its parent it is as good as cancelled.
    return str(RunStatus.CANCELLED), f"deleted: {row.delete_reason}"


def _failure(run_id: int, status: str, details: Any) -> Exception:
    return (RunCancelled if status == RunStatus.CANCELLED else ExecutionFailed)(run_id, details)
