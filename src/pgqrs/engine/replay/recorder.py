"""The writes of one pass: repeated through an outage while the lease lasts, and the handler never hears of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pgqrs.db.driver import Driver
from pgqrs.db.runs import claims
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.history import Emission
from pgqrs.db.runs.records import Ended, RunWrite, StepRecord, Suspended
from pgqrs.db.tables import runs
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.replay.branches import Branch
from pgqrs.engine.replay.failures import Failures
from pgqrs.engine.replay.pass_lease import PassLease
from pgqrs.engine.replay.result_order import ResultOrder
from pgqrs.engine.replay.task_factory import outside
from pgqrs.engine.replay.unwinding import Halt
from pgqrs.engine.runs.committer import Committer
from pgqrs.errors import ConnectionFailed, PgqrsError
from pgqrs.types import StepStatus

T = TypeVar("T")

log: logging.Logger = logging.getLogger("pgqrs.run")

# Between two attempts to write something: each has asked the database for `retry_seconds` already.
_AGAIN_SECONDS = 0.1
# What a replay gives to the handler.
_FINAL = frozenset((StepStatus.SUCCESS, StepStatus.ERROR))


class Recorder:
    """Records steps and outcomes of one pass, and makes its other calls to the store."""

    __slots__ = ("_claim", "_committer", "_db", "_failures", "_fence", "_lease", "_order", "_workflow")

    def __init__(
        self,
        claim: Claim,
        workflow: str,
        *,
        db: Driver,
        committer: Committer,
        lease: PassLease,
        order: ResultOrder,
        failures: Failures,
    ) -> None:
        self._db = db
        self._claim = claim
        self._fence = claim.fence
        self._workflow = workflow
        self._committer = committer
        self._lease = lease
        self._order = order
        self._failures = failures

    async def record(self, step: StepRecord, emissions: Sequence[Emission] = ()) -> RecordedStep | None:
        """Returns when it is durable; what is emitted goes into the outbox with it. Halt when it cannot be.

        Of a paused step it gives what a person has answered meanwhile: that is its record, and not this one.
        """
        self._lease.check_alive()
        if step.sequence is None and step.status in _FINAL:
            step = step._replace(sequence=self._order.number(step.step_id))
        write = RunWrite(self._fence, (step,), None, tuple(emissions) if emissions else (), self._workflow)
        try:
            try:
                await self._committer.write(write)
            except Exception as error:  # noqa: BLE001 - none of it is the handler's
                await self.insisted(error, lambda: self._committer.write(write._replace(again=True)))
            before = self._claim.steps.get(step.step_id) if self._claim.steps else None
            if before is None or before.status is not StepStatus.PAUSED or step.status not in _FINAL:
                return None
            # Before its number counts as written: no other result must overtake it.
            return await self._answered_meanwhile(step)
        finally:
            self._order.is_numbered(step.step_id)

    async def _answered_meanwhile(self, step: StepRecord) -> RecordedStep | None:
        """What is recorded of a step in the place of this: no number, so a person gave it. It gets this number."""
        run_id, step_id, number = self._claim.run_id, step.step_id, step.sequence
        steps = await self.ask(lambda _again: outside(runs.recorded_steps(self._db, [run_id])))
        found: RecordedStep | None = steps[run_id].get(step_id)
        if found is None or found.sequence is not None or number is None:
            return None
        await self.ask_under_lease(lambda: outside(claims.number_step(self._db, self._fence, step_id, number)))
        return found

    async def fail(
        self, record: StepRecord, error: BaseException, *, is_final: bool = False, branch: Branch | None = None
    ) -> BaseException:
        """Records that a step failed; gives the error that the handler gets, now and in every replay."""
        failed = await self.fail_unless_answered(record, error, is_final=is_final, branch=branch)
        return error if isinstance(failed, RecordedStep) else failed

    async def fail_unless_answered(
        self, record: StepRecord, error: BaseException, *, is_final: bool = False, branch: Branch | None = None
    ) -> BaseException | RecordedStep:
        """As `fail`; gives what a person has answered meanwhile in the place of the failure."""
        text = self._failures.error_text(error)
        number = self._order.number(record.step_id)
        record = record._replace(status=StepStatus.ERROR, output=None, error=text, sequence=number)
        answered = await self.record(record)
        if answered is not None:
            return answered
        failure = self._failures.failure_of(record, is_final=is_final, branch=branch)
        return failure.with_traceback(error.__traceback__)

    async def settle(self, end: Ended | Suspended, steps: tuple[StepRecord, ...]) -> None:
        """Records how the pass ended. LeaseLost when the run is not ours any more."""
        has_parent = self._claim.parent_run_id is not None
        write = RunWrite(self._fence, steps, end, workflow=self._workflow, has_parent=has_parent)
        try:
            await self._committer.write(write)
        except ConnectionFailed as error:
            try:
                await self.insisted(error, lambda: self._committer.write(write._replace(again=True)))
            except Halt as halt:
                raise halt.error from None

    async def ask(self, call: Callable[[bool], Awaitable[T]], *, answers: tuple[type[Exception], ...] = ()) -> T:
        """A store call of the pass; `call(again)` repeats it after an outage. Halt when there is no answer.

        Of its errors only the `answers` are raised.
        """
        try:
            return await call(False)  # noqa: FBT003 - the first time
        except answers:
            raise
        except Exception as error:  # noqa: BLE001 - none of it is the handler's
            return await self.insisted(error, lambda: call(True), answers=answers)  # noqa: FBT003 - perhaps done

    async def ask_under_lease(self, call: Callable[[], Awaitable[bool]]) -> None:
        """As `ask`, of a call that answers whether the lease still held: when not, the pass is over."""
        if not await self.ask(lambda _again: call()):
            raise self._lease.lose()

    async def insisted(
        self, error: Exception, again: Callable[[], Awaitable[T]], *, answers: tuple[type[Exception], ...] = ()
    ) -> T:
        """What could not be written is written again until the lease ends; the handler does not hear of it."""
        while True:
            if not isinstance(error, ConnectionFailed):
                raise self._lease.halt(error if isinstance(error, PgqrsError) else _unexpected(error))
            if not self._lease.may_insist():
                log.warning("run %d: the lease ended before this could be recorded: %s", self._claim.run_id, error)
                raise self._lease.lose()
            await asyncio.sleep(_AGAIN_SECONDS)
            try:
                return await again()
            except answers:
                raise
            except Exception as next_error:  # noqa: BLE001 - as above
                error = next_error


def _unexpected(error: Exception) -> PgqrsError:
    again = PgqrsError(f"{type(error).__name__}: {error}")
    again.__cause__ = error
    return again
