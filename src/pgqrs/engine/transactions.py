"""`ctx.transaction`: a step whose effect and whose record commit together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pgqrs.db import claims
from pgqrs.db.database import Transaction, WorkFailed
from pgqrs.db.history import Emission
from pgqrs.db.writes import StepRecord
from pgqrs.engine.branches import Branch, Place, current_body, current_branch
from pgqrs.engine.execution import Execution
from pgqrs.engine.registry import return_type
from pgqrs.engine.signals import EngineSignal
from pgqrs.engine.steps import Raise, apart, replayed
from pgqrs.errors import PermanentError
from pgqrs.names import checked_event_type
from pgqrs.serialization import decode, encode
from pgqrs.types import StepStatus

Work = Callable[[Transaction], Coroutine[Any, Any, Any]]


async def transaction(
    execution: Execution, place: Place, work: Work, seen: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Any:
    """What is recorded of it; what `work` raises is recorded too, and its statements are rolled back."""
    recorded = execution.recorded(place)
    if recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR):
        return await replayed(execution, place, work)
    attempts = (recorded.attempts if recorded else 0) + 1
    pending = StepRecord(place.step_id, place.ordinal, StepStatus.PENDING, attempts=attempts)
    await execution.leave_behind()
    execution.begin()
    attempt = _attempt(execution, pending, seen(place.step_id, work), current_branch.get())
    answer = await apart(execution, attempt, place.step_id)
    if isinstance(answer, Raise):
        raise execution.raised(answer.error)
    return decode(answer, return_type(work))


async def _attempt(execution: Execution, pending: StepRecord, work: Work, branch: Branch | None) -> str | Raise:
    """What is recorded now, as text; or the error that is."""
    try:
        with execution.watched(Place(pending.step_id, pending.ordinal)):
            return await _transact(execution, pending, _encoded(execution, pending, work))
    except WorkFailed as error:
        failed: BaseException = error.error.error if isinstance(error.error, _Odd) else error.error
    return Raise(await execution.fail(pending, failed, branch=branch))


async def _transact(execution: Execution, pending: StepRecord, work: claims.Work) -> str:
    is_over = False

    def number() -> int:
        given = execution.number(pending.step_id)
        if is_over:
            # The writer's thread was at it when this was cancelled: nothing more waits for that result.
            execution.call_soon(lambda: execution.is_numbered(pending.step_id))
        return given

    fence = execution.claim.fence
    try:
        output: str | None = await execution.ask(
            lambda again: claims.transact(execution.db, fence, pending, work, sequence=number, again=again),
            answers=(WorkFailed,),
        )
    finally:
        is_over = True
        execution.is_numbered(pending.step_id)
    if output is None:
        raise execution.lose()
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


def _encoded(execution: Execution, step: StepRecord, work: Work) -> claims.Work:
    """The work, giving what is to be recorded of it; what cannot be stored, or read back, fails it."""
    limit = execution.config.max_payload_bytes

    async def encoded(transaction: Transaction) -> tuple[str, list[Emission]]:
        emitted: list[Emission] = []
        token = current_body.set((Place(step.step_id, step.ordinal), step.attempts, emitted))
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
            if execution.is_unwinding or _is_being_cancelled():
                raise
            raise _Odd(error) from error
        finally:
            current_body.reset(token)
        output = encode(result, max_bytes=limit)
        decode(output, return_type(work))
        return output, emitted + [
            Emission(execution.claim.run_id, checked_event_type(name), encode(data, max_bytes=limit))
            for name, data in transaction.emitted
        ]

    return encoded
