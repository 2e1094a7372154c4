"""How a worker ends: what is at work may finish, the rest is handed back, and the worker signs off.

ask             no more leases                     stop(), SIGTERM, `pgqrs worker stop`
drain           what is at work may finish         for the grace time, or until `hurry` (a second signal)
end_handlers    what still runs is cancelled       and handed back; its attempt does not count
sign_off        the last writes, then the row      a database that does not answer is not waited for
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from pgqrs import shutdown_budgets
from pgqrs.db.driver import Driver
from pgqrs.db.runs.records import RunWrite, Suspended
from pgqrs.db.tables import workers
from pgqrs.engine.heartbeat import Heartbeat
from pgqrs.engine.replay.run_pass import ABANDON_SECONDS
from pgqrs.engine.replay.task_factory import outside
from pgqrs.engine.runs.committer import Committer
from pgqrs.engine.runs.executor import Executor
from pgqrs.engine.runs.roles import WorkerRoles
from pgqrs.engine.runs.served import ServedWorkflows
from pgqrs.engine.runs.slots import Slots
from pgqrs.errors import PgqrsError
from pgqrs.types import RunStatus

T = TypeVar("T")

log: logging.Logger = logging.getLogger("pgqrs.worker")

_BACK = Suspended(RunStatus.PENDING)


class Shutdown:
    """The end of one worker, whether it is told to stop, is cancelled, or fails."""

    def __init__(
        self,
        db: Driver,
        *,
        worker_id: int,
        service: ServedWorkflows,
        slots: Slots,
        executor: Executor,
        committer: Committer,
        heartbeat: Heartbeat,
        grace_seconds: float,
    ) -> None:
        self._db = db
        self._worker_id = worker_id
        self._service = service
        self._slots = slots
        self._executor = executor
        self._committer = committer
        self._heartbeat = heartbeat
        self._grace_seconds = grace_seconds
        loop = asyncio.get_running_loop()
        self._asked: asyncio.Future[None] = loop.create_future()
        self._hurried: asyncio.Future[None] = loop.create_future()

    # -- being told --------------------------------------------------------------------------------------

    @property
    def is_asked(self) -> bool:
        return self._asked.done()

    def ask(self) -> None:
        """Tell the worker to stop. Idempotent."""
        # What a lease that is under way still brings is handed back, not begun.
        self._slots.close()
        _set(self._asked)

    def hurry(self) -> None:
        """Do not wait for what is at work: it is handed back at once. Idempotent."""
        _set(self._hurried)

    async def pause(self, seconds: float) -> None:
        """Pause for so long, unless the worker is told to stop."""
        await asyncio.wait([self._asked], timeout=seconds)

    async def until_asked(self, serve: Coroutine[Any, Any, None]) -> None:
        """Run this until the worker is told to stop, and it has heard.

        A call that goes on asking a database that is away does not keep the worker from ending.
        """
        serving = asyncio.ensure_future(serve)
        try:
            await asyncio.wait([serving, self._asked], return_when=asyncio.FIRST_COMPLETED)
            if await ends_within(shutdown_budgets.WORKER_FAREWELL_SECONDS, serving):
                serving.result()
        finally:
            serving.cancel()
            await to_its_end(_gone(serving))

    # -- ending ------------------------------------------------------------------------------------------

    async def drain(self) -> None:
        """Let what is at work finish, for as long as it may; what was only leased ahead goes back at once."""
        await self._hand_back_ready()
        deadline = time.monotonic() + self._grace_seconds
        while self._slots.running and not self._hurried.done() and (left := deadline - time.monotonic()) > 0:
            waiting: list[asyncio.Future[Any]] = [*self._slots.running, self._hurried]
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def end_handlers(self) -> None:
        """Cancel what still runs, and hand it back without counting the attempt: another worker takes over."""
        await _quietly(self._hand_back_ready())
        await self._executor.cancel(self._slots.running)
        unfinished = dict(self._slots.running)
        if not unfinished:
            return
        _, stuck = await asyncio.wait(unfinished, timeout=ABANDON_SECONDS)
        for task in stuck:
            # Its context refuses everything from now on, so the run can be handed back without it.
            self._slots.release(task)
            self._executor.abandon(task)
        written = [self._committer.write(RunWrite(unfinished[task].fence, end=_BACK)) for task in stuck]
        await _quietly(asyncio.gather(*written, return_exceptions=True))
        self._db.hints.announce(self._service.queue_ids)

    async def sign_off(self, roles: WorkerRoles) -> None:
        """Write what is left, end the roles and the heartbeat, and say in the worker's row that it has stopped."""
        self._slots.leave()
        # An outcome whose task was cancelled is written all the same; until then its run is held.
        await _quietly(self._committer.drain())
        self._db.hints.announce(self._service.queue_ids)
        await roles.ended()
        await asyncio.to_thread(self._heartbeat.close)
        await _quietly(workers.stop(self._db, self._worker_id))

    async def leave(self, roles: WorkerRoles) -> None:
        """End the handlers and sign off, however often the caller is cancelled meanwhile."""

        async def leaving() -> None:
            await self.end_handlers()
            await self.sign_off_in_time(roles)

        await to_its_end(leaving())

    async def sign_off_in_time(self, roles: WorkerRoles) -> None:
        """Sign off, or leave without it when the database does not answer."""
        signing = asyncio.ensure_future(self.sign_off(roles))
        if not await ends_within(shutdown_budgets.WORKER_FAREWELL_SECONDS, signing):
            log.warning("the database does not answer: what could not be handed back comes back with its lease")
            self._heartbeat.stop()
            await roles.cancel()

    async def _hand_back_ready(self) -> None:
        withdrawn = self._slots.withdraw()
        for _, held in withdrawn:
            held.settling = True
            self._heartbeat.let_go(held)
        written = [self._committer.write(RunWrite(claim.fence, end=_BACK)) for claim, _ in withdrawn]
        await asyncio.gather(*written, return_exceptions=True)
        if withdrawn:
            self._db.hints.announce(self._service.queue_ids)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await it to its end, however often the caller is cancelled meanwhile; that is raised then.

    asyncio cancels once. A scope of anyio's, as web frameworks have them, cancels in each turn of the loop.
    """
    task: asyncio.Task[T] = outside(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        task.cancelled() or task.exception()
        raise cancelled
    return task.result()


async def _gone(task: asyncio.Future[Any]) -> None:
    await asyncio.gather(task, return_exceptions=True)


async def ends_within(seconds: float, task: asyncio.Future[Any]) -> bool:
    """True when it ends in time; else it is cancelled."""
    await asyncio.wait([task], timeout=seconds)
    if task.done():
        return True
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return False


async def _quietly(call: object) -> None:
    """On the way out the database may be away: that must not keep the process."""
    try:
        async with asyncio.timeout(shutdown_budgets.LAST_CALL_SECONDS):
            await call  # type: ignore[misc]
    except (PgqrsError, TimeoutError) as error:
        log.debug("not signed off: %s", error)


def _set(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)
