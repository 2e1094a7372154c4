"""Small programs with a known right end: queues, schedules, the outbox, and clients that only trigger."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, ClassVar

import pgqrs
from pgqrs.types import RunStatus
from proof.crash.scenarios.scenario import Scenario, rows


class Outbox(Scenario):
    """Events of a step, of the handler and of the run itself; published in order, by a dispatcher."""

    name = "outbox"
    settings: ClassVar[dict[str, Any]] = {"outbox": "created,succeeded"}
    # One event in flight for each run, and a step.
    width = 2
    right = "sent"

    async def handler(self, ctx):
        async def ship():
            self.did(ctx, "ship")
            await ctx.emit("order.shipped", {"n": 1})

        await ctx.step("ship", ship)
        await ctx.emit("order.sent", {"n": 2})
        return "sent"

    async def program(self):
        await super().program()
        await self.world.work_until(self._is_empty, work=self._dispatch)

    async def _dispatch(self):
        async def publish(event):
            self.world.effect(f"outbox {event.type}", key=str(event.event_id))

        await pgqrs.dispatcher(self.world.store).to(publish).run_until_idle()

    async def _is_empty(self):
        return not (await rows(self.world.store, "select 1 from pgqrs_outbox_events where published_at is null"))

    async def check(self):
        await super().check()
        assert await self._is_empty(), "events are left"
        published = [line for line in self.world.ledger.lines("effect") if line["what"] != "outbox ship"]
        first = list(dict.fromkeys(int(line["key"]) for line in published))
        assert first == sorted(first), f"published in the order {first}"
        assert len(first) == 4, f"{len(first)} events, not four"


class Scheduled(Scenario):
    """An interval that makes up for what it missed, and a point in time. Each slot has one run."""

    name = "scheduled"
    grows = True
    # What has become due while nobody looked runs at once.
    width = 20

    async def handler(self, ctx):
        slot = ctx.attributes["slot"]
        return await self.step(ctx, "tick", slot, label=f" {slot}")

    async def program(self):
        schedules = pgqrs.schedules(self.world.store)

        async def create():
            await schedules.create("every", "scheduled", every=1800, catch_up="all", overlap="allow")

        async def once():
            await schedules.create("once", "scheduled", at=datetime(2030, 1, 1, 6, tzinfo=UTC))

        async def enough():
            return await self.count_runs("scheduled", status=RunStatus.SUCCESS) >= 3

        await self.world.once("create every", create)
        await self.world.once("create once", once)
        await self.world.work_until(enough)
        await self.world.once("pause", lambda: schedules.pause("every"))
        await self.world.work_until(self._is_done)

    async def _is_done(self):
        runs = await self.count_runs("scheduled")
        once = await pgqrs.schedules(self.world.store).slots("once")
        return bool(once) and runs == await self.count_runs("scheduled", status=RunStatus.SUCCESS)

    async def check(self):
        schedules = pgqrs.schedules(self.world.store)
        for name in ("every", "once"):
            slots = await schedules.slots(name)
            times = [slot.slot_at for slot in slots]
            assert times, f"{name} never fired"
            assert len(set(times)) == len(times), f"a slot of {name} fired twice"
            assert all(slot.run_id is not None for slot in slots), f"a slot of {name} was let go of"
            gaps = {(one - other).total_seconds() for one, other in pairwise(times)}
            assert gaps <= {1800.0}, f"slots of {name} are missing: {gaps}"
        assert await self._is_done(), "a run has not ended"


class Queue(Scenario):
    """Enqueued, handled by a consumer's handler, archived."""

    name = "queue"
    # All of them are leased at once.
    width = 4
    payloads = ("one", "two", "three")

    @property
    def handlers(self):
        return {}

    async def prepare(self, store):
        await store.create_queue("queue")

    async def program(self):
        producer = await self.world.store.producer("queue")
        for payload in self.payloads:
            await self.world.once(payload, lambda payload=payload: producer.enqueue(payload))
        await self.world.work_until(self._is_empty, work=self._work)

    async def _work(self):
        async with await self.world.store.consumer("queue") as consumer:
            await self._consume(consumer)

    async def _consume(self, consumer):
        async def handle(message: pgqrs.Message):
            self.world.effect(f"queue {message.payload}", key=message.payload)

        await consumer.process(handle, until_idle=True)

    async def _is_empty(self):
        return not await rows(self.world.store, "select 1 from pgqrs_messages")

    async def check(self):
        assert await self._is_empty(), "messages are left"
        archived = [row[0] for row in await rows(self.world.store, "select payload from pgqrs_archived_messages")]
        # An enqueue whose answer was not heard is given again, and then there are two.
        spare = len(self.world.ledger.lines("fault"))
        for payload, count in Counter(archived).items():
            assert count <= 1 + spare, f"{payload} was enqueued {count} times"
        assert set(archived) == {f'"{payload}"' for payload in self.payloads}, archived


class QueueByHand(Queue):
    """Dequeued, extended, handed back once, archived."""

    name = "queue_by_hand"
    by_hand = True

    async def _consume(self, consumer):
        while messages := await consumer.dequeue(2):
            for message in messages:
                await message.extend(600)
                if message.attempts == 1 and message.payload == "two":
                    await message.release(count_attempt=True)
                    continue
                self.world.effect(f"queue {message.payload}", key=message.payload)
                await message.archive()


class Prefixes(Scenario):
    """A worker that serves what begins with its prefix, and finds a workflow that is made later."""

    name = "bill.one"
    width = 2
    right = 1

    @property
    def handlers(self):
        return {"bill.one": self.handler, "bill.two": self.handler, "mail.one": self.handler}

    async def prepare(self, store):
        await store.create_workflow("bill.one")

    async def handler(self, ctx):
        return await self.step(ctx, "pay", 1)

    async def program(self):
        self.world.prefixes = ["bill."]
        await super().program()
        await self.world.once("create", lambda: self.world.store.create_workflow("bill.two"))
        run_id = await self.world.trigger("bill.two")
        await self.world.work_until_ended("bill.two", run_id)

    async def check(self):
        await super().check()
        await self.ended_with("bill.two", await self.world.trigger("bill.two"), 1)


class Producer(Scenario):
    """A client that triggers with keys and without, one and many, while a worker takes what is there."""

    name = "producer"
    width = 5
    keyed = ("a", "b")

    async def handler(self, ctx, params):
        return await self.step(ctx, "work", params, label=f" {params}")

    async def program(self):
        flow, store = pgqrs.workflow("producer"), self.world.store
        for key in self.keyed:
            await self.world.once(key, lambda key=key: flow.trigger(key, idempotency_key=key).execute(store))
        await self.world.once("again", lambda: flow.trigger("a", idempotency_key="a").execute(store))
        await self.world.once("plain", lambda: flow.trigger("plain", priority=3).execute(store))
        await self.world.once("many", lambda: flow.trigger_many(["m", "n"]).execute(store))

        async def all_ended():
            return not await rows(store, "select 1 from pgqrs_messages")

        await self.world.work_until(all_ended)

    async def check(self):
        answers = {line["name"]: line["answer"] for line in self.world.ledger.lines("acknowledged")}
        assert answers["a"] == answers["again"], "one key has two runs"
        for run_id in (answers["a"], answers["b"], answers["plain"], *answers["many"]):
            run = await self.world.run("producer", run_id)
            assert run.status is RunStatus.SUCCESS, f"acknowledged run {run_id} is {run.status}: {run.last_error}"
        keys = await rows(
            self.world.store, "select idempotency_key from pgqrs_workflow_runs where idempotency_key is not null"
        )
        assert len(keys) == 2, f"{len(keys)} runs have a key"
