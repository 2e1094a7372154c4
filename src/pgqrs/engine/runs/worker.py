"""A worker: leases runs by demand, executes them side by side, drains when it is told to stop.

    Claimer     leases what the slots want                         claimer.py
    Slots       hold runs, and execute so many at a time           slots.py
    Executor    executes one run, the Committer writes for all     executor.py, committer.py
    Heartbeat   keeps the leases of all of them                    engine/heartbeat.py
    roles       what else any worker does                          roles.py, lost_runs.py
    Shutdown    ends it                                            shutdown.py

WorkerLoop puts them together and decides when to look for runs.
"""

from __future__ import annotations

import asyncio
import logging

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.hints import Subscription
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.records import Ended, Suspended
from pgqrs.engine.heartbeat import Heartbeat, HeldLease
from pgqrs.engine.idle import IdlePoller
from pgqrs.engine.instrumentation import hooks
from pgqrs.engine.runs.claimer import Claimer
from pgqrs.engine.runs.committer import Committer
from pgqrs.engine.runs.executor import Executor
from pgqrs.engine.runs.lost_runs import LostRuns
from pgqrs.engine.runs.roles import WorkerRoles
from pgqrs.engine.runs.served import ServedWorkflows
from pgqrs.engine.runs.shutdown import Shutdown
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

log: logging.Logger = logging.getLogger("pgqrs.worker")

# An idle worker tries to lease, and cleans up, once in this many poll intervals: with what it asks in between it
# stays below one query a second.
_LOOKS_AFTER_INTERVALS = 10
_AFTER_AN_ERROR = Backoff(base=0.5, cap=30.0)


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
        self._bell: Subscription | None = None
        self._failed_turns = 0
        self._meter = hooks.meter
        loop = asyncio.get_running_loop()
        self._slots = Slots(concurrency, execute=self._execute, on_room=self._wake)
        self._heartbeat = Heartbeat(
            db,
            config,
            worker_id=worker_id,
            lease_seconds=config.lease_seconds,
            told_to_stop=lambda: loop.call_soon_threadsafe(self.stop),
        )
        committer = Committer(db, served=lambda: service.queue_ids)
        self._executor = Executor(db, config, committer, self._heartbeat, on_stuck=self._slots.release)
        self._claimer = Claimer(db, worker_id=worker_id, service=service, slots=self._slots, executor=self._executor)
        self._lost_runs = LostRuns(db)
        self._scheduler = Scheduler(db, config)
        self._roles = WorkerRoles(db, config, service=service, scheduler=self._scheduler, on_new_workflows=self._wake)
        self._shutdown = Shutdown(
            db,
            worker_id=worker_id,
            service=service,
            slots=self._slots,
            executor=self._executor,
            committer=committer,
            heartbeat=self._heartbeat,
            grace_seconds=grace_seconds,
        )

    # -- from outside ------------------------------------------------------------------------------------

    def stop(self) -> None:
        """No more leases; `run` returns when what is running is done, or the grace time is over. Idempotent."""
        self._shutdown.ask()
        self._wake()

    def hand_back(self) -> None:
        """As `stop`, without waiting for what is running: it is handed back at once."""
        self._shutdown.hurry()
        self.stop()

    @property
    def is_stopping(self) -> bool:
        return self._shutdown.is_asked

    @property
    def has_stuck_handlers(self) -> bool:
        """True when code of a handler continues although it was cancelled: only the end of the process ends it."""
        return bool(self._slots.stuck)

    @property
    def seconds_without_heartbeat(self) -> float:
        """Since when the heartbeat fails; 0 when it does not."""
        return self._heartbeat.seconds_failing

    @property
    def seconds_since_claim(self) -> float:
        """Since it asked for runs and was answered; 0 while it has as many as it may."""
        return self._claimer.seconds_since_answer

    # -- life --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop`. A cancelled worker hands back what it holds, too."""
        self._roles.start()
        self._db.hints.watchers.append(self._heartbeat.heard)
        # Also while it has nothing to do: it is there, and can be told to stop.
        self._heartbeat.start()
        try:
            await self._shutdown.until_asked(self._serve())
            await self._shutdown.drain()
        finally:
            self._db.hints.watchers.remove(self._heartbeat.heard)
            self._roles.stop()
            await self._shutdown.leave(self._roles)

    async def run_until_idle(self) -> None:
        """Everything that is due now, and what comes of it, unless it is stopped; for tests and scripts."""
        self._db.hints.watchers.append(self._heartbeat.heard)
        try:
            while not self.is_stopping:
                self._slots.look()
                # Asked before the lease: what ends while it is under way may have made something due behind its back.
                was_idle = self._slots.is_empty
                if was_idle:
                    await self.service.refresh()
                    await self._lost_runs.end(self.service.queue_ids)
                    if self._config.maintenance:
                        await self._scheduler.fire_due()
                # While a workflow at its limit was left out of a lease its runs may have ended: ask once more.
                asked_all = len(self._claimer.queues_with_room()) == len(self.service.queue_ids)
                if not await self._claimer.claim() and was_idle and asked_all:
                    return
                if self._slots.running:
                    await self._slots.freed()
            await self._shutdown.drain()
        finally:
            self._db.hints.watchers.remove(self._heartbeat.heard)

    async def close(self) -> None:
        """After `run_until_idle`: the thread and the worker's row."""
        await self._shutdown.end_handlers()
        await self._shutdown.sign_off(self._roles)

    # -- looking for runs --------------------------------------------------------------------------------

    async def _serve(self) -> None:
        """Until `stop`; with another bell when there are other queues to listen to."""
        while not self.is_stopping:
            queue_ids = self.service.queue_ids
            idling = IdlePoller(self._db, interval=self._config.poll_interval_seconds)
            with self._db.hints.subscribed(queue_ids) as self._bell:
                while not self.is_stopping and queue_ids == self.service.queue_ids:
                    await self._turn(self._bell, idling)

    async def _turn(self, bell: Subscription, idling: IdlePoller) -> None:
        bell.clear()
        try:
            await self._look(bell, idling)
        except ConnectionFailed as error:
            # The call has tried for retry_seconds already; a worker goes on for ever.
            log.warning("the database is away: %s", error)
            await self._shutdown.pause(1.0)
        except (StorePromoted, SchemaNotInstalled, SchemaMismatch):
            raise
        except Exception:
            # A row that cannot be leased or ended, and that we did not think of, must not end the worker: what it
            # holds is still executed, and the rows beside it may go by another way.
            self._failed_turns += 1
            seconds = _AFTER_AN_ERROR.delay(self._failed_turns)
            log.exception("cannot look for runs; next try in %.1f s; `pgqrs doctor` names unreadable rows", seconds)
            await self._shutdown.pause(seconds)

    async def _look(self, bell: Subscription, idling: IdlePoller) -> None:
        """Lease what there is room for; then wait until it is worth looking again."""
        self._slots.look()
        leased = await self._claimer.claim()
        if self._slots.wanted() <= 0 and not self.is_stopping:
            await self._slots.freed()
            return
        if (leased and self._slots.more_is_likely) or self.is_stopping:
            return
        await self._lost_runs.end(self.service.queue_ids)
        # Meanwhile it asks only when something falls due; stop and hints ring the bell.
        # Only where it could lease: what waits behind a workflow's own limit is due, but not for this worker.
        room = self._claimer.queues_with_room()
        await idling.wait(bell, room, at_most=_LOOKS_AFTER_INTERVALS * self._config.poll_interval_seconds)
        # A turn that returned earlier has not asked for all that may fail.
        self._failed_turns = 0

    def _wake(self) -> None:
        """Look for runs now, if it waits for some."""
        if self._bell is not None:
            self._bell.ring()

    # -- executing ---------------------------------------------------------------------------------------

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
            # What was leased ahead begins where the store is now.
            log.warning("run %d: %s", claim.run_id, error)
            self._claimer.refuse(error)
            self._wake()
            return False
        except PgqrsError as error:
            # Not recorded: the lease runs out, and the run is tried again.
            log.error("run %d could not be recorded: %s", claim.run_id, error)  # noqa: TRY400 - no trace of ours helps
            return False
        return isinstance(end, Suspended)
