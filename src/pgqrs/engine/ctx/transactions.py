"""`ctx.transaction`: a step whose effect and whose record commit together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from pgqrs.db.database import LostMeanwhile, Transaction, WorkFailed
from pgqrs.db.runs import claims
from pgqrs.db.runs.history import Emission
from pgqrs.db.runs.records import StepRecord
from pgqrs.engine.ctx.recorded_results import replayed
from pgqrs.engine.ctx.step_body import stored_result
from pgqrs.engine.ctx.steps import Raise, apart
from pgqrs.engine.definitions.handlers import return_type
from pgqrs.engine.replay.branches import Branch, BranchPlace, current_body, current_branch
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.unwinding import EngineSignal
from pgqrs.errors import PermanentError
from pgqrs.serialization import decode, encode
from pgqrs.text.names import checked_event_type
from pgqrs.types import StepStatus

Work = Callable[[Transaction], Coroutine[Any, Any, Any]]


async def transaction(
    run_pass: RunPass, place: BranchPlace, work: Work, seen: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Any:
    """What is recorded of it; what `work` raises is recorded too, and its statements are rolled back."""
    recorded = run_pass.recorded(place)
    if recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR):
        return await replayed(run_pass, place, work)
    attempts = (recorded.attempts if recorded else 0) + 1
    pending = StepRecord(place.step_id, place.ordinal, StepStatus.PENDING, attempts=attempts)
    await run_pass.leave_behind()
    run_pass.in_flight.begin()
    attempt = _attempt(run_pass, pending, seen(place.step_id, work), current_branch.get())
    answer = await apart(run_pass, attempt, place.step_id)
    if isinstance(answer, Raise):
        raise run_pass.failures.raised(answer.error)
    return decode(answer, return_type(work))


async def _attempt(run_pass: RunPass, pending: StepRecord, work: Work, branch: Branch | None) -> str | Raise:
    """What is recorded now, as text; or the error that is."""
    try:
        with _watched(run_pass, BranchPlace(pending.step_id, pending.ordinal)):
            return await _transact(run_pass, pending, _encoded(run_pass, pending, work))
    except WorkFailed as error:
        failed: BaseException = error.error.error if isinstance(error.error, _Odd) else error.error
    return Raise(await run_pass.recorder.fail(pending, failed, branch=branch))


@contextmanager
def _watched(run_pass: RunPass, place: BranchPlace) -> Iterator[None]:
    """Around a step that has a transaction of its own: the committer tells of the others."""
    began = run_pass.seconds()
    meter, tracer, workflow = run_pass.meter, run_pass.tracer, run_pass.handler.name
    try:
        with nullcontext() if tracer is None else tracer.step(workflow, run_pass.claim.run_id, place, 1):
            yield
    except Exception:
        if meter is not None:
            meter.stepped(workflow, StepStatus.ERROR, run_pass.seconds() - began)
        raise
    if meter is not None:
        meter.stepped(workflow, StepStatus.SUCCESS, run_pass.seconds() - began)


async def _transact(run_pass: RunPass, pending: StepRecord, work: claims.Work) -> str:
    is_over = False

    def number() -> int:
        given = run_pass.order.number(pending.step_id)
        if is_over:
            # The writer's thread was at it when this was cancelled: nothing more waits for that result.
            run_pass.call_soon(lambda: run_pass.order.is_numbered(pending.step_id))
        return given

    fence = run_pass.claim.fence
    output: str | None
    try:
        output = await run_pass.recorder.ask(
            lambda again: claims.transact(run_pass.db, fence, pending, work, sequence=number, again=again),
            answers=(WorkFailed, LostMeanwhile),
        )
    except LostMeanwhile:
        output = None
    finally:
        is_over = True
        run_pass.order.is_numbered(pending.step_id)
    if output is None:
        raise run_pass.lease.lose()
    return output


class _Odd(Exception):
    """What the user's function raised is no Exception; the store call takes this one for it."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(type(error).__name__)
        self.error = error


def _is_being_cancelled() -> bool:
    """False in the writer's thread, where there is no task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0


def _encoded(run_pass: RunPass, step: StepRecord, work: Work) -> claims.Work:
    """The work, giving what is to be recorded of it; what cannot be stored, or read back, fails it."""
    limit = run_pass.config.max_payload_bytes

    async def encoded(transaction: Transaction) -> tuple[str, list[Emission]]:
        emitted: list[Emission] = []
        token = current_body.set((BranchPlace(step.step_id, step.ordinal), step.attempts, emitted))
        try:
            asked = work(transaction)
            if not isinstance(asked, Awaitable):
                transaction.drop_unbegun()
                raise PermanentError(
                    "the function in ctx.transaction must be an async function: write `async def work(tx)`, and "
                    "`await` each of its statements"
                )
            result = await asked
            await transaction.check_all_were_awaited()
        except (EngineSignal, KeyboardInterrupt):
            raise
        except (asyncio.CancelledError, SystemExit) as error:
            if run_pass.is_unwinding or _is_being_cancelled():
                raise
            raise _Odd(error) from error
        finally:
            current_body.reset(token)
        output, _ = stored_result(step.step_id, result, return_type(work), max_bytes=limit)
        return output, emitted + [
            Emission(run_pass.claim.run_id, checked_event_type(name), encode(data, max_bytes=limit))
            for name, data in transaction.emitted
        ]

    return encoded
