"""The outbox: in order per run, at least once, the same id each time; backoff, dead letters, routes."""

import asyncio
import os
from types import SimpleNamespace

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.tables import outbox
from pgqrs.engine.outbox import dispatcher as engine_outbox
from rig.outbox import WORKFLOW, emit, new_runs


class Receiver:
    """Takes what it is sent, except for what it is told to refuse."""

    def __init__(self):
        self.got = []
        self.refused = set()

    async def publish(self, event):
        self.got.append(event)
        if self.refused & {"all", str(event.payload)}:
            raise RuntimeError(f"no {event.payload}")

    @property
    def payloads(self):
        return [event.payload for event in self.got]


@pytest.fixture
def receiver():
    return Receiver()


@pytest.fixture
def dispatcher(store, receiver):
    return pgqrs.dispatcher(store).to(receiver)


@pytest.fixture
def admin(store):
    return pgqrs.admin(store).outbox


async def emitted(store, *, runs=1, each=3, kind="order.shipped"):
    ids = await new_runs(store, runs)
    for n in range(each):
        await emit(store, [(run_id, kind, f'"{run_id}/{n}"') for run_id in ids])
    return ids


async def test_events_of_a_run_are_published_in_their_order(store, dispatcher, receiver, admin):
    [run_id] = await emitted(store, each=5)

    await dispatcher.run_until_idle()

    assert receiver.payloads == [f"{run_id}/{n}" for n in range(5)]
    counts = await admin.counts()
    assert (counts.pending, counts.published, counts.dead) == (0, 5, 0)


async def test_an_event_tells_where_it_is_from(store, dispatcher, receiver, clock):
    [run_id] = await emitted(store, each=1)

    await dispatcher.run_until_idle()

    [event] = receiver.got
    assert (event.type, event.source) == ("order.shipped", f"/pgqrs/{store.config.schema}")
    assert (event.subject, event.created_at) == (f"{WORKFLOW}/{run_id}", clock.now())
    assert len(event.id) == 36


async def test_what_was_published_is_not_published_again(store, dispatcher, receiver, clock):
    await emitted(store)
    await dispatcher.run_until_idle()

    clock.advance(days=1)
    await dispatcher.run_until_idle()

    assert len(receiver.got) == 3


async def test_runs_are_published_side_by_side_and_a_run_one_by_one(store):
    ids = await emitted(store, runs=4, each=2)
    under_way, together, published = set(), asyncio.Barrier(4), []

    async def publish(event):
        assert event.run_id not in under_way
        under_way.add(event.run_id)
        await asyncio.wait_for(together.wait(), 10)
        under_way.remove(event.run_id)
        published.append(event.run_id)

    await pgqrs.dispatcher(store).to(publish).run_until_idle()

    assert sorted(published) == sorted(ids * 2)


async def test_a_dispatcher_that_was_frozen_after_its_claim_gives_it_back_and_does_not_send(store, monkeypatch):
    await emitted(store, runs=1, each=1)
    frozen, published = [], []
    real = engine_outbox.time.monotonic
    monkeypatch.setattr(engine_outbox, "time", SimpleNamespace(monotonic=lambda: real() + 3600 * len(frozen)))
    freeze = faults.at("after", "outbox.claim", lambda: frozen.append("for an hour"))

    with faults.injected(freeze), faults.recorded() as points:
        await pgqrs.dispatcher(store).to(published.append).run_until_idle()

    steps = [point.name for point in points if point.phase == "before" and point.name.startswith("outbox.")]
    assert steps.index("outbox.give_back") < steps.index("outbox.published")
    assert len(published) == 1


async def test_no_more_is_claimed_than_is_published_at_once(store, admin):
    await emitted(store, runs=10, each=1)
    held = []

    async def publish(event):
        held.append(len(list(await outbox.look(store.database, most=100))))

    await pgqrs.dispatcher(store).to(publish).concurrency(1).run_until_idle()

    assert held == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]


async def test_a_refused_event_is_sent_again_with_the_same_id_after_a_growing_time(
    store, dispatcher, receiver, clock
):
    [_run_id] = await emitted(store, each=1)
    receiver.refused = {"all"}

    await dispatcher.run_until_idle()
    clock.advance(0.99)
    await dispatcher.run_until_idle()
    assert len(receiver.got) == 1
    clock.advance(0.52)
    await dispatcher.run_until_idle()
    clock.advance(1.99)
    await dispatcher.run_until_idle()
    assert len(receiver.got) == 2
    receiver.refused = set()
    clock.advance(1.02)
    await dispatcher.run_until_idle()

    assert len({event.id for event in receiver.got}) == 1
    assert [event.attempts for event in receiver.got] == [0, 1, 2]


async def test_what_comes_after_a_refused_event_of_its_run_waits_for_it(store, dispatcher, receiver, clock):
    one, other = await emitted(store, runs=2, each=3)
    receiver.refused = {f"{one}/1"}

    await dispatcher.run_until_idle()
    assert sorted(receiver.payloads) == sorted([f"{one}/0", f"{one}/1", *(f"{other}/{n}" for n in range(3))])
    # What is emitted meanwhile waits, too.
    await emit(store, [(one, "order.shipped", f'"{one}/3"')])
    await dispatcher.run_until_idle()
    assert f"{one}/3" not in receiver.payloads
    receiver.refused = set()
    clock.advance(2)
    await dispatcher.run_until_idle()

    assert [p for p in receiver.payloads if p.startswith(f"{one}/")] == [f"{one}/{n}" for n in (0, 1, 1, 2, 3)]


async def test_an_event_is_dead_after_its_last_attempt_and_its_run_goes_on(store, receiver, admin, clock):
    [run_id] = await emitted(store, each=3)
    receiver.refused = {f"{run_id}/0"}
    dispatcher = pgqrs.dispatcher(store).to(receiver).max_attempts(2)

    for _ in range(2):
        clock.advance(10)
        await dispatcher.run_until_idle()

    # What was put off with it need not wait any longer.
    assert receiver.payloads == [f"{run_id}/{n}" for n in (0, 0, 1, 2)]
    [dead] = await admin.dead()
    assert (dead.payload, dead.attempts, dead.last_error) == (f"{run_id}/0", 2, f"RuntimeError: no {run_id}/0")
    assert dead.dead_at is not None
    assert (await admin.counts()).dead == 1


async def test_events_behind_a_dead_one_go_on_at_once(store, receiver):
    [run_id] = await emitted(store, each=2)
    receiver.refused = {f"{run_id}/0"}

    await pgqrs.dispatcher(store).to(receiver).max_attempts(1).run_until_idle()

    assert receiver.payloads == [f"{run_id}/0", f"{run_id}/1"]


async def test_a_dead_event_that_is_replayed_starts_anew_with_its_id(store, receiver, admin):
    [_run_id] = await emitted(store, each=1)
    receiver.refused = {"all"}
    dispatcher = pgqrs.dispatcher(store).to(receiver).max_attempts(1)
    await dispatcher.run_until_idle()
    receiver.refused = set()

    assert await admin.replay() == 1
    assert await admin.replay() == 0
    await dispatcher.run_until_idle()

    first, second = receiver.got
    assert (first.id, second.attempts) == (second.id, 0)
    assert (await admin.counts()).published == 1


async def test_only_the_dead_are_replayed(store, receiver, dispatcher, admin):
    await emitted(store, each=2)
    ids = [event.event_id for event in await admin.unpublished()]

    assert await admin.replay([*ids, 987654]) == 0


async def test_the_unpublished_come_in_pages_by_run_and_order(store, admin):
    one, other = await emitted(store, runs=2, each=3)

    first = await admin.unpublished(limit=4)
    second = await admin.unpublished(limit=4, after=first[-1])

    assert [e.payload for e in first + second] == [f"{run_id}/{n}" for run_id in (one, other) for n in range(3)]


async def test_the_dead_come_in_pages_longest_dead_first(store, receiver, admin, clock):
    receiver.refused = {"all"}
    dispatcher = pgqrs.dispatcher(store).to(receiver).max_attempts(1)
    expected = []
    for _ in range(5):
        [run_id] = await emitted(store, each=1)
        expected.append(f"{run_id}/0")
        await dispatcher.run_until_idle()
        clock.advance(100)

    first = await admin.dead(limit=3)
    second = await admin.dead(limit=3, after=first[-1])

    assert [e.payload for e in first + second] == expected


async def test_counts_tell_how_long_the_oldest_waits(store, receiver, dispatcher, admin, clock):
    assert (await admin.counts()).oldest_pending_age_seconds is None
    await emitted(store, each=2)
    receiver.refused = {"all"}
    await dispatcher.run_until_idle()
    clock.advance(100)

    counts = await admin.counts()

    assert (counts.pending, counts.failing, counts.oldest_pending_age_seconds) == (2, 1, pytest.approx(100))


# -- routes ----------------------------------------------------------------------------------------------


async def test_an_event_goes_to_every_route_that_takes_its_type(store):
    [run_id] = await new_runs(store, 1)
    await emit(store, [(run_id, kind, "null") for kind in ("order.shipped", "order.paid", "orders", "invoice.sent")])
    everything, orders, paid = Receiver(), Receiver(), Receiver()
    dispatcher = pgqrs.dispatcher(store).to(everything).to(orders, types=["order.*"])

    await dispatcher.to(paid, types=["order.paid", "nothing"]).run_until_idle()

    assert [e.type for e in everything.got] == ["order.shipped", "order.paid", "orders", "invoice.sent"]
    assert [e.type for e in orders.got] == ["order.shipped", "order.paid"]
    assert [e.type for e in paid.got] == ["order.paid"]


async def test_an_event_that_no_route_takes_counts_as_published(store, receiver, admin):
    await emitted(store, each=2, kind="invoice.sent")

    await pgqrs.dispatcher(store).to(receiver, types=["order.*"]).run_until_idle()

    assert receiver.got == []
    assert (await admin.counts()).published == 2


async def test_a_route_that_took_an_event_does_not_get_it_again_for_anothers_sake(store, receiver, clock):
    await emitted(store, each=1)
    receiver.refused = {"all"}
    other = Receiver()
    dispatcher = await pgqrs.dispatcher(store).to(other).to(receiver)._made()

    await dispatcher.run_until_idle()
    clock.advance(2)
    receiver.refused = set()
    await dispatcher.run_until_idle()

    assert (len(other.got), len(receiver.got)) == (1, 2)


async def test_a_receiver_that_keeps_failing_rests_and_its_events_stay_alive(store, clock, admin):
    """Behind a receiver that is down, each event would otherwise use up its attempts."""
    await emitted(store, runs=50, each=1)
    down = Receiver()
    down.refused = {"all"}
    dispatcher = await pgqrs.dispatcher(store).to(down).concurrency(4)._made()

    await dispatcher.run_until_idle()
    assert len(down.got) == 4
    clock.advance(1.5)
    await dispatcher.run_until_idle()

    # After the rest one event tries it, for all.
    assert len(down.got) == 5
    assert sum(event.attempts for event in await admin.unpublished()) == 5
    down.refused = set()
    clock.advance(60)
    await dispatcher.run_until_idle()
    assert (await admin.counts()).published == 50


async def test_a_receiver_that_hangs_leaves_room_for_the_others(store, admin):
    await emitted(store, runs=20, each=1, kind="slow")
    await emitted(store, runs=20, each=1, kind="fast")
    hanging, gone = 0, asyncio.Event()

    async def hang(event):
        nonlocal hanging
        hanging += 1
        await gone.wait()

    fast = Receiver()
    dispatcher = pgqrs.dispatcher(store).to(hang, types=["slow"]).to(fast, types=["fast"]).concurrency(4)
    running = asyncio.create_task(dispatcher.run_forever())
    async with asyncio.timeout(10):
        while len(fast.got) < 20:
            await asyncio.sleep(0.01)

    assert hanging == 2
    dispatcher.stop()
    gone.set()
    await running


async def test_a_publication_that_takes_too_long_is_a_failed_attempt(store, admin):
    await emitted(store, each=1)

    async def hang(event):
        await asyncio.Event().wait()

    await pgqrs.dispatcher(store).to(hang).deadline(0.05).run_until_idle()

    [event] = await admin.unpublished()
    assert (event.attempts, event.last_error) == (1, "no answer within 0.05 s")


async def test_a_plain_function_publishes_from_a_thread(store, admin):
    import threading

    await emitted(store, each=2)
    threads = set()

    await pgqrs.dispatcher(store).to(lambda event: threads.add(threading.current_thread())).run_until_idle()

    assert threads
    assert threading.main_thread() not in threads
    assert (await admin.counts()).published == 2


async def test_a_function_that_returns_a_dispatcher_has_published_nothing(store, admin):
    await emitted(store, each=1)

    await pgqrs.dispatcher(store).to(pgqrs.dispatcher).run_until_idle()

    [event] = await admin.unpublished()
    assert "returned a dispatcher" in event.last_error


async def test_an_error_that_no_database_can_hold_is_recorded_all_the_same(store, admin):
    await emitted(store, each=1)

    def fail(event):
        raise RuntimeError("nul \0 and half a pair \ud800" + "x" * 10_000)

    await pgqrs.dispatcher(store).to(fail).run_until_idle()

    [event] = await admin.unpublished()
    assert event.attempts == 1
    assert event.last_error.startswith("RuntimeError: nul  and half a pair ?")
    assert len(event.last_error) <= 500


# -- several dispatchers, stopping -----------------------------------------------------------------------


async def test_what_another_dispatcher_holds_is_not_published_before_its_lease_is_over(store, receiver, clock):
    [run_id] = await emitted(store, each=2)
    [head] = [seen for seen in await outbox.look(store.database, most=10) if seen.is_head]
    await outbox.claim(store.database, [head.event_id], token=7, lease_seconds=30, source="")
    dispatcher = pgqrs.dispatcher(store).to(receiver)

    clock.advance(29)
    await dispatcher.run_until_idle()
    assert receiver.got == []
    clock.advance(1)
    await dispatcher.run_until_idle()

    assert receiver.payloads == [f"{run_id}/0", f"{run_id}/1"]


async def test_a_dispatcher_that_lost_its_claim_changes_nothing(store, receiver, dispatcher, clock, admin):
    await emitted(store, each=1)
    [seen] = await outbox.look(store.database, most=10)
    [stale] = await outbox.claim(store.database, [seen.event_id], token=7, lease_seconds=30, source="")
    clock.advance(30)
    [held] = await outbox.claim(store.database, [seen.event_id], token=8, lease_seconds=30, source="")

    assert not await outbox.published(store.database, stale)
    assert not await outbox.failed(store.database, stale, error="x", delay=1, max_attempts=1)
    await outbox.give_back(store.database, stale)

    [event] = await admin.unpublished()
    assert (event.attempts, event.last_error) == (0, None)
    assert await outbox.look(store.database, most=10) == []
    assert await outbox.published(store.database, held)


async def test_an_event_behind_an_unpublished_one_cannot_be_claimed(store):
    await emitted(store, each=2)
    first, second = await outbox.look(store.database, most=10)

    claimed = await outbox.claim(store.database, [second.event_id], token=7, lease_seconds=30, source="")

    assert (first.is_head, second.is_head, claimed) == (True, False, [])


async def test_a_stopped_dispatcher_finishes_what_is_under_way(store, admin):
    await emitted(store, runs=1, each=3)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def publish(event):
        begun.set()
        await go_on.wait()

    dispatcher = pgqrs.dispatcher(store).to(publish)
    running = asyncio.create_task(dispatcher.run_forever())
    await asyncio.wait_for(begun.wait(), 10)

    dispatcher.stop()
    go_on.set()
    await asyncio.wait_for(running, 10)

    assert (await admin.counts()).published == 1


async def test_a_dispatcher_that_is_stopped_while_it_looks_claims_nothing_more(store, admin):
    await emitted(store, runs=1, each=3)
    go_on, recorded, looks = asyncio.Event(), asyncio.Event(), []

    async def publish(event):
        await go_on.wait()

    def stop_at_the_second_look(point):
        if point == ("after", "outbox.published"):
            recorded.set()
        if point == ("before", "outbox.look"):
            looks.append(point)
            if len(looks) == 2:
                dispatcher.stop()
                go_on.set()
                # Then the next one is at the head of its run.
                return recorded.wait()
        return None

    dispatcher = pgqrs.dispatcher(store).to(publish)
    with faults.injected(stop_at_the_second_look):
        await asyncio.wait_for(dispatcher.run_forever(), 20)

    assert len(looks) == 2
    assert (await admin.counts()).published == 1


async def test_a_cancelled_dispatcher_gives_back_what_it_holds(store, receiver, admin):
    await emitted(store, runs=3, each=1)
    begun, all_begun = [], asyncio.Event()

    async def publish(event):
        begun.append(event)
        if len(begun) == 3:
            all_begun.set()
        await asyncio.Event().wait()

    running = asyncio.create_task(pgqrs.dispatcher(store).to(publish).run_forever())
    await asyncio.wait_for(all_begun.wait(), 10)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await pgqrs.dispatcher(store).to(receiver).run_until_idle()

    assert {e.id for e in receiver.got} == {e.id for e in begun}
    assert {e.attempts for e in receiver.got} == {0}


async def test_a_running_dispatcher_hears_of_a_replay(store, receiver, admin):
    await emitted(store, each=1)
    receiver.refused = {"all"}
    await pgqrs.dispatcher(store).to(receiver).max_attempts(1).run_until_idle()
    receiver.refused = set()
    dispatcher = pgqrs.dispatcher(store).to(receiver)
    running = asyncio.create_task(dispatcher.run_forever())

    await admin.replay()
    async with asyncio.timeout(10):
        while len(receiver.got) < 2:
            await asyncio.sleep(0.01)

    dispatcher.stop()
    await running


@pytest.mark.parametrize("outcome", ["published", "dead"])
async def test_what_was_set_aside_goes_on_at_once_when_its_turn_comes(store, outcome):
    await emitted(store, each=2)
    first, second = await outbox.look(store.database, most=10)
    await outbox.set_aside(store.database, [second.event_id], seconds=30)
    [claimed] = await outbox.claim(store.database, [first.event_id], token=7, lease_seconds=30, source="")
    assert await outbox.look(store.database, most=10) == []

    if outcome == "published":
        await outbox.published(store.database, claimed)
    else:
        await outbox.failed(store.database, claimed, error="no", delay=60, max_attempts=1)

    assert [(seen.event_id, seen.is_head) for seen in await outbox.look(store.database, most=10)] == [
        (second.event_id, True)
    ]


async def test_what_a_handler_emits_is_published_as_it_was_emitted(connect, config, receiver, clock):
    store = await pgqrs.connect_with(config.with_changes(outbox="succeeded"), install=True, clock=clock)

    async def handler(ctx, order):
        async def ship():
            await ctx.emit("order.shipped", order)

        await ctx.emit("order.packed", {"order": order, "at": clock.now()})
        await ctx.step("ship", ship)

    await store.create_workflow(WORKFLOW)
    run_id = await pgqrs.workflow(WORKFLOW).trigger("A 7").execute(store)
    worker = await pgqrs.consumer("w", 0, WORKFLOW).handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()

    await pgqrs.dispatcher(store).to(receiver).run_until_idle()
    await store.close()

    assert [event.type for event in receiver.got] == ["order.packed", "order.shipped", "pgqrs.run.succeeded"]
    assert receiver.payloads[:2] == [{"order": "A 7", "at": clock.now()}, "A 7"]
    assert {event.subject for event in receiver.got} == {f"{WORKFLOW}/{run_id}"}


async def test_a_running_dispatcher_publishes_what_a_worker_emits_without_waiting_for_its_next_look(
    live_store, receiver
):
    import time

    await live_store.create_workflow(WORKFLOW)
    worker = (
        await pgqrs.consumer("w", 0, WORKFLOW).handler(lambda ctx: ctx.emit("order.shipped", 1)).create(live_store)
    )
    dispatcher = pgqrs.dispatcher(live_store).to(receiver)
    running = asyncio.create_task(dispatcher.run_forever())
    seconds = []
    for n in range(1, 6):
        await pgqrs.workflow(WORKFLOW).trigger(None).execute(live_store)
        await worker.run_until_idle()
        emitted_at = time.monotonic()
        async with asyncio.timeout(10):
            while len(receiver.got) < n:
                await asyncio.sleep(0.005)
        seconds.append(time.monotonic() - emitted_at)
    dispatcher.stop()
    await running
    await worker.close()

    print(f"{live_store.config.backend}: published {sorted(seconds)[2] * 1000:.0f} ms after the run had ended")
    # Polling alone would take up to three seconds.
    assert sorted(seconds)[2] < 1


# -- long lines ------------------------------------------------------------------------------------------


async def test_a_run_with_hundreds_of_events_does_not_hide_the_others(store, receiver):
    [many] = await new_runs(store, 1)
    await emit(store, [(many, "order.shipped", f'"{many}/{n}"') for n in range(300)])
    [few] = await emitted(store, each=2)
    seen = []

    async def publish(event):
        seen.append(event.run_id)
        if len(seen) == 10:
            dispatcher.stop()

    dispatcher = pgqrs.dispatcher(store).to(publish).concurrency(2)
    await dispatcher.run_forever()

    assert seen.count(few) == 2


async def test_hundreds_of_runs_that_wait_for_a_resting_receiver_do_not_hide_the_others(store, receiver, admin):
    await emitted(store, runs=600, each=1, kind="bad")
    await emitted(store, runs=3, each=1, kind="good")
    down = Receiver()
    down.refused = {"all"}

    await pgqrs.dispatcher(store).to(down, types=["bad"]).to(receiver, types=["good"]).run_until_idle()

    assert len(receiver.got) == 3
    assert (await admin.counts()).failing == len(down.got) == 8


async def test_a_run_with_hundreds_of_events_is_published_in_order_to_its_end(store, receiver):
    [many] = await new_runs(store, 1)
    await emit(store, [(many, "order.shipped", str(n)) for n in range(300)])

    await pgqrs.dispatcher(store).to(receiver).run_until_idle()

    assert receiver.payloads == list(range(300))


# -- bad input -------------------------------------------------------------------------------------------


async def test_a_dispatcher_without_a_route_is_refused(store):
    with pytest.raises(pgqrs.ConfigError, match=r"\.to\(publisher\)"):
        await pgqrs.dispatcher(store).run_until_idle()


@pytest.mark.parametrize("types", ["order.*", [], [""], ["*.shipped"], ["a b"], [None]])
async def test_types_that_are_no_patterns_are_refused(store, receiver, types):
    with pytest.raises(pgqrs.ConfigError, match="types"):
        pgqrs.dispatcher(store).to(receiver, types=types)


async def test_numbers_that_cannot_be_are_refused(store):
    dispatcher = pgqrs.dispatcher(store)

    for verb, value in (("concurrency", 0), ("max_attempts", 0), ("deadline", 0), ("to", 5)):
        with pytest.raises(pgqrs.ConfigError):
            getattr(dispatcher, verb)(value)


# -- NOTIFY ----------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite", "turso")
async def test_notify_needs_postgresql(store):
    with pytest.raises(pgqrs.ConfigError, match="PostgreSQL"):
        await pgqrs.dispatcher(store).to(pgqrs.NotifyPublisher("orders")).run_until_idle()


@pytest.mark.skipif("PGQRS_TEST_PGBOUNCER" in os.environ, reason="nobody can LISTEN through a transaction pooler")
@pytest.mark.backends("postgres")
async def test_notify_tells_whoever_listens_and_sends_a_reference_for_what_is_too_long(store):
    import asyncpg
    from cloudevents.core.bindings.http import HTTPMessage, from_structured
    from cloudevents.core.formats.json import JSONFormat

    [run_id] = await new_runs(store, 1)
    await emit(store, [(run_id, "order.shipped", '{"ä":1}'), (run_id, "order.shipped", f'"{"ä" * 4_000}"')])
    heard: asyncio.Queue[str] = asyncio.Queue()
    connection = await asyncpg.connect(store.config.dsn)
    await connection.add_listener(f"c_{store.config.schema}", lambda *args: heard.put_nowait(args[3]))

    await pgqrs.dispatcher(store).to(pgqrs.NotifyPublisher(f"c_{store.config.schema}")).run_until_idle()
    short, long = [await asyncio.wait_for(heard.get(), 10) for _ in range(2)]
    await connection.close()

    short, long = [from_structured(HTTPMessage({}, text.encode()), JSONFormat()) for text in (short, long)]
    assert (short.get_type(), short.get_data()) == ("order.shipped", {"ä": 1})
    assert (long.get_data(), long.get_extension("dataref")) == (None, long.get_id())


@pytest.mark.parametrize("channel", ["", "a-b", 'x"; drop table y', "Ä", None, "x" * 64])
def test_channels_that_are_no_names_are_refused(channel):
    with pytest.raises(pgqrs.ConfigError, match="channel"):
        pgqrs.NotifyPublisher(channel)


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize("error", [asyncio.CancelledError(), Unspeakable()], ids=["cancelled", "no text"])
async def test_whatever_a_publisher_raises_is_an_attempt(store, admin, error):
    await emitted(store, each=1)
    tries = []

    async def publish(event):
        tries.append(event)
        if len(tries) < 5:
            raise error

    await pgqrs.dispatcher(store).to(publish).run_until_idle()

    assert len(tries) == 1
    [event] = await admin.unpublished()
    assert (event.attempts, event.last_error.split()[0].strip(":")) == (1, type(error).__name__)
