"""A direct call: this process executes one run, and the runs that it starts, until the one has ended.

    a run that is ...     the call ...
    due                   leases it and executes it here
    waiting               waits, too, and executes the children that it waits for
    another process's     waits for its result; the run is due again when that process has ended
    ended                 returns its result, or raises its error

Afterwards the call finishes the runs of its workflow that earlier calls have left behind.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.hints import Subscription
from pgqrs.db.runs import claims, direct_calls
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.direct_calls import CallingProcess, UnfinishedCall
from pgqrs.db.runs.records import Ended
from pgqrs.db.tables import runs
from pgqrs.db.tables.runs import RunRow
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.engine.heartbeat import Heartbeat
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.task_factory import outside
from pgqrs.engine.runs import process_identity
from pgqrs.engine.runs.committer import Committer
from pgqrs.engine.runs.executor import Executor
from pgqrs.engine.runs.lost_runs import end_lost
from pgqrs.engine.runs.outcome import Outcome
from pgqrs.engine.runs.shutdown import to_its_end
from pgqrs.errors import ExecutionFailed, LeaseLost, PauseError, PgqrsError, RunCancelled, RunDeleted
from pgqrs.serialization import decode, naming
from pgqrs.shutdown_budgets import DIRECT_CALL_FAREWELL_SECONDS
from pgqrs.types import ENDED, RunStatus

log: logging.Logger = logging.getLogger("pgqrs.run")

# How many children one call executes at the same time, as a worker does by default.
_MOST_CHILDREN = 10
# A call whose heartbeat is older than so many leases holds none any more.
_SILENT_LEASES = 3
# A run that is due and yet was not leased is in another open transaction: do not spin.
_SHORTEST_WAIT_SECONDS = 0.05

_Pass = asyncio.Task[tuple[Outcome, BaseException | None]]


class DirectCall:
    """One call. `handler_of` gives the code of a child of its run, where this process has it."""

    def __init__(
        self, db: Driver, config: Config, *, worker_id: int, handler_of: Callable[[str], Handler | None]
    ) -> None:
        self._db = db
        self._config = config
        self._worker_id = worker_id
        self._handler_of = handler_of
        self._heartbeat = Heartbeat(db, config, worker_id=worker_id, lease_seconds=config.lease_seconds)
        self._committer = Committer(db)
        self._executor = _Executor(db, config, self._committer, self._heartbeat)
        self._passes: dict[int, _Pass] = {}
        self._leased: set[int] = set()
        # True once the run is known to have ended.
        self.has_ended: bool = False
        db.hints.watchers.append(self._heartbeat.heard)

    async def result_of(
        self,
        run_id: int,
        handler: Handler,
        *,
        queue_id: int,
        claim: Claim | None = None,
        since: float = 0.0,
        given: str | None = None,
    ) -> Any:
        """Return the run's result, or raise its error.

        `claim` is its lease, asked for at `since`, where this process has it. `given` is the input of a run that was
        created without one.
        """
        if claim is not None:
            self._begin(claim, handler, since=since, given=given)
        failure: PgqrsError
        try:
            return await self._ended(run_id, handler, queue_id=queue_id, given=given)
        except _DatabaseFailed as failed:
            failure = failed.error
        # Outside of the `except`, which would make its own error the context of this one.
        raised = self._executor.raised.get(run_id)
        raise failure if raised is None else _with_note(raised, run_id, failure)

    async def _ended(self, run_id: int, handler: Handler, *, queue_id: int, given: str | None) -> Any:
        while True:
            if (running := self._passes.get(run_id)) is not None:
                await asyncio.wait([running])
                del self._passes[run_id]
                outcome, error = _outcome_of(running)
                if outcome is not None:
                    self._executor.raised.pop(run_id, None)
                    self.has_ended = isinstance(outcome.end, Ended)
                if error is not None and not isinstance(error, PauseError):
                    raise error
                if outcome is not None and isinstance(outcome.end, Ended):
                    return _decoded(outcome.end.output, handler)
            try:
                row = await self._turn(run_id, handler, queue_id=queue_id, given=given)
            except PgqrsError as error:
                raise _DatabaseFailed(error) from None
            if row is not None:
                self.has_ended = True
                return _result_of(row, handler)

    async def _turn(self, run_id: int, handler: Handler, *, queue_id: int, given: str | None) -> RunRow | None:
        """Begin what is due, or wait until something may be; the run's row once it has ended."""
        self._forget_passes()
        family = await direct_calls.live_descendants(self._db, run_id)
        with self._db.hints.subscribed([-run_id, queue_id, *(each.queue_id for each in family)]) as bell:
            since = time.monotonic()
            for claim in await self._lease([run_id], attempt=1):
                self._begin(claim, handler, since=since, given=given)
                return None
            row = await runs.get(self._db, run_id)
            if row.status in ENDED or row.deleted_at is not None:
                return row
            ours = [run_id, *(each.run_id for each in family if self._handler_of(each.workflow) is not None)]
            if not await self._begin_children(family) and not await self._take_over(ours):
                await self._rest(bell, ours)
        return None

    # -- executing ---------------------------------------------------------------------------------------

    def _begin(self, claim: Claim, handler: Handler, *, since: float, given: str | None = None) -> None:
        """Execute the call's own run: its error is the caller's, who decides whether to call again."""
        self._executor.raised.pop(claim.run_id, None)
        if given is not None and claim.input in (None, "null"):
            claim = claim._replace(input=given)
        self._execute(claim, handler, since=since, once=True)

    def _execute(self, claim: Claim, handler: Handler, *, since: float, once: bool) -> None:
        """In a task of its own: a caller that is cancelled hands the run back; a handler that cancels does not."""
        self._leased.add(claim.run_id)
        held = self._executor.hold(claim, since=since)
        self._passes[claim.run_id] = outside(self._executor.execute(claim, handler, held, once=once))

    async def _begin_children(self, family: Sequence[UnfinishedCall]) -> bool:
        """Execute children that are due and whose code is here, as a worker would; False when there is none."""
        room = _MOST_CHILDREN - len(self._passes)
        handlers = {
            each.run_id: handler
            for each in family
            if each.run_id not in self._passes and (handler := self._handler_of(each.workflow)) is not None
        }
        if not handlers or room <= 0:
            return False
        since = time.monotonic()
        claimed = await self._lease(list(handlers)[:room])
        for claim in claimed:
            self._execute(claim, handlers[claim.run_id], since=since, once=False)
        # A child whose processes died as often as they may ends here, or the call would wait for it.
        return bool(claimed) or bool(await end_lost(self._db, list({each.queue_id for each in family})))

    async def _lease(self, run_ids: Sequence[int], *, attempt: int | None = None) -> list[Claim]:
        seconds = self._config.lease_seconds
        return await claims.claim_due(
            self._db, run_ids, worker_id=self._worker_id, lease_seconds=seconds, attempt=attempt
        )

    async def _take_over(self, run_ids: Sequence[int]) -> bool:
        """End the leases of processes that have ended, long before their time; False when there is none."""
        held = await direct_calls.holdings(self._db, run_ids, worker_id=self._worker_id)
        ended = [each.fence for each in held if process_identity.has_ended(each.info)]
        if ended:
            await direct_calls.expire(self._db, ended)
        return bool(ended)

    async def _rest(self, bell: Subscription, run_ids: Sequence[int]) -> None:
        """Until a hint, until something is due, or until a child's pass has ended."""
        seconds = self._config.poll_interval_seconds
        due = await direct_calls.seconds_until_due(self._db, run_ids)
        if due is not None:
            seconds = min(seconds, max(due, _SHORTEST_WAIT_SECONDS))
        ringing = asyncio.ensure_future(bell.wait(seconds))
        try:
            await asyncio.wait([ringing, *self._passes.values()], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ringing.cancel()
            await asyncio.gather(ringing, return_exceptions=True)
        self._forget_passes()

    def _forget_passes(self) -> None:
        """Let go of passes over other runs than the caller's: how they ended is recorded, or not decided yet."""
        for run_id, task in list(self._passes.items()):
            if task.done():
                del self._passes[run_id]
                if not task.cancelled() and (error := task.exception()) is not None:
                    log.warning("run %d: %s", run_id, error)

    # -- what other calls left behind --------------------------------------------------------------------

    async def finish_left_behind(self, workflow: str, handler: Handler, *, queue_id: int) -> None:
        """Continue the runs of calls of this workflow whose process has ended, one after the other.

        What comes of them is recorded; it does not change what this call returns.
        """
        try:
            for caller in await direct_calls.callers(self._db):
                named = isinstance(caller.info.get("run_id"), int) and caller.info.get("workflow") == workflow
                if named and self._is_gone(caller):
                    await self._advance(caller, handler, queue_id=queue_id)
        except PgqrsError as error:
            log.warning("runs that earlier calls of %r left behind have to wait: %s", workflow, error)

    def _is_gone(self, caller: CallingProcess) -> bool:
        silent = caller.silent_seconds > _SILENT_LEASES * self._config.lease_seconds
        return caller.worker_id != self._worker_id and (
            caller.is_stopped or silent or process_identity.has_ended(caller.info)
        )

    async def _advance(self, caller: CallingProcess, handler: Handler, *, queue_id: int) -> None:
        """As far as it comes without waiting."""
        run_id = caller.info["run_id"]
        while True:
            row = next(iter(await runs.several(self._db, [run_id])), None)
            if row is None or row.status in ENDED or row.deleted_at is not None:
                await direct_calls.forget(self._db, caller.worker_id)
                return
            family = await direct_calls.live_descendants(self._db, run_id)
            since = time.monotonic()
            for claim in await self._lease([run_id]):
                log.info("run %d: an earlier call left it behind; it continues here", run_id)
                self._execute(claim, handler, since=since, once=True)
            begun = run_id in self._passes or await self._begin_children(family)
            if self._passes:
                await asyncio.wait(self._passes.values(), return_when=asyncio.FIRST_COMPLETED)
                self._forget_passes()
                continue
            queues = list({queue_id, *(each.queue_id for each in family)})
            if not (begun or await self._take_over([run_id, *_ids(family)]) or await end_lost(self._db, queues)):
                return

    # -- the end -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Hand back what is still held, and sign off; a database that is away does not keep the caller."""
        await to_its_end(self._leave())

    async def _leave(self) -> None:
        await self._executor.cancel(self._passes.values())
        await asyncio.gather(*self._passes.values(), return_exceptions=True)
        self._db.hints.watchers.remove(self._heartbeat.heard)
        await asyncio.to_thread(self._heartbeat.close)
        try:
            async with asyncio.timeout(DIRECT_CALL_FAREWELL_SECONDS):
                await self._committer.drain()
                await direct_calls.leave(self._db, self._worker_id, sorted(self._leased), ended=self.has_ended)
        except (PgqrsError, TimeoutError) as error:
            log.warning("a direct call could not sign off: %s", error)


def _ids(family: Sequence[UnfinishedCall]) -> list[int]:
    return [each.run_id for each in family]


class _Executor(Executor):
    """Keeps the error that left a handler, by run: the caller hears of it even if it cannot be recorded."""

    def __init__(self, db: Driver, config: Config, committer: Committer, heartbeat: Heartbeat) -> None:
        super().__init__(db, config, committer, heartbeat)
        self.raised: dict[int, BaseException] = {}

    async def _outcome(self, run_pass: RunPass, *, once: bool) -> tuple[Outcome, BaseException | None]:
        outcome, error = await super()._outcome(run_pass, once=once)
        if error is not None:
            self.raised[run_pass.claim.run_id] = error
        return outcome, error


class _DatabaseFailed(Exception):
    """What the call cannot do without the database."""

    def __init__(self, error: PgqrsError) -> None:
        super().__init__(str(error))
        self.error = error


def _outcome_of(task: _Pass) -> tuple[Outcome | None, BaseException | None]:
    """How a pass ended; nothing when the run is another process's by now."""
    try:
        return task.result()
    except LeaseLost as error:
        log.warning("%s", error)
        return None, None
    except PgqrsError as error:
        raise _DatabaseFailed(error) from None


def _with_note(error: BaseException, run_id: int, failure: PgqrsError) -> BaseException:
    """Return the handler's error, which says that it is not recorded, and why."""
    error.add_note(f"pgqrs could not record that run {run_id} failed: {type(failure).__name__}: {failure}")
    failure.__context__ = None
    last: BaseException = error
    while last.__context__ is not None:
        last = last.__context__
    last.__context__ = failure
    return error


def _decoded(output: str | None, handler: Handler) -> Any:
    with naming(f"the result of workflow {handler.name!r}"):
        return decode(output or "null", handler.returns)


def _result_of(row: RunRow, handler: Handler) -> Any:
    """What the record says of a run that did not end here."""
    match row.status:
        case RunStatus.SUCCESS:
            return _decoded(row.output, handler)
        case RunStatus.CANCELLED:
            raise RunCancelled(row.run_id, row.last_error)
        case RunStatus.ERROR:
            raise ExecutionFailed(row.run_id, row.last_error)
        case _:
            raise RunDeleted(row.run_id, row.delete_reason)
