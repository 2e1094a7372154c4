"""A handler for a queue: leases ahead of it, keeps the leases of slow messages, settles what it is done with.

pump      one round trip that archives what is done and leases the next, or two side by side when that is much, while
          the slots work on
slots     as many as may be in work at once; each takes the next message from the buffer
keeper    a thread that renews what has been in work for a third of its lease
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pgqrs.config import Config
from pgqrs.db.hints import Subscription
from pgqrs.db.tables import messages
from pgqrs.db.tables.messages import Fence, Lease, Return
from pgqrs.engine.idle import IdlePoller
from pgqrs.engine.queues.lease_renewal import LeaseRenewer, MessageSlot
from pgqrs.engine.queues.leases import LeaseHolder
from pgqrs.engine.runs.outcome import asked_delay
from pgqrs.errors import ConnectionFailed, PermanentError, PgqrsError
from pgqrs.retry import Backoff, RetryPolicy
from pgqrs.shutdown_budgets import QUEUE_FAREWELL_SECONDS

log: logging.Logger = logging.getLogger("pgqrs.queue")
_T = TypeVar("_T")

# So much work is leased ahead of the handler: enough to be busy during a round trip, and little enough that no other
# consumer idles while messages wait here.
AHEAD_SECONDS = 0.05
# With 500 a drain was a sixth slower, with 2,000 not quicker.
MOST_AHEAD = 1_000
# From so many on what is done is archived over a second connection, beside the lease: the server does both at once.
WORTH_APART = 100
# Handlers that never wait would keep the event loop for as long as there are messages.
SLICE_SECONDS = 0.005
# How long an idle handler waits for a hint before it gives a sign of life and looks again.
LOOK_SECONDS = 5.0
# Between tries while the database is away.
AWAY_SECONDS = 1.0

_BACKOFF = Backoff()


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """How messages are handled. Without `retry` a message is tried as often as it says itself."""

    concurrency: int
    lease_seconds: float
    grace_seconds: float
    retry: RetryPolicy | None = None
    keep: bool = True
    until_idle: bool = False


class QueueProcessor:
    """One run of a handler over a queue."""

    def __init__(
        self, holder: LeaseHolder, config: Config, call: Callable[[Lease], Awaitable[object]], manner: ProcessOptions
    ) -> None:
        self._holder = holder
        self._db = holder.db
        self._config = config
        self._call = call
        self._manner = manner
        self._loop = asyncio.get_running_loop()
        self._buffer: deque[Lease] = deque()
        self._done: list[Fence] = []
        self._returns: list[Return] = []
        self._slots = [MessageSlot() for _ in range(manner.concurrency)]
        self._free: deque[asyncio.Future[None]] = deque()
        self._busy = 0
        self._rousing = False
        self._handled = 0
        # What is left of a lease when its message is begun, at least.
        self._fresh_seconds = manner.lease_seconds * 2 / 3
        # What `_want` is made of: messages per second, and whether the last look found less than was wanted.
        self._rate = 0.0
        self._turned = time.monotonic()
        self._dry = False
        self._looking: asyncio.Task[None] | None = None
        # One for all looks: it remembers that what is due was locked by another transaction each time.
        self._idling = IdlePoller(holder.db, interval=config.poll_interval_seconds)
        self._wake = asyncio.Event()
        self._ending = False
        self._ended = self._loop.create_future()
        self._workers: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """How many messages were handled, once it is stopped or (`until_idle`) nothing is left."""
        keeper = LeaseRenewer(self._db, self._config, self._holder, self._slots, self._manner.lease_seconds)
        self._workers = [self._loop.create_task(self._work(slot), name="pgqrs-handler") for slot in self._slots]
        try:
            with self._db.hints.subscribed([self._holder.queue_id]) as bell:
                await self._pump(bell)
        finally:
            try:
                await self._farewell()
            finally:
                self._ended.set_result(None)
                await asyncio.to_thread(keeper.close)
        return self._handled

    async def stop(self) -> None:
        """No more leases; returns when what is in work is done, or the grace time is over and it was handed back."""
        self._end()
        if asyncio.current_task() in self._workers:
            # The handler itself asks: it cannot wait for its own end.
            return
        await asyncio.wait([self._ended], timeout=self._manner.grace_seconds)
        if not self._ended.done():
            for worker in self._workers:
                worker.cancel()
            await asyncio.shield(self._ended)

    def _end(self) -> None:
        self._ending = True
        while self._buffer:
            self._give_back(self._buffer.popleft())
        while self._free:
            _ring(self._free.popleft())
        self._wake.set()

    # -- pump --------------------------------------------------------------------------------------------

    async def _pump(self, bell: Subscription) -> None:
        while True:
            self._wake.clear()
            want = self._want()
            if want or self._done or self._returns:
                try:
                    await self._turn(want, bell)
                except ConnectionFailed as error:
                    # The call has tried for retry_seconds already; a handler goes on for ever.
                    if self._manner.until_idle or self._ending:
                        raise
                    log.warning("the database is away: %s", error)
                    await asyncio.sleep(AWAY_SECONDS)
            elif self._ending and not self._busy:
                return
            else:
                await self._wake.wait()
                for worker in self._workers:
                    # A slot ends early only by what must not be kept from the caller (SystemExit and the like).
                    if worker.done() and not self._ending:
                        worker.result()

    def _want(self) -> int:
        """How many to lease: one for each free slot, and some ahead of those at work."""
        if self._ending:
            return 0
        if self._dry and not (self._manner.until_idle and self._is_quiet()):
            return 0
        ahead = min(MOST_AHEAD, int(self._rate * AHEAD_SECONDS))
        room = self._manner.concurrency - self._busy + ahead - len(self._buffer)
        # No small steps while there is enough to do.
        return room if room > 0 and (not self._buffer or room * 2 >= ahead) else 0

    def _is_quiet(self) -> bool:
        return not self._busy and not self._buffer

    async def _turn(self, want: int, bell: Subscription) -> None:
        if self._returns:
            await self._return_some()
        quiet = self._is_quiet()
        done, self._done = self._done, []
        now = time.monotonic()
        self._rate = (self._rate + len(done) / max(now - self._turned, 1e-4)) / 2
        self._turned = now
        # Cleared before looking: a hint that comes while we look makes us look once more.
        if want:
            bell.clear()
        taking = asyncio.ensure_future(self._exchange(want, done))
        try:
            leases = await asyncio.shield(taking)
        except asyncio.CancelledError:
            # It may be carried out all the same: then what nobody will handle goes straight back.
            await asyncio.wait({taking}, timeout=QUEUE_FAREWELL_SECONDS)
            if taking.done() and taking.exception() is None:
                self._taken(taking.result())
            raise
        self._taken(leases)
        if leases:
            self._idling.found()
        self._dry = len(leases) < want if want else self._dry
        if quiet and want and not leases and self._manner.until_idle:
            self._end()
        elif self._dry and (self._looking is None or self._looking.done()):
            self._looking = self._loop.create_task(self._look(bell), name="pgqrs-look")

    async def _exchange(self, want: int, done: list[Fence]) -> list[Lease]:
        """What is done for what is next."""
        if not want or len(done) < WORTH_APART or not self._db.dialect.is_postgres:
            return await self._or_later(done, self._take(want, done))
        taken, settled = await asyncio.gather(
            self._take(want, ()),
            self._or_later(done, self._holder.settle(done, keep=self._manner.keep)),
            return_exceptions=True,
        )
        if isinstance(taken, BaseException):
            raise taken
        if isinstance(settled, BaseException):
            # Ours all the same.
            self._taken(taken)
            raise settled
        return taken

    async def _or_later(self, done: list[Fence], settling: Awaitable[_T]) -> _T:
        """What could not be settled is tried again with the next turn."""
        try:
            return await settling
        except BaseException:
            self._done += done
            raise

    async def _take(self, want: int, done: Sequence[Fence]) -> list[Lease]:
        manner = self._manner
        return await self._holder.take(want, manner.lease_seconds, done=done, keep=manner.keep, thorough=False)

    def _taken(self, leases: list[Lease]) -> None:
        self._buffer.extend(leases)
        if self._ending:
            self._end()
        else:
            self._rouse()

    async def _return_some(self) -> None:
        returns, self._returns = self._returns, []
        try:
            await messages.hand_back(self._db, returns)
        except BaseException:
            self._returns += returns
            raise
        self._holder.forget([(each.message_id, each.lease_token) for each in returns])
        if any(not each.seconds for each in returns):
            self._db.hints.announce([self._holder.queue_id])

    async def _look(self, bell: Subscription) -> None:
        """Until it is worth trying to lease again."""
        while not self._ending:
            try:
                await self._idling.wait(bell, [self._holder.queue_id], at_most=LOOK_SECONDS)
                break
            except PgqrsError as error:
                log.warning("cannot look for messages: %s", error)
                await asyncio.sleep(AWAY_SECONDS)
        self._dry = False
        self._wake.set()

    # -- slots -------------------------------------------------------------------------------------------

    async def _work(self, slot: MessageSlot) -> None:
        buffer, clock = self._buffer, time.monotonic
        until = 0.0
        while True:
            if not buffer:
                if self._ending:
                    return
                waiting = self._loop.create_future()
                self._free.append(waiting)
                self._wake.set()
                await waiting
                until = clock() + SLICE_SECONDS
            elif (now := clock()) > until:
                await asyncio.sleep(0)
                until = clock() + SLICE_SECONDS
            else:
                lease = buffer.popleft()
                # Others take their turn as soon as this one waits for something.
                if self._free and not self._rousing:
                    self._rousing = True
                    self._loop.call_soon(self._rouse_next)
                await self._handle(slot, lease, now)

    async def _handle(self, slot: MessageSlot, lease: Lease, now: float) -> None:
        holder = self._holder
        self._busy += 1
        try:
            _, ends = holder.known(lease.message_id)
            if ends - now < self._fresh_seconds and not await self._freshened(lease):
                return
            slot.lease = lease
            await self._call(lease)
        except asyncio.CancelledError:
            if self._ending:
                self._give_back(lease)
                return
            # Not ours: something that the handler waited for was cancelled.
            self._failed(lease, None)
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            self._failed(lease, error)
        except BaseException:
            self._give_back(lease)
            raise
        else:
            self._handled += 1
            # Otherwise the handler has settled it itself.
            if holder.holds(lease):
                self._done.append(lease.fence)
        finally:
            slot.lease = None
            self._busy -= 1
            self._wake.set()

    def _rouse_next(self) -> None:
        self._rousing = False
        self._rouse()

    def _rouse(self) -> None:
        """One slot; when its handler waits for something, the next."""
        while self._buffer and self._free:
            if _ring(self._free.popleft()):
                return

    async def _freshened(self, lease: Lease) -> bool:
        """A message that waited its turn behind slow ones gets its full lease again; False when it is lost."""
        return bool(await self._holder.extend([lease.fence], self._manner.lease_seconds))

    # -- what does not go well ---------------------------------------------------------------------------

    def _failed(self, lease: Lease, error: Exception | None) -> None:
        """Back to the queue after a while; or, when it is no use, to the dead letters."""
        if not self._holder.holds(lease):
            log.warning("message %d of queue %s failed", lease.message_id, self._holder.queue, exc_info=error)
            return
        policy = self._manner.retry
        gives_up = isinstance(error, PermanentError) or (
            policy is not None
            and (lease.attempts >= policy.max_attempts or (error is not None and not policy.retries(error)))
        )
        if gives_up or lease.attempts >= lease.max_attempts:
            what, seconds, attempts = "it is a dead letter now", 0.0, max(lease.attempts, lease.max_attempts)
        else:
            asked = asked_delay(error) if error is not None else None
            seconds = asked if asked is not None else (policy or _BACKOFF).delay(lease.attempts)
            what, attempts = f"tried again in {seconds:.1f} s", lease.attempts
        log.warning(
            "message %d of queue %s failed in attempt %d of %d: %s",
            *(lease.message_id, self._holder.queue, lease.attempts, lease.max_attempts, what),
            exc_info=error,
        )
        self._returns.append(Return(lease.message_id, lease.lease_token, seconds, attempts))

    def _give_back(self, lease: Lease) -> None:
        """Nobody has failed: the attempt does not count."""
        if self._holder.holds(lease):
            self._returns.append(Return(lease.message_id, lease.lease_token, 0.0, lease.attempts - 1))

    async def _farewell(self) -> None:
        """Stopped, cancelled or broken: nothing is left running, and what can be is settled."""
        self._end()
        if self._looking is not None:
            self._looking.cancel()
        for worker in self._workers:
            worker.cancel()
        ending = self._loop.create_task(self._last_turn())
        # Neither a second cancellation nor a database that is away may hold up, or end, this.
        await asyncio.wait({ending}, timeout=QUEUE_FAREWELL_SECONDS)

    async def _last_turn(self) -> None:
        await asyncio.gather(*self._workers, return_exceptions=True)
        try:
            if self._returns:
                await self._return_some()
            if self._done:
                done, self._done = self._done, []
                await self._holder.take(0, self._manner.lease_seconds, done=done, keep=self._manner.keep)
        except PgqrsError as error:
            log.warning("queue %s: not settled, the leases will run out: %s", self._holder.queue, error)


def _ring(waiting: asyncio.Future[None]) -> bool:
    if waiting.done():
        return False
    waiting.set_result(None)
    return True
