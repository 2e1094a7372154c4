"""A database that looks alive: made by a real worker through the public API, in a second or two."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pgqrs
from pgqrs.api.store import Store


class ShiftedClock:
    """Real time, some while ago: what is done by it has a past."""

    def __init__(self, ago: timedelta) -> None:
        self.ago = ago

    def now(self) -> datetime:
        return datetime.now(UTC) - self.ago


async def order(ctx, params):
    await ctx.step("reserve", _after(0.004, {"reserved": params["order"]}))
    failing = params["order"] % 9 == 4

    async def charge():
        await asyncio.sleep(0.006)
        if failing:
            raise TimeoutError(f"payment gateway gave no answer for order {params['order']}")
        return {"charged": True}

    await ctx.step("charge", charge)
    await ctx.step("ship", _after(0.003, "shipped"))
    return {"order": params["order"], "shipped": True}


async def refund(ctx, params):
    await ctx.step("look_up", _after(0.002, {"amount": 12.5, "currency": "EUR"}))
    answer = await ctx.wait_for("approve", timeout=7 * 86400)
    await ctx.step("pay_back", _after(0.003, answer))
    return answer


async def report(ctx, params):
    await ctx.step("collect", _after(0.002, list(range(5))))
    await ctx.pause("Is the draft right?")
    return "sent"


async def nightly(ctx, params):
    parts = await asyncio.gather(*(ctx.step("copy", _after(0.003, n)) for n in range(4)))
    if params and params.get("broken"):
        raise ValueError(f"disk {params['broken']} is full")
    return sum(parts)


async def remind(ctx, params):
    await ctx.step("write", _after(0.001, "draft"))
    await ctx.sleep(3600)
    await ctx.step("send", _after(0.001, "sent"))


async def parent(ctx, params):
    children = [await ctx.spawn("billing.order", {"order": 1000 + n}) for n in range(3)]
    return [await child.result() for child in children]


FLOWS = {
    "billing.order": order,
    "billing.refund": refund,
    "billing.batch": parent,
    "ops.report": report,
    "ops.backup": nightly,
    "mail.reminder": remind,
}


def _after(seconds, value):
    async def work():
        await asyncio.sleep(seconds)
        return value

    return work


async def fill(config: pgqrs.Config, *, batches: int = 6, orders: int = 4) -> None:
    """`batches` spread over the last hour, each with so many orders and one of everything else."""
    clock = ShiftedClock(timedelta(minutes=55))
    store = await pgqrs.connect_with(config, install=True, clock=clock)
    try:
        for name in FLOWS:
            await store.create_workflow(name)
        await store.create_workflow("mail.newsletter")
        worker = await pgqrs.worker("worker-1", concurrency=50).workflows(FLOWS).create(store)
        for batch in range(batches):
            await _trigger(store, batch, orders)
            await worker.run_until_idle()
            clock.ago = timedelta(minutes=55) * (batches - 1 - batch) / max(1, batches - 1)
        await worker.close()
    finally:
        await store.close()
    store = await pgqrs.connect_with(config)
    await _furnish(store)
    # As if its process had been killed: a store that is closed hands back what it holds, and signs off its workers.
    await store.database.close()


async def _trigger(store: Store, batch: int, orders: int) -> None:
    params = [{"order": batch * orders + n, "customer": f"c{n % 7}"} for n in range(orders)]
    for each in params:
        await pgqrs.workflow("billing.order").trigger(each, attributes={"customer": each["customer"]}).execute(store)
    broken = {"broken": batch} if batch % 3 == 1 else None
    await pgqrs.workflow("ops.backup").trigger(broken, max_attempts=1).execute(store)
    if batch % 2 == 0:
        await (
            pgqrs.workflow("billing.refund")
            .trigger({"order": batch}, idempotency_key=f"refund-{batch}")
            .execute(store)
        )
        await pgqrs.workflow("mail.reminder").trigger({"to": "ann"}).execute(store)
    if batch == 1:
        await pgqrs.workflow("ops.report").trigger({"week": 46}).execute(store)
        await pgqrs.workflow("billing.batch").trigger({}).execute(store)


async def _furnish(store: Store) -> None:
    """What else a store has: a worker that is there, queues, a schedule, a dead letter, something in the outbox."""
    await pgqrs.worker("worker-2", concurrency=50).workflows(FLOWS).create(store)
    await pgqrs.schedules(store).create("backup", "ops.backup", cron="0 3 * * *")
    await pgqrs.schedules(store).create("newsletter", "mail.newsletter", every=timedelta(hours=6))
    await store.create_queue("thumbnails")
    producer = await store.producer("thumbnails")
    await producer.enqueue_many([{"file": "a.png"}, {"file": "c.png"}], max_attempts=1)
    consumer = await store.consumer("thumbnails", name="resizer")
    await consumer.dequeue(lease_seconds=1)
    await consumer.dequeue(lease_seconds=3600)
    for n in range(3):
        await producer.enqueue({"file": f"b{n}.png"}, delay=600 * n)
    await pgqrs.workflow("mail.newsletter").trigger({"issue": 12}).execute(store)
    await pgqrs.admin(store).pause_queue("mail.newsletter")
