"""A worker: leases runs by demand, executes them side by side, drains when it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.hints import CATALOGUE, Subscription
from pgqrs.db.runs import claims
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.records import Ended, RunWrite, Suspended
from pgqrs.db.tables import workers
from pgqrs.db.tables.messages import Source
from pgqrs.engine.background import BackgroundLoop
from pgqrs.engine.heartbeat import Heartbeat, HeldLease
from pgqrs.engine.idle import IdlePoller
from pgqrs.engine.instrumentation import hooks
from pgqrs.engine.janitor import Janitor
from pgqrs.engine.replay.run_pass import ABANDON_SECONDS
from pgqrs.engine.runs.committer import Committer
from pgqrs.engine.runs.executor import Executor
from pgqrs.engine.runs.lost_runs import LostRuns
from pgqrs.engine.runs.served import ServedWorkflows
from pgqrs.engine.runs.slots import Slots
from pgqrs.engine.schedules.scheduler import Scheduler
from pgqrs.errors import (
    ConnectionFailed,
    LeaseLost,
    PgqrsError,
    SchemaMismatch,
    SchemaNotInstalled,
    StorePromoted,
)
from pgqrs.retry import Backoff
from pgqrs.types import RunStatus

log = logging.getLogger("pgqrs.worker")

# An idle worker tries to lease, and cleans up, once in this many poll intervals: with what it asks in between it
# stays below one query a second.
_LOOKS_AFTER_INTERVALS = 10
_AFTER_AN_ERROR = Backoff(base=0.5, cap=30.0)
# How often a worker that serves prefixes looks for new workflows when no hint tells it.
_REFRESH_SECONDS = 5.0
# How long a worker that ends waits for a database that does not answer, on the way out of its loop and once more for
# handing back; then leases do the rest. Those who stop processes are not patient: docker waits for ten seconds.
_FAREWELL_SECONDS = 3.0


class WorkerLoop:
    """Polls the queues of its workflows."""

    def __init__(
        self,
        db: Driver,
        config: Config,
        *,
        worker_id: int,
        service: ServedWorkflows,
        concurrency: int,
        grace_seconds: float,
    ) -> None:
        self.worker_id = worker_id
        self.service = service
        self._db = db
        self._config = config
        self._grace_seconds = grace_seconds
        self._stopping = asyncio.Event()
        self._told_to_stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cutting = asyncio.Event()
        self._slots = Slots(concurrency, execute=self._execute, on_room=self._wake)
        self._meter = hooks.meter
        self._bell: Subscription | None = None
        self._lost_runs = LostRuns(db)
        self._answered_at = time.monotonic()
        self._promoted: StorePromoted | None = None
        self._failed_turns = 0
        loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(
            db,
            config,
            worker_id=worker_id,
            lease_seconds=config.lease_seconds,
            told_to_stop=lambda: loop.call_soon_threadsafe(self.stop),
        )
        self._committer = Committer(db, served=lambda: self.service.queue_ids)
        self._executor = Executor(db, config, self._committer, self._heartbeat, on_stuck=self._slots.release)
        # What else has to be done, by any worker: nobody leads.
        self._scheduler = Scheduler(db, config)
        self._roles = self._make_roles()

    def stop(self) -> None:
        """No more leases; `run` returns when what is running is done, or the grace time is over. Idempotent."""
        self._stopping.set()
        # What a lease that is under way still brings is handed back, not begun.
        self._slots.close()
        if not self._told_to_stop.done():
            self._told_to_stop.set_result(None)
        self._wake()

    def hand_back(self) -> None:
        """As `stop`, without waiting for what is running: it is handed back at once."""
        self._cutting.set()
        self.stop()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    @property
    def seconds_without_heartbeat(self) -> float:
        """Since when the heartbeat fails; 0 when it does not."""
        return self._heartbeat.seconds_failing

    @property
    def seconds_since_claim(self) -> float:
        """Since it asked for runs and was answered; 0 while it has as many as it may."""
        return 0.0 if self._slots.is_full else time.monotonic() - self._answered_at

    async def run(self) -> None:
        """Until `stop`. A cancelled worker hands back what it holds, too."""
        roles = [asyncio.create_task(role.run(), name=f"pgqrs-{role.name}") for role in self._roles]
        self._db.hints.watchers.append(self._heartbeat.heard)
        # Also while it has nothing to do: it is there, and can be told to stop.
        self._heartbeat.start()
        try:
            await self._serve_until_stopped()
            await self._drain(self._grace_seconds)
        finally:
            self._db.hints.watchers.remove(self._heartbeat.heard)
            for role in self._roles:
                role.stop()
            await self._end_handlers()
            if not await _within(_FAREWELL_SECONDS, asyncio.ensure_future(self._say_goodbye(roles))):
                log.warning("the database does not answer: what could not be handed back comes back with its lease")
                self._heartbeat.stop()
                for task in roles:
                    task.cancel()
                await asyncio.gather(*roles, return_exceptions=True)

    async def _say_goodbye(self, roles: Sequence[asyncio.Task[None]]) -> None:
        self._slots.leave()
        await self._write_the_rest()
        await asyncio.gather(*roles, return_exceptions=True)
        await asyncio.to_thread(self._heartbeat.close)
        await _quietly(workers.stop(self._db, self.worker_id))

    async def _serve_until_stopped(self) -> None:
        """A call that goes on asking a database that is away does not keep the worker from ending."""
        serving = asyncio.ensure_future(self._serve_forever())
        try:
            await asyncio.wait([serving, self._told_to_stop], return_when=asyncio.FIRST_COMPLETED)
            if await _within(_FAREWELL_SECONDS, serving):
                serving.result()
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _serve_forever(self) -> None:
        while not self._stopping.is_set():
            await self._serve()

    async def _serve(self) -> None:
        """Until `stop`, or until there are other queues to listen to."""
        queue_ids = self.service.queue_ids
        idling = IdlePoller(self._db, interval=self._config.poll_interval_seconds)
        with self._db.hints.subscribed(queue_ids) as self._bell:
            while not self._stopping.is_set() and queue_ids == self.service.queue_ids:
                await self._turn(self._bell, idling)

    def _make_roles(self) -> list[BackgroundLoop]:
        hints = self._db.hints
        roles = []
        if self.service.prefixes:
            roles.append(BackgroundLoop("catalogue", self._look_for_workflows, hints=hints, topics=[CATALOGUE]))
        if self._config.maintenance:
            roles += [
                self._scheduler.loop(),
                BackgroundLoop("janitor", Janitor(self._db, self._config).turn, hints=hints),
            ]
        return roles

    async def _look_for_workflows(self) -> float:
        if await self.service.refresh() and self._bell is not None:
            self._bell.ring()
        return _REFRESH_SECONDS

    async def run_until_idle(self) -> None:
        """Everything that is due now, and what comes of it, unless it is stopped; for tests and scripts."""
        self._db.hints.watchers.append(self._heartbeat.heard)
        try:
            while not self._stopping.is_set():
                self._slots.look()
                # Asked before the lease: what ends while it is under way may have made something due behind its back.
                was_idle = self._slots.is_empty
                if was_idle:
                    await self.service.refresh()
                    await self._lost_runs.end(self.service.queue_ids)
                    if self._config.maintenance:
                        await self._scheduler.fire_due()
                # While a workflow at its limit was left out of a lease its runs may have ended: ask once more.
                asked_all = len(self._sources()) == len(self.service.queue_ids)
                if not await self._lease() and was_idle and asked_all:
                    return
                if self._slots.running:
                    await self._slots.freed()
            await self._drain(self._grace_seconds)
        finally:
            self._db.hints.watchers.remove(self._heartbeat.heard)

    async def close(self) -> None:
        """After `run_until_idle`: the thread and the worker's row."""
        self._slots.leave()
        await self._end_handlers()
        await self._write_the_rest()
        await asyncio.to_thread(self._heartbeat.close)
        await _quietly(workers.stop(self._db, self.worker_id))

    async def _turn(self, bell: Subscription, idling: IdlePoller) -> None:
        bell.clear()
        try:
            self._slots.look()
            leased = await self._lease()
            if self._slots.wanted() <= 0 and not self._stopping.is_set():
                await self._slots.freed()
                return
            if (leased and self._slots.more_is_likely) or self._stopping.is_set():
                return
            await self._lost_runs.end(self.service.queue_ids)
            # Meanwhile it asks only when something falls due; stop and hints ring the bell.
            # Only where it could lease: what waits behind a workflow's own limit is due, but not for this worker.
            room = [source.queue_id for source in self._sources()]
            await idling.wait(bell, room, at_most=_LOOKS_AFTER_INTERVALS * self._config.poll_interval_seconds)
        except ConnectionFailed as error:
            # The call has tried for retry_seconds already; a worker goes on for ever.
            log.warning("the database is away: %s", error)
            await self._pause(1.0)
        except (StorePromoted, SchemaNotInstalled, SchemaMismatch):
            raise
        except Exception:
            # A row that cannot be leased or ended, and that we did not think of, must not end the worker: what it
            # holds is still executed, and the rows beside it may go by another way.
            self._failed_turns += 1
            seconds = _AFTER_AN_ERROR.delay(self._failed_turns)
            log.exception("cannot look for runs; next try in %.1f s; `pgqrs doctor` names unreadable rows", seconds)
            await self._pause(seconds)
        else:
            self._failed_turns = 0

    async def _pause(self, seconds: float) -> None:
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait([stopping], timeout=seconds)
        stopping.cancel()

    async def _lease(self) -> int:
        if self._promoted is not None:
            raise self._promoted
        wanted = self._slots.wanted()
        sources = self._sources()
        if wanted <= 0 or not sources:
            self._slots.expect(more=True)
            return 0
        since = time.monotonic()
        claiming = asyncio.ensure_future(
            claims.claim(
                self._db,
                sources,
                worker_id=self.worker_id,
                batch=wanted,
                known={claim.lease.message_id for claim in self._slots.claims()},
            )
        )
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # What is leased must be known, or nobody hands it back; unless the database does not say. None begins.
            self._slots.close()
            if await _within(_FAREWELL_SECONDS, claiming):
                self._take(claiming.result(), since=since)
            raise
        self._answered_at = time.monotonic()
        # Less than asked for: there was no more, unless a workflow's own limit stood in the way.
        limited = len(sources) < len(self.service.queue_ids) or any(source.most < wanted for source in sources)
        self._slots.expect(more=limited or len(claimed) >= wanted)
        self._take(claimed, since=since)
        return len(claimed)

    def _sources(self) -> list[Source]:
        return self.service.sources(self._slots.by_workflow())

    def _take(self, claimed: list[Claim], *, since: float) -> None:
        self._slots.take([(claim, self._executor.hold(claim, since=since)) for claim in claimed])

    def _wake(self) -> None:
        """Look for runs now, if it waits for some."""
        if self._bell is not None:
            self._bell.ring()

    async def _execute(self, claim: Claim, held: HeldLease) -> bool:
        """One run, as far as it comes now; True when it is going to be due again."""
        handler = self.service.handler(claim.workflow_id)
        end: Ended | Suspended
        try:
            if handler is None:
                workflow = self.service.name(claim.workflow_id)
                log.warning("run %d: no handler for workflow %r here", claim.run_id, workflow)
                end = await self._executor.decline(claim, held, workflow=workflow)
            else:
                (end, _), _ = await self._executor.execute(claim, handler, held)
        except LeaseLost as error:
            log.warning("run %d: %s", claim.run_id, error)
            if self._meter is not None:
                self._meter.lease_lost()
            return False
        except StorePromoted as error:
            # Nothing can be recorded here any more: what was leased ahead begins where it is now.
            log.warning("run %d: %s", claim.run_id, error)
            self._promoted = error
            self._slots.close()
            self._wake()
            return False
        except PgqrsError as error:
            # Not recorded: the lease runs out, and the run is tried again.
            log.error("run %d could not be recorded: %s", claim.run_id, error)  # noqa: TRY400 - no trace of ours helps
            return False
        return isinstance(end, Suspended)

    async def _drain(self, seconds: float) -> None:
        """Lets what is running finish, for as long as it may; what was only leased ahead goes back at once."""
        await self._hand_back_ready()
        cut = asyncio.ensure_future(self._cutting.wait())
        deadline = time.monotonic() + seconds
        while self._slots.running and not cut.done() and (left := deadline - time.monotonic()) > 0:
            waiting: list[asyncio.Future[Any]] = [*self._slots.running, cut]
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        cut.cancel()

    async def _hand_back_ready(self) -> None:
        handed = self._slots.withdraw()
        for _, held in handed:
            held.settling = True
            self._heartbeat.let_go(held)
        written = [
            self._committer.write(RunWrite(claim.fence, end=Suspended(RunStatus.PENDING))) for claim, _ in handed
        ]
        await asyncio.gather(*written, return_exceptions=True)
        if handed:
            self._db.hints.announce(self.service.queue_ids)

    async def _end_handlers(self) -> None:
        """What still runs is cancelled and handed back, without counting the attempt: another worker takes over."""
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
        back = Suspended(RunStatus.PENDING)
        written = [self._committer.write(RunWrite(unfinished[task].fence, end=back)) for task in stuck]
        await _quietly(asyncio.gather(*written, return_exceptions=True))
        self._db.hints.announce(self.service.queue_ids)

    async def _write_the_rest(self) -> None:
        """An outcome whose task was cancelled is written all the same; until then its run is held."""
        await _quietly(self._committer.drain())
        self._db.hints.announce(self.service.queue_ids)

    @property
    def has_stuck_handlers(self) -> bool:
        """True when code of a handler continues although it was cancelled: only the end of the process ends it."""
        return bool(self._slots.stuck)


async def _within(seconds: float, task: asyncio.Future[Any]) -> bool:
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
        async with asyncio.timeout(5):
            await call  # type: ignore[misc]
    except (PgqrsError, TimeoutError) as error:
        log.debug("not signed off: %s", error)
