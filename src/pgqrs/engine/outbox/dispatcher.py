"""The dispatcher: publishes what is in the outbox, in order per run, side by side across runs, at least once."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Callable, Sequence

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.tables import outbox
from pgqrs.db.tables.outbox import ClaimedEvent, VisibleEvent
from pgqrs.engine.outbox.routes import Route
from pgqrs.errors import PgqrsError, PublishFailed
from pgqrs.retry import Backoff
from pgqrs.shutdown_budgets import LAST_CALL_SECONDS
from pgqrs.types import OutboxEvent

log: logging.Logger = logging.getLogger("pgqrs.outbox")

CONCURRENCY = 16
MAX_ATTEMPTS = 20
DEADLINE_SECONDS = 20.0  # and so a lease of 30

_BACKOFF = Backoff(base=1.0, cap=300.0)
# A claim holds longer than a publication may take: time to write down how it went.
_SHORTEST_MARGIN_SECONDS = 1.0
# How much of the line is looked at: far more than is published at once, so that a few runs with many events, or a
# receiver that rests, seldom fill it; and a few milliseconds' work at most.
_WINDOW = 256
# If they do fill it, they leave the line for so long. Whoever's turn comes is brought back earlier.
_ASIDE_SECONDS = 30.0
# Nothing could be claimed, because others were quicker or were in the way: look again soon, but do not spin, for an
# event may be locked by somebody's long transaction.
_AGAIN = Backoff(base=0.02, cap=1.0)
# An idle dispatcher asks twice, then waits for a hint, for what falls due, or for so many poll intervals.
_IDLE_INTERVALS = 3.0
_SHORTEST_SECONDS = 0.01
_LONGEST_ERROR = 500
_MOST_REMEMBERED = 10_000


class OutboxLoop:
    """One of any number on a database; `turn` is for a Loop on the topic hints.OUTBOX."""

    def __init__(
        self,
        db: Driver,
        config: Config,
        routes: Sequence[Route],
        *,
        concurrency: int = CONCURRENCY,
        max_attempts: int = MAX_ATTEMPTS,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.source: str = source_of(config)
        # Called when there may be room for another: the loop's bell.
        self.on_room: Callable[[], None] = lambda: None
        self.may_claim: Callable[[], bool] = lambda: True
        self._db = db
        self._poll_seconds = config.poll_interval_seconds
        self._routes = tuple(routes)
        self._concurrency = concurrency
        # One receiver that is slow leaves room for the others.
        self._per_route = concurrency if len(self._routes) == 1 else max(1, concurrency // 2)
        self._max_attempts = max_attempts
        self._deadline_seconds = deadline_seconds
        self._lease_seconds = deadline_seconds + max(deadline_seconds / 2, _SHORTEST_MARGIN_SECONDS)
        self._in_flight: dict[asyncio.Task[None], ClaimedEvent] = {}
        self._misses = 0
        # How many publications have ended, well or not.
        self._ended = 0
        # Routes that have an event already which others refused: they need not get it again from here.
        self._delivered: dict[int, set[Route]] = {}

    async def turn(self) -> float:
        """Begins what can begin now; says in how many seconds to ask again."""
        if len(self._in_flight) >= self._concurrency:
            return self._lease_seconds
        begun, again = await self._begin()
        if begun:
            return 0.0
        return _AGAIN.delay(self._misses) if again else await self._idle_seconds()

    async def run_until_idle(self) -> None:
        """Publishes what is due now, and what comes of it; for tests and scripts."""
        try:
            while True:
                ended = self._ended
                begun, again = await self._begin()
                if ended != self._ended:
                    # Something ended while we looked: what comes after it need not wait for those still under way.
                    continue
                if self._in_flight:
                    await asyncio.wait(self._in_flight, return_when=asyncio.FIRST_COMPLETED)
                elif again:
                    await asyncio.sleep(_AGAIN.delay(self._misses))
                elif not begun:
                    return
        finally:
            await self.close()

    async def close(self, *, grace_seconds: float = 0.0) -> None:
        """Lets what is under way finish, for as long as it may; the rest is given back."""
        if self._in_flight and grace_seconds > 0:
            await asyncio.wait(self._in_flight, timeout=grace_seconds)
        # A task that is cancelled before it began would give nothing back.
        await asyncio.sleep(0)
        unfinished = list(self._in_flight)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    # -- claiming ----------------------------------------------------------------------------------------

    async def _begin(self) -> tuple[int, bool]:
        """How many publications began, and whether there may be more for whoever looks again."""
        free = self._concurrency - len(self._in_flight)
        if free <= 0:
            return 0, False
        window = max(_WINDOW, 4 * self._concurrency)
        seen = await outbox.look(self._db, most=window)
        if not self.may_claim():
            # Told to stop while it looked: what has become due since then is for others.
            return 0, False
        chosen = self._choose(seen, free)
        in_the_way = len(seen) == window and len(chosen) < free
        if in_the_way:
            ids = {each.event_id for each in seen} - set(chosen)
            await outbox.set_aside(self._db, sorted(ids), seconds=_ASIDE_SECONDS)
        begun = await self._claim(chosen) if chosen else 0
        self._misses = self._misses + 1 if chosen and not begun else 0
        return begun, in_the_way or bool(chosen)

    def _choose(self, seen: Sequence[VisibleEvent], free: int) -> list[int]:
        """Only what can be sent at once: nothing waits in memory while its lease runs."""
        now = self._now()
        runs = {claimed.event.run_id for claimed in self._in_flight.values()}
        room = {route: route.room(now, most=self._per_route) for route in self._routes}
        chosen: list[int] = []
        for each in seen:
            if len(chosen) == free:
                break
            routes = self._routes_for(each.event_type)
            if not each.is_head or each.run_id in runs or any(room[route] <= 0 for route in routes):
                continue
            for route in routes:
                room[route] -= 1
            chosen.append(each.event_id)
        return chosen

    async def _claim(self, event_ids: Sequence[int]) -> int:
        # Counted from before the question: the answer may have lain about while this process was frozen.
        since = time.monotonic()
        claiming = asyncio.ensure_future(
            outbox.claim(
                self._db,
                event_ids,
                token=secrets.randbits(62) + 1,
                lease_seconds=self._lease_seconds,
                source=self.source,
            )
        )
        try:
            claimed = await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # What is claimed must be known, or nobody gives it back.
            self._start(await claiming, since=since)
            raise
        self._start(claimed, since=since)
        return len(claimed)

    def _start(self, claims: Sequence[ClaimedEvent], *, since: float) -> None:
        # A publication that begins later than this could still be under way when somebody else begins it, too.
        latest = since + self._lease_seconds - self._deadline_seconds
        for claimed in claims:
            routes = self._routes_for(claimed.event.type)
            for route in routes:
                route.in_flight += 1
            task = asyncio.create_task(
                self._publish(claimed, routes, latest=latest), name=f"pgqrs-event-{claimed.event.event_id}"
            )
            self._in_flight[task] = claimed
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        claimed = self._in_flight.pop(task)
        self._ended += 1
        for route in self._routes_for(claimed.event.type):
            route.in_flight -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("event %s: its lease runs out, then it is sent again", claimed.event.id, exc_info=error)
        self.on_room()

    # -- publishing --------------------------------------------------------------------------------------

    async def _publish(self, claimed: ClaimedEvent, routes: Sequence[Route], *, latest: float) -> None:
        if time.monotonic() > latest:
            log.warning("event %s came too late to be sent by this dispatcher", claimed.event.id)
            await self._give_back(claimed)
            return
        try:
            error = await self._send(claimed.event, routes)
            held = await (self._published(claimed) if error is None else self._failed(claimed, error))
            if not held:
                log.warning("event %s was claimed by another dispatcher before it was recorded", claimed.event.id)
        except asyncio.CancelledError:
            await self._give_back(claimed)
            raise
        except PgqrsError as error:
            # Not recorded: the lease runs out, and it is sent again.
            log.error("event %s could not be recorded: %s", claimed.event.id, error)  # noqa: TRY400 - no trace of ours helps

    async def _send(self, event: OutboxEvent, routes: Sequence[Route]) -> str | None:
        """To every route that has not got it yet; the error, if one of them did not take it."""
        delivered = self._delivered.get(event.event_id, set())
        waiting = [route for route in routes if route not in delivered]
        errors = await asyncio.gather(*(self._send_to(route, event) for route in waiting))
        failed = [error for error in errors if error is not None]
        if failed and len(routes) > 1:
            self._remember(event, delivered | {r for r, error in zip(waiting, errors, strict=True) if error is None})
        else:
            self._delivered.pop(event.event_id, None)
        return "; ".join(failed) if failed else None

    async def _send_to(self, route: Route, event: OutboxEvent) -> str | None:
        try:
            async with asyncio.timeout(self._deadline_seconds) as deadline:
                await route.publisher.publish(event)
        except (Exception, asyncio.CancelledError) as error:
            # Whatever it is, the event was not taken; only if it was us who cancelled, nobody is to blame.
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            route.failed(self._now())
            return f"no answer within {self._deadline_seconds:g} s" if deadline.expired() else _shown(error)
        route.succeeded()
        return None

    async def _published(self, claimed: ClaimedEvent) -> bool:
        return await outbox.published(self._db, claimed)

    async def _failed(self, claimed: ClaimedEvent, error: str) -> bool:
        event = claimed.event
        attempts = event.attempts + 1
        if attempts >= self._max_attempts:
            log.error("event %s is dead after %d attempts: %s", event.id, attempts, error)
            self._delivered.pop(event.event_id, None)
        else:
            log.warning("event %s was not taken (attempt %d): %s", event.id, attempts, error)
        return await outbox.failed(
            self._db, claimed, error=error, delay=_BACKOFF.delay(attempts), max_attempts=self._max_attempts
        )

    async def _give_back(self, claimed: ClaimedEvent) -> None:
        try:
            async with asyncio.timeout(LAST_CALL_SECONDS):
                await outbox.give_back(self._db, claimed)
        except (PgqrsError, TimeoutError) as error:
            log.debug("event %s was not given back: %s", claimed.event.id, error)

    def _remember(self, event: OutboxEvent, delivered: set[Route]) -> None:
        self._delivered[event.event_id] = delivered
        while len(self._delivered) > _MOST_REMEMBERED:
            del self._delivered[next(iter(self._delivered))]

    # -- waiting -----------------------------------------------------------------------------------------

    async def _idle_seconds(self) -> float:
        now = self._now()
        # Jitter, so that dispatchers that started together do not ask together.
        longest = self._poll_seconds * _IDLE_INTERVALS * random.uniform(0.8, 1.2)  # noqa: S311 - spreads load
        due = await outbox.next_due(self._db)
        waits = [longest, *(left for route in self._routes if (left := route.rest_left(now)) > 0)]
        if due is not None:
            waits.append(due)
        return max(_SHORTEST_SECONDS, min(waits))

    def _now(self) -> float:
        """For the rests of routes, which are this process's own business: tests set even that clock."""
        hand_set = self._db.clock.now()
        return time.monotonic() if hand_set is None else hand_set.timestamp()

    def _routes_for(self, event_type: str) -> list[Route]:
        return [route for route in self._routes if route.takes(event_type)]


def source_of(config: Config) -> str:
    """The `source` of this store's events."""
    return config.event_source or f"/pgqrs/{config.schema}"


def _shown(error: BaseException) -> str:
    try:
        text = str(error) if isinstance(error, PublishFailed) else f"{type(error).__name__}: {error}"
    except Exception as broken:  # noqa: BLE001 - its `__str__` is the user's, and may do anything
        text = f"{type(error).__name__} (its text could not be made: {type(broken).__name__})"
    # Databases take neither NUL nor half of a surrogate pair; an error that cannot be recorded would never count.
    return text.replace("\0", "").encode(errors="replace").decode()[:_LONGEST_ERROR]
