"""Executing a run is a short pipeline that ends in one Outcome, which is recorded in one place."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pgqrs.config import Config
from pgqrs.db.claims import Claim
from pgqrs.db.driver import Driver
from pgqrs.db.writes import Ending, Write, Yielding
from pgqrs.engine.branches import current_branch, install_task_factory
from pgqrs.engine.committer import Committer
from pgqrs.engine.context import Context, current_context
from pgqrs.engine.execution import Execution, Suspend
from pgqrs.engine.heartbeat import Heartbeat, Held
from pgqrs.engine.outcome import Outcome, failure
from pgqrs.engine.plain import SyncContext
from pgqrs.engine.registry import Handler
from pgqrs.engine.threads import in_thread
from pgqrs.errors import LeaseLost, PermanentError, RunCancelled
from pgqrs.retry import RetryPolicy
from pgqrs.serialization import encode
from pgqrs.types import RunStatus

log = logging.getLogger("pgqrs.run")


class Executor:
    """Runs handlers for one worker, each in the task that asks for it."""

    def __init__(self, db: Driver, config: Config, committer: Committer, heartbeat: Heartbeat) -> None:
        self._db = db
        self._config = config
        self._committer = committer
        self._heartbeat = heartbeat
        # True when whoever cancels a task wants its run handed back. Else a cancellation came out of the handler.
        self.handing_back = False
        self._loop = asyncio.get_running_loop()
        install_task_factory(self._loop)

    def hold(self, claim: Claim, *, since: float) -> Held:
        """The lease, asked for at `since`, is kept from now on, whether or not the run is executed yet."""
        message_id, token = claim.lease.fence
        return self._heartbeat.hold(
            message_id, token, run_id=claim.run_id, lease_seconds=claim.lease_seconds, since=since
        )

    async def execute(
        self, claim: Claim, handler: Handler, held: Held, *, once: bool = False
    ) -> tuple[Outcome, BaseException | None]:
        """One pass, recorded: how it ended, and the error that left the handler.

        `once` is for direct calls: an error is the caller's, so the run ends in ERROR instead of being retried.
        Raises LeaseLost when the run is somebody else's by now: then nothing is recorded.
        """
        execution = Execution(claim, handler, db=self._db, config=self._config, committer=self._committer, held=held)
        try:
            if execution.meter is not None:
                execution.meter.began(handler.name, claim.waited)
            if execution.tracer is None:
                return await self._execute(execution, held, once=once)
            with execution.tracer.execute(handler.name, claim) as told:
                outcome, error = await self._execute(execution, held, once=once)
                told.ended(outcome.end, error)
                return outcome, error
        finally:
            self._heartbeat.let_go(held)
            execution.close()

    async def _execute(self, execution: Execution, held: Held, *, once: bool) -> tuple[Outcome, BaseException | None]:
        claim, workflow = execution.claim, execution.handler.name
        execution.task = asyncio.current_task(self._loop)
        held.lost = execution.on_lost
        # It may have been lost before anybody could be told.
        execution.check_alive()
        outcome, error = await self._outcome(execution, once=once)
        held.settling = True
        has_parent = claim.parent_run_id is not None
        await self._committer.write(
            Write(claim.fence, outcome.steps, outcome.end, workflow=workflow, has_parent=has_parent)
        )
        if execution.meter is not None and isinstance(outcome.end, Ending):
            lasted = None if claim.started_at is None else (execution.now() - claim.started_at).total_seconds()
            execution.meter.finished(workflow, outcome.end.status, lasted)
        return outcome, error

    async def _outcome(self, execution: Execution, *, once: bool) -> tuple[Outcome, BaseException | None]:
        """Result or exception, as one value."""
        try:
            text = await self._run(execution)
        except asyncio.CancelledError:
            lost = execution.lost
            if not lost and not self.handing_back:
                # Nobody cancelled it: it came out of the handler, like any other error.
                await execution.wind_up()
                return self._decided(execution, asyncio.CancelledError("raised by the handler"), once=once)
            # Either the lease is lost, or we are to hand it back. Whoever takes it must find nobody at work on it;
            # only a plain handler's thread goes on, until it next asks its context.
            execution.abandon()
            await execution.wind_up()
            if lost:
                execution.check_alive()
            return Outcome(Yielding(RunStatus.PENDING)), None
        except BaseException as error:  # noqa: BLE001 - a handler may raise anything
            await execution.wind_up()
            return self._decided(execution, error, once=once)
        await execution.wind_up()
        return Outcome(Ending(RunStatus.SUCCESS, output=text)), None

    def _decided(
        self, execution: Execution, error: BaseException, *, once: bool
    ) -> tuple[Outcome, BaseException | None]:
        if execution.suspended and _is_suspension(error):
            end, steps = execution.yielding()
            return Outcome(end, steps), None
        if isinstance(error, LeaseLost | RunCancelled):
            raise LeaseLost(f"run {execution.claim.run_id} is not ours any more; nothing was recorded") from error
        policy = execution.handler.options.retry or RetryPolicy()
        policy = _with_attempts(policy, 1 if once else execution.claim.max_attempts)
        end_: Ending | Yielding = failure(
            error,
            attempt=execution.claim.lease.attempts,
            policy=policy,
            pause_seconds=self._config.pause_check_interval_seconds,
            lease_seconds=execution.claim.lease_seconds,
            step_id=execution.failed_in(error),
        )
        again = execution.steps_to_try_again(error) if isinstance(end_, Yielding) else ()
        log.info("run %d: %s", execution.claim.run_id, end_.last_error or end_.status)
        return Outcome(end_, again), error

    async def _run(self, execution: Execution) -> str:
        """The handler's result as text; its arguments and its result are checked like everything else it does."""
        handler = execution.handler
        arguments = handler.decode_input(execution.claim.input)
        context: Any = Context(execution)
        if not handler.is_async:
            context = SyncContext(context, self._loop)
        given = (context,) if handler.takes_context else ()
        tokens = current_branch.set(execution.root), current_context.set(context)
        try:
            if handler.is_async:
                value = await handler.function(*given, **arguments)
            else:
                value = await in_thread(handler.function, *given, **arguments)
        finally:
            # What follows is the engine's own.
            current_branch.reset(tokens[0])
            current_context.reset(tokens[1])
        if execution.suspended:
            raise PermanentError(
                "the handler swallowed its suspension (an `except BaseException` or a bare `except` around a wait?)"
            )
        execution.check_all_were_asked_for()
        return encode(value, max_bytes=self._config.max_payload_bytes)


def _is_suspension(error: BaseException) -> bool:
    """Suspend itself, or a group of them as TaskGroup raises it."""
    if isinstance(error, BaseExceptionGroup):
        return any(_is_suspension(each) for each in error.exceptions)
    return isinstance(error, Suspend)


def _with_attempts(policy: RetryPolicy, max_attempts: int) -> RetryPolicy:
    return RetryPolicy(max_attempts, policy.base, policy.cap, policy.jitter, policy.retry_on, policy.give_up_on)
