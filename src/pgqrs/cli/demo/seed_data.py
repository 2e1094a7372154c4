"""A past for the demo's shop: hours of runs, made by its own code with a hand-set clock, so that all of it is true.

Nothing is written past the engine: each run was triggered, leased, executed and settled, each failure raised. The
same seed gives the same runs.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pgqrs.api.connect import connect_with
from pgqrs.api.dispatcher import dispatcher
from pgqrs.api.operations.admin import admin
from pgqrs.api.schedules import schedules
from pgqrs.api.store import Store
from pgqrs.api.worker import worker
from pgqrs.api.workflow import discover_workflows, workflow
from pgqrs.cli.demo import shop
from pgqrs.clock import ManualClock
from pgqrs.errors import ConfigError, PermanentError
from pgqrs.types import OutboxEvent, RunStatus

CUSTOMERS = ("ann", "bob", "carla", "deniz", "emil", "fatou", "goran", "hana")
GOODS = ("anvil", "birdcage", "candle", "drum", "easel", "feather", "globe", "hammock")
# Runs that come together. One at a time, writing them down takes four times as long.
_BURST = 4
CITIES = ("Lisbon", "Oslo", "Dakar", "Kyoto", "Lima", "Tunis")


class Filled(NamedTuple):
    """What came of it."""

    runs: int
    waiting: int
    failed: int


class _Planned(NamedTuple):
    at: datetime
    workflow: str
    params: dict[str, Any]
    customer: str


async def fill(
    store: Store, *, seed: int = 7, hours: float = 6.0, runs: int = 100, until: datetime | None = None
) -> Filled:
    """Writes a past of so many hours and runs into the store's database, ending at `until`, which is now.

    It is written through a second store with a hand-set clock; a store that has such a clock itself is used, and its
    clock moved to `until`.
    """
    async with AsyncExitStack() as stack:
        own = store.database.clock
        if isinstance(own, ManualClock):
            clock, past = own, store
            end = until or clock.now() + timedelta(hours=hours)
        else:
            if store.config.backend != "postgres" and store.config.path == ":memory:":
                raise ConfigError("a database in memory is this process's alone: give fill a store on a file")
            end = until or datetime.now(UTC)
            clock = ManualClock(end - timedelta(hours=hours))
            past = await stack.enter_async_context(connect_with(store.config, clock=clock))
        clock.advance(max(0.0, (end - timedelta(hours=hours) - clock.now()).total_seconds()))
        return await _Past(past, clock, end, seed).make(runs)


@contextmanager
def _in_silence() -> Iterator[None]:
    """What was to go wrong goes wrong: nobody need be warned of it."""
    ours = logging.getLogger("pgqrs")
    before = ours.level
    ours.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        ours.setLevel(before)


class _Past:
    def __init__(self, store: Store, clock: ManualClock, end: datetime, seed: int) -> None:
        self._store = store
        self._clock = clock
        self._begin = clock.now()
        self._end = end
        self._seed = seed
        self._dice = random.Random(seed)  # noqa: S311 - no secret
        self._workflows = discover_workflows(shop)
        self._work: Callable[[], Coroutine[Any, Any, None]]

    async def make(self, runs: int) -> Filled:
        made = await worker("shop-1", concurrency=20).workflows(self._workflows).create(self._store)
        self._work = made.run_until_idle
        with shop.paced(self._pass), _in_silence():
            await self._schedules()
            for burst in self._plan(runs):
                for planned in burst:
                    self._go_to(planned.at)
                    await self._trigger(planned)
                await self._work()
            self._go_to(self._end - timedelta(minutes=9))
            await self._decide()
            await self._queues()
            await self._publish()
            self._go_to(self._end - timedelta(minutes=4))
            await self._leave_some_open()
            self._go_to(self._end)
        await made.close()
        return await self._counted()

    async def _pass(self, seconds: float, what: str) -> None:
        """What a step takes: never the same twice, and the same in every past of this seed, whoever comes first."""
        self._clock.advance(seconds * random.Random(f"{self._seed} {what}").uniform(0.6, 2.4))  # noqa: S311 - no secret
        await asyncio.sleep(0)

    def _go_to(self, moment: datetime) -> None:
        self._clock.advance(max(0.0, (moment - self._clock.now()).total_seconds()))

    # -- runs --------------------------------------------------------------------------------------------

    def _plan(self, runs: int) -> list[list[_Planned]]:
        """Runs at their times, a few within seconds of each other. The last minutes are left to what is open."""
        length = (self._end - self._begin).total_seconds() - 600
        moments = sorted(self._dice.uniform(0, length) for _ in range(-(-runs // _BURST)))
        sizes = [min(_BURST, runs - n * _BURST) for n in range(len(moments))]
        return [
            [self._one(self._begin + timedelta(seconds=moment + self._dice.uniform(0, 2) * n)) for n in range(size)]
            for moment, size in zip(moments, sizes, strict=True)
        ]

    def _one(self, at: datetime) -> _Planned:
        dice, customer = self._dice, self._dice.choice(CUSTOMERS)
        name, params = dice.choices(
            (
                ("order", {"sku": dice.choice(GOODS), "euros": dice.randint(5, 99)}),
                ("order", {"sku": dice.choice(GOODS), "euros": dice.randint(20, 90), "trouble": "timeout"}),
                ("order", {"sku": dice.choice(GOODS), "euros": dice.randint(20, 90), "trouble": "declined"}),
                ("trip", {"city": dice.choice(CITIES), "cars": dice.randint(0, 2)}),
                ("gallery", {"pictures": dice.randint(2, 5)}),
                ("reminder", {"customer": customer, "seconds": float(dice.randint(60, 1_800))}),
                ("import_feed", {"file": f"feed-{dice.randint(1, 9)}.csv", "rows": dice.randint(100, 900)}),
                (
                    "import_feed",
                    {"file": f"feed-{dice.randint(1, 9)}.csv", "rows": 400, "bad_row": dice.randint(2, 99)},
                ),
            ),
            weights=(38, 9, 6, 12, 6, 12, 10, 7),
        )[0]
        return _Planned(at, name, params, customer)

    async def _trigger(self, planned: _Planned) -> int:
        known = self._workflows[planned.workflow]
        made = known.trigger(**planned.params, attributes={"customer": planned.customer})
        return int(await made.execute(self._store))

    async def _decide(self) -> None:
        """Large orders that somebody has decided about, and one run that nobody wanted any more."""
        order = workflow("order")
        for n, approved in enumerate((True, True, False)):
            planned = _Planned(self._clock.now(), "order", {"sku": GOODS[n], "euros": 120 + 80 * n}, CUSTOMERS[n])
            run_id = await self._trigger(planned)
            await self._work()
            answer = {"approved": approved, "comment": None if approved else "too dear"}
            await order.signal(run_id, self._store, "approval", answer, actor="ann")
            await self._work()
        unwanted = await self._trigger(
            _Planned(self._clock.now(), "reminder", {"customer": "bob", "seconds": 86_400.0}, "bob")
        )
        await self._work()
        await workflow("reminder").cancel(unwanted, self._store, reason="the basket is empty", actor="bob")

    async def _leave_some_open(self) -> None:
        """What is still open now: waiting for a yes, asleep until tomorrow, between two attempts, not begun."""
        for n in range(3):
            planned = _Planned(
                self._clock.now(), "order", {"sku": GOODS[n + 3], "euros": 180 + 60 * n}, CUSTOMERS[n + 3]
            )
            await self._trigger(planned)
            await self._work()
            self._clock.advance(30)
        for n in range(2):
            params = {"customer": CUSTOMERS[n], "seconds": 86_400.0 * (n + 1)}
            await self._trigger(_Planned(self._clock.now(), "reminder", params, CUSTOMERS[n]))
        await self._work()
        later = shop.gallery.trigger(pictures=4, delay=3_600, attributes={"customer": "hana"})
        await later.execute(self._store)

    # -- beside runs -------------------------------------------------------------------------------------

    async def _schedules(self) -> None:
        found = schedules(self._store)
        await found.create("hourly-report", "report", cron="0 * * * *")
        await found.create("nightly-feed", "import_feed", cron="30 2 * * *", params={"file": "all.csv", "rows": 900})
        await found.create("monday-mail", "reminder", cron="0 9 * * 1", params={"customer": "all", "seconds": 0.0})
        await found.pause("monday-mail")

    async def _queues(self) -> None:
        """Plain queues beside the runs: one with a message that could not be delivered, one that is paused."""
        store = self._store
        await store.create_queue("emails")
        emails = await store.producer("emails")
        await emails.enqueue_many({"to": f"{name}@example.org", "template": "welcome"} for name in CUSTOMERS)

        async def deliver(mail: dict[str, str]) -> None:
            if mail["to"].startswith("carla"):
                raise PermanentError("550 no such mailbox")

        async with await store.consumer("emails", name="mailer") as consumer:
            await consumer.process(deliver, until_idle=True)
        await emails.enqueue_many({"to": f"{name}@example.org", "template": "thanks"} for name in CUSTOMERS[:4])
        await store.create_queue("sms")
        await (await store.producer("sms")).enqueue_many({"to": name, "text": "on its way"} for name in CUSTOMERS[:3])
        await admin(store).pause_queue("sms")

    async def _publish(self) -> None:
        """Most of the outbox is out; one receiver refused, the latest waits."""

        async def take(event: OutboxEvent) -> None:
            if event.payload["sku"] == "anvil":
                raise ConnectionError("https://carrier.example: 503 Service Unavailable")

        for _ in range(2):
            await dispatcher(self._store).to(take, types=["order.*"]).max_attempts(2).run_until_idle()
            self._clock.advance(30)
        await self._trigger(_Planned(self._clock.now(), "order", {"sku": "drum", "euros": 30}, "emil"))
        await self._work()

    async def _counted(self) -> Filled:
        verbs = admin(self._store)
        found = [
            (await verbs.count_runs(status=status)).count if status else (await verbs.count_runs()).count
            for status in (None, RunStatus.PAUSED, RunStatus.ERROR)
        ]
        return Filled(*found)
