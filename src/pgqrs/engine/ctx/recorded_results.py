"""What is recorded of a step or a wait: returned to the handler, or raised in it, when it is its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pgqrs.db.runs import claims
from pgqrs.db.runs.records import StepRecord
from pgqrs.engine.definitions.handlers import misfit, return_type
from pgqrs.engine.replay.branches import Branch, BranchPlace, current_branch
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.task_factory import outside
from pgqrs.errors import SerializationError
from pgqrs.serialization import decode
from pgqrs.types import StepStatus


async def replayed(
    run_pass: RunPass, place: BranchPlace, function: Callable[..., Any], *, is_final: bool = False
) -> Any:
    """What is recorded, returned or raised when it is its turn."""
    text = await replayed_text(run_pass, place, is_final=is_final)
    return await _answered(run_pass, place, text, return_type(function))


async def _answered(run_pass: RunPass, place: BranchPlace, text: str | None, as_type: Any) -> Any:
    """A recorded value. One that a person gave, and that is of another type, fails the step."""
    recorded, branch = run_pass.claim.steps[place.step_id], current_branch.get()
    if recorded.sequence is not None or branch is None or run_pass.places.has_passed(branch):
        return read(run_pass, place, text, as_type)
    try:
        return decode(text or "null", as_type)
    except SerializationError as error:
        wrong = SerializationError(f"the data to resume with {misfit(as_type, decode(text or 'null'), error)}")
    raise run_pass.failures.raised(await refused_answer(run_pass, place, wrong, branch))


async def refused_answer(
    run_pass: RunPass, place: BranchPlace, wrong: SerializationError, branch: Branch | None
) -> BaseException:
    """The error in the place of a person's answer, now and in every replay."""
    text = run_pass.failures.error_text(wrong)
    run_pass.in_flight.begin()
    try:
        await run_pass.recorder.ask_under_lease(
            lambda: outside(claims.refuse_answer(run_pass.db, run_pass.claim.fence, place.step_id, error=text))
        )
    finally:
        run_pass.in_flight.finish()
    record = StepRecord(place.step_id, place.ordinal, StepStatus.ERROR, error=text)
    return run_pass.failures.failure_of(record, branch=branch)


async def replayed_text(run_pass: RunPass, place: BranchPlace, *, is_final: bool = False) -> str | None:
    """As `replayed`, not decoded."""
    recorded = run_pass.claim.steps[place.step_id]
    # Before its turn: the step of a branch that is cancelled until then has failed all the same, and is tried again.
    error = None if recorded.status is StepStatus.SUCCESS else failed_before(run_pass, place, is_final=is_final)
    if run_pass.branches.has_several:
        if recorded.sequence is None:
            await run_pass.number_late(place)
        await run_pass.order.turn(place.step_id)
    if error is not None:
        raise run_pass.failures.raised(error)
    return recorded.output


def failed_before(run_pass: RunPass, place: BranchPlace, *, is_final: bool = False) -> BaseException:
    """The recorded error of a step that failed in an earlier pass."""
    recorded = run_pass.claim.steps[place.step_id]
    record = StepRecord(
        place.step_id,
        place.ordinal,
        StepStatus.ERROR,
        error=recorded.error,
        attempts=recorded.attempts,
        sequence=recorded.sequence,
    )
    return run_pass.failures.failure_of(record, is_final=is_final)


def read(run_pass: RunPass, place: BranchPlace, text: str | None, as_type: Any) -> Any:
    """A recorded value. One that the code of today cannot read parks the run: the handler never saw such an error."""
    try:
        return decode(text or "null", as_type)
    except SerializationError as error:
        raise run_pass.diverged(
            f"has recorded step {place.step_id!r} with a value that cannot be read any more ({error})"
        ) from None
