"""PostgreSQL: a statement of the outbox was carried out, its reply was lost; nothing is lost, failed or counted twice."""

import pytest

import pgqrs
from pgqrs.db.drivers.postgres import driver
from pgqrs.db.tables import outbox
from rig.outbox import emit, new_runs

pytestmark = pytest.mark.backends("postgres")


@pytest.fixture
def lose_reply(monkeypatch):
    """Arms one loss: the named statement is carried out, and then the connection breaks."""
    armed = []

    def losing(verb):
        async def call(self, query, **params):
            result = await verb(self, query, **params)
            if query.name in armed:
                armed.remove(query.name)
                raise ConnectionResetError("the reply was lost")
            return result

        return call

    monkeypatch.setattr(driver.PostgresSession, "fetch", losing(driver.PostgresSession.fetch))
    monkeypatch.setattr(driver.PostgresSession, "execute", losing(driver.PostgresSession.execute))
    yield armed.append
    assert armed == []


@pytest.fixture
async def events(store):
    """Two of one run."""
    [run_id] = await new_runs(store, 1)
    await emit(store, [(run_id, "order.shipped", str(n)) for n in range(2)])
    return [event.event_id for event in await pgqrs.admin(store).outbox.unpublished()]


async def claimed(store, event_id, token=7):
    [one] = await outbox.claim(store.database, [event_id], token=token, lease_seconds=30, source="")
    return one


@pytest.mark.parametrize("statement", ["claim_events", "events_held"])
async def test_a_claim_whose_reply_was_lost_is_found_again(store, events, lose_reply, statement):
    lose_reply(statement)

    assert (await claimed(store, events[0])).event.event_id == events[0]


@pytest.mark.parametrize("statement", ["mark_published", "pull_next"])
async def test_a_publication_whose_reply_was_lost_is_recorded_and_the_next_may_go(
    store, events, lose_reply, statement
):
    one = await claimed(store, events[0])
    lose_reply(statement)

    assert await outbox.published(store.database, one)

    assert (await pgqrs.admin(store).outbox.counts()).published == 1
    assert [seen.event_id for seen in await outbox.look(store.database, most=10) if seen.is_head] == [events[1]]


@pytest.mark.parametrize("statement", ["mark_failed", "how_it_stands", "push_later"])
async def test_a_failure_whose_reply_was_lost_is_counted_once(store, events, lose_reply, clock, statement):
    one = await claimed(store, events[0])
    lose_reply(statement)

    assert await outbox.failed(store.database, one, error="no", delay=5, max_attempts=3)

    first, second = await pgqrs.admin(store).outbox.unpublished()
    assert (first.attempts, first.last_error, second.attempts) == (1, "no", 0)
    assert await outbox.look(store.database, most=10) == []
    clock.advance(5)
    assert len(await outbox.look(store.database, most=10)) == 2


async def test_a_last_failure_whose_reply_was_lost_lets_the_next_go(store, events, lose_reply):
    one = await claimed(store, events[0])
    lose_reply("mark_failed")

    assert await outbox.failed(store.database, one, error="no", delay=5, max_attempts=1)

    [dead] = await pgqrs.admin(store).outbox.dead()
    assert dead.attempts == 1
    assert [seen.event_id for seen in await outbox.look(store.database, most=10) if seen.is_head] == [events[1]]


@pytest.mark.parametrize("verb", ["published", "failed"])
async def test_a_stale_dispatcher_whose_reply_was_lost_is_still_stale(store, events, lose_reply, clock, verb):
    stale = await claimed(store, events[0])
    clock.advance(30)
    held = await claimed(store, events[0], token=8)
    options = {"error": "no", "delay": 5, "max_attempts": 3} if verb == "failed" else {}
    lose_reply(f"mark_{verb}")

    assert not await getattr(outbox, verb)(store.database, stale, **options)

    assert await outbox.published(store.database, held)


async def test_a_stale_failure_is_not_taken_for_that_of_the_present_holder(store, events, lose_reply, clock):
    stale = await claimed(store, events[0])
    clock.advance(30)
    held = await claimed(store, events[0], token=8)
    await outbox.failed(store.database, held, error="theirs", delay=5, max_attempts=3)
    lose_reply("mark_failed")

    assert not await outbox.failed(store.database, stale, error="ours", delay=5, max_attempts=3)

    assert (await pgqrs.admin(store).outbox.unpublished())[0].last_error == "theirs"


@pytest.mark.row("B4.6")
async def test_a_whole_dispatch_goes_on_whatever_reply_is_lost(store, events, lose_reply):
    got = []

    async def publish(event):
        got.append(event.payload)

    for statement in ("look", "claim_events", "events_held", "mark_published", "pull_next"):
        lose_reply(statement)
    await pgqrs.dispatcher(store).to(publish).run_until_idle()

    assert got == [0, 1]
