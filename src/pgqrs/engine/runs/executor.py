"""Executing a run is a short pipeline that ends in one Outcome, which is recorded in one place."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Any

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.records import Ended, RunWrite, Suspended
from pgqrs.db.tables import runs
from pgqrs.engine.ctx.context import Context
from pgqrs.engine.ctx.loop_calls import in_root
from pgqrs.engine.ctx.sync_context import SyncContext
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.engine.heartbeat import Heartbeat, HeldLease
from pgqrs.engine.instrumentation import hooks
from pgqrs.engine.replay.branches import current_body, current_branch, current_context, handled_error
from pgqrs.engine.replay.failures import raised_as, reopened
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.task_factory import install_task_factory, outside
from pgqrs.engine.replay.unawaited import tells_of_a_coroutine
from pgqrs.engine.replay.unwinding import EngineSignal
from pgqrs.engine.runs.committer import Committer
from pgqrs.engine.runs.outcome import Outcome, failure, is_transient, without_handler
from pgqrs.engine.threads import in_thread
from pgqrs.errors import LeaseLost, PermanentError, StorePromoted
from pgqrs.retry import RetryPolicy
from pgqrs.serialization import encode, naming
from pgqrs.types import RunStatus

log: logging.Logger = logging.getLogger("pgqrs.run")


class Executor:
    """Runs handlers for one worker, each in the task that asks for it."""

    def __init__(
        self,
        db: Driver,
        config: Config,
        committer: Committer,
        heartbeat: Heartbeat,
        *,
        on_stuck: Callable[[asyncio.Task[Any]], None] | None = None,
    ) -> None:
        """`on_stuck` is called with a task that does not end although its run was lost and it was cancelled."""
        self._db = db
        self._config = config
        self._committer = committer
        self._heartbeat = heartbeat
        self._executions: set[RunPass] = set()
        self._on_stuck = on_stuck
        self._loop = asyncio.get_running_loop()
        install_task_factory(self._loop)

    def hand_back(self) -> None:
        """From now on a cancelled task means that its run is handed back. Else the handler itself was cancelled."""
        for run_pass in self._executions:
            run_pass.lease.hand_back()

    async def cancel(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """Cancel the tasks that execute runs here, so that each hands its run back."""
        # A task that is cancelled before it began would hand nothing back.
        await asyncio.sleep(0)
        self.hand_back()
        for task in tasks:
            task.cancel()

    def abandon(self, task: asyncio.Task[Any]) -> None:
        """The task does not end: nothing that it asks for is done any more, and its lease is not renewed."""
        for run_pass in self._executions:
            if run_pass.task is task:
                run_pass.shutdown.abandon()
                self._heartbeat.let_go(run_pass.lease.held)

    def hold(self, claim: Claim, *, since: float) -> HeldLease:
        """The lease, asked for at `since`, is kept from now on, whether or not the run is executed yet."""
        message_id, token = claim.lease.fence
        return self._heartbeat.hold(
            message_id, token, run_id=claim.run_id, lease_seconds=claim.lease_seconds, since=since
        )

    async def execute(
        self, claim: Claim, handler: Handler, held: HeldLease, *, once: bool = False
    ) -> tuple[Outcome, BaseException | None]:
        """One pass, recorded: how it ended, and the error that left the handler.

        `once` is for direct calls: an error is the caller's, so the run ends in ERROR instead of being retried.
        Raises LeaseLost when the run is another worker's by now: then nothing is recorded.
        """
        run_pass = RunPass(claim, handler, db=self._db, config=self._config, committer=self._committer, held=held)
        self._executions.add(run_pass)
        try:
            if run_pass.meter is not None:
                run_pass.meter.began(handler.name, claim.waited)
            if run_pass.tracer is None:
                return await self._execute(run_pass, held, once=once)
            with run_pass.tracer.execute(handler.name, claim) as told:
                outcome, error = await self._execute(run_pass, held, once=once)
                told.ended(outcome.end, error)
                return outcome, error
        finally:
            self._executions.discard(run_pass)
            self._heartbeat.let_go(held)
            run_pass.close()

    async def decline(self, claim: Claim, held: HeldLease, *, workflow: str) -> Ended | Suspended:
        """Record that there is no code for the run here: another worker may have it, or this one some day."""
        self._heartbeat.let_go(held)
        run = await runs.get(self._db, claim.run_id)
        end = without_handler(run, now=claim.now, grace_seconds=self._config.no_handler_grace_seconds)
        await self._committer.write(RunWrite(claim.fence, end=end))
        if hooks.meter is not None and isinstance(end, Ended):
            hooks.meter.finished(workflow, end.status, None)
        return end

    async def _execute(
        self, run_pass: RunPass, held: HeldLease, *, once: bool
    ) -> tuple[Outcome, BaseException | None]:
        claim, workflow = run_pass.claim, run_pass.handler.name
        run_pass.begin(asyncio.current_task(self._loop))
        run_pass.lease.watch(run_pass.shutdown.on_lost)
        run_pass.shutdown.on_stuck = self._on_stuck
        if not held.is_valid():
            # It was lost before there was anything to tell.
            raise run_pass.lease.lose().error
        outcome, error = await self._outcome(run_pass, once=once)
        held.settling = True
        await run_pass.recorder.settle(outcome.end, outcome.steps)
        if run_pass.meter is not None and isinstance(outcome.end, Ended):
            lasted = None if claim.started_at is None else (run_pass.now() - claim.started_at).total_seconds()
            run_pass.meter.finished(workflow, outcome.end.status, lasted)
        return outcome, error

    async def _outcome(self, run_pass: RunPass, *, once: bool) -> tuple[Outcome, BaseException | None]:
        """Result or exception, as one value."""
        error: BaseException | None = None
        text = "null"
        try:
            text = await self._run(run_pass)
        except BaseException as raised:  # noqa: BLE001 - a handler may raise anything
            error = raised
        run_pass.is_done = True
        is_cancelled = isinstance(error, asyncio.CancelledError)
        was_cut = await self._wound_up(run_pass)
        is_at_rest = run_pass.resting.suspended and error is not None and _is_unwound(error)
        if was_cut and not isinstance(run_pass.lease.halted, StorePromoted):
            # Whatever the handler made of its cancellation is not its result, unless it had come to rest before.
            return Outcome(*run_pass.resting.yielding()) if is_at_rest else Outcome(
                Suspended(RunStatus.PENDING)
            ), None
        if run_pass.lease.halted is not None:
            return self._halted(run_pass, once=once)
        if run_pass.resting.suspended:
            if is_at_rest:
                return Outcome(*run_pass.resting.yielding()), None
            error = PermanentError(
                "the handler swallowed its suspension: an `except BaseException` or a bare `except` around a wait "
                "caught the exception that ends the pass",
                hint="catch Exception, or raise it again",
            )
        if error is None:
            return Outcome(Ended(RunStatus.SUCCESS, output=text)), None
        if is_cancelled:
            error = asyncio.CancelledError("raised by the handler")
        return self._decided(run_pass, error, once=once)

    async def _wound_up(self, run_pass: RunPass) -> bool:
        """What is left of the handler comes to its end; True when the worker gave the run back meanwhile, or before.

        In a task of its own where there is anything left: a TaskGroup that the handler has left may cancel the task
        in which it began, which is the engine's by now.
        """
        task, lost = run_pass.task, run_pass.lease.is_lost
        was_cut = run_pass.lease.handing_back and task is not None and task.cancelling() > 0 and not lost
        if was_cut:
            # The next worker must find no one at work on it; only a plain handler's thread continues, until it next
            # asks its context.
            run_pass.shutdown.abandon()
        while task is not None and task.cancelling():
            # Heard: what follows must not be taken for cancelled.
            task.uncancel()
        if run_pass.shutdown.is_quiet:
            return was_cut
        winding = outside(run_pass.shutdown.wind_up())
        while not winding.done():
            try:
                await asyncio.shield(winding)
            except asyncio.CancelledError:
                if task is not None:
                    task.uncancel()
                if run_pass.lease.handing_back and not run_pass.lease.is_lost:
                    was_cut = True
                    run_pass.shutdown.abandon()
        winding.result()
        return was_cut

    def _halted(self, run_pass: RunPass, *, once: bool) -> tuple[Outcome, BaseException | None]:
        """The pass ended without an outcome of the handler's, whatever the handler did on the way out."""
        error = run_pass.lease.halted
        if isinstance(error, LeaseLost | StorePromoted):
            raise error
        assert error is not None  # noqa: S101 - asked by the caller
        return self._decided(run_pass, error, once=once)

    def _decided(
        self, run_pass: RunPass, error: BaseException, *, once: bool
    ) -> tuple[Outcome, BaseException | None]:
        claim = run_pass.claim
        made_it_fail = run_pass.failures.culprits(error)
        is_ours = run_pass.lease.halted is not None
        compensated_by = [] if is_ours else run_pass.failures.compensated_by(error)
        # A step that has used up its own attempts fails again in every attempt of the run. And what the handler has
        # made up for must not succeed after that, unless the handler asks for it.
        is_used_up = any(step.is_final for step in made_it_fail)
        is_made_up_for = bool(compensated_by) and not is_transient(error)
        policy = run_pass.handler.options.retry or RetryPolicy()
        end: Ended | Suspended = failure(
            error,
            attempt=claim.lease.attempts,
            policy=policy.with_attempts(1 if once or is_used_up or is_made_up_for else max(1, claim.max_attempts)),
            pause_seconds=self._config.pause_check_interval_seconds,
            lease_seconds=claim.lease_seconds,
            step_ids=[step.record.step_id for step in made_it_fail],
            compensated_by=compensated_by if is_made_up_for else (),
            is_ours=is_ours,
            raised_as=raised_as(made_it_fail, error),
        )
        again = reopened(made_it_fail) if isinstance(end, Suspended) else ()
        log.info("run %d: %s", claim.run_id, end.last_error or end.status)
        return Outcome(end, again), error

    async def _run(self, run_pass: RunPass) -> str:
        """The handler's result as text; its arguments and its result are checked like everything else it does."""
        handler = run_pass.handler
        arguments = handler.decode_input(run_pass.claim.input)
        context: Any = Context(run_pass)
        if not handler.is_async:
            context = SyncContext(context, self._loop)
        given = (context,) if handler.takes_context else ()
        # Its own world, whatever the worker was started in.
        tokens = current_branch.set(run_pass.root), current_context.set(context), current_body.set(None)
        handled = handled_error.set(None)
        try:
            if handler.is_async:
                value = await handler.function(*given, **arguments)
            else:
                value = await in_thread(in_root, run_pass.root, handler.function, *given, **arguments)
        except (TypeError, AttributeError) as error:
            if tells_of_a_coroutine(error):
                # It was used as if it were the value that `await` would have given.
                await run_pass.check_all_were_awaited()
            raise
        finally:
            # What follows is the engine's own.
            current_branch.reset(tokens[0])
            current_context.reset(tokens[1])
            current_body.reset(tokens[2])
            handled_error.reset(handled)
        if run_pass.resting.suspended or run_pass.lease.halted is not None:
            # Swallowed: what the handler returned is not its result.
            return "null"
        await run_pass.check_all_were_awaited()
        run_pass.check_all_were_asked_for()
        with naming(f"the result of workflow {handler.name!r}"):
            return encode(value, max_bytes=self._config.max_payload_bytes)


def _is_unwound(error: BaseException) -> bool:
    """The engine's signal, or what became of it on the way out: in a group, or replaced by a `finally`."""
    seen: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        if isinstance(link, EngineSignal | asyncio.CancelledError):
            return True
        links += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            links += link.exceptions
    return False
