"""GET /stream: hints of what has changed, over a real socket."""

import asyncio
import dataclasses

import pytest

import pgqrs
from pgqrs.db.views import changes
from pgqrs.web.auth import tokens as kept
from pgqrs.web.auth.access import Scope
from pgqrs.web.live import change_feed
from pgqrs.web.live import sse as streams
from pgqrs.web.live.change_feed import ALL, ChangeFeed, Hint
from rig import http

flow = pgqrs.workflow("flow")


@pytest.fixture
async def port(store):
    await store.create_workflow("flow")
    async with http.server(store) as port:
        yield port


async def test_a_new_run_and_what_becomes_of_it_are_hinted_at(store, port, listen):
    stream = await listen(port)
    assert stream.status == 200
    assert b"content-type: text/event-stream" in stream.head.lower()

    run_id = await flow.trigger(None).execute(store)
    await stream.hear("run", run_id)
    await flow.pause(run_id, store)
    await stream.hear("run", run_id)
    await store.create_queue("more")
    await stream.hear("queue")
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *")
    await stream.hear("schedule")
    await store.consumer("more")
    await stream.hear("worker")


@pytest.mark.backends("sqlite", "postgres")
async def test_without_a_history_something_is_hinted_at_all_the_same(config, clock, listen):
    silent = dataclasses.replace(config, audit="none")
    async with pgqrs.connect_with(silent, install=True, clock=clock) as store:
        await store.create_workflow("flow")
        run_id = await flow.trigger(None).execute(store)
        async with http.server(store) as port:
            stream = await listen(port)
            await flow.pause(run_id, store)
            await stream.hear("run", None)
            await stream.close()
    if config.backend == "postgres":
        from conftest import drop_schema

        await drop_schema(config)


@pytest.mark.backends("sqlite")
async def test_a_stream_that_was_cut_off_goes_on_where_it_was(store, port, listen):
    stream = await listen(port)
    first = await flow.trigger(None).execute(store)
    await stream.hear("run", first)
    await stream.close()
    # Another one keeps the watcher at it.
    other = await listen(port)
    second = await flow.trigger(None).execute(store)
    await other.hear("run", second)

    again = await listen(port, Last_Event_ID=stream.last_id)
    heard = await again.hear("run", second)

    assert ("run", first) not in heard
    assert ALL not in heard


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("last", ["00000000-1", "x", "-", "9" * 60, "ffffffff-99999999999999999999"])
async def test_one_that_cannot_know_what_it_missed_is_told_to_look_at_everything(store, port, last, listen):
    stream = await listen(port, Last_Event_ID=last)

    assert await stream.hint() == ("all", None)


@pytest.mark.backends("sqlite")
async def test_what_happened_while_nobody_listened_is_hinted_at(store, port, listen):
    stream = await listen(port)
    run_id = await flow.trigger(None).execute(store)
    await stream.hear("run", run_id)
    await stream.close()
    while any(task.get_name() == "pgqrs-web-watcher" for task in asyncio.all_tasks()):
        await asyncio.sleep(0.01)
    missed = await flow.trigger(None).execute(store)

    again = await listen(port, Last_Event_ID=stream.last_id)

    await again.hear("run", missed)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
async def test_the_page_of_somebody_else_hears_nothing(port, headers, listen):
    assert (await listen(port, **headers)).status == 403


@pytest.mark.backends("sqlite")
async def test_one_asks_for_all(store, port, monkeypatch, listen):
    looks = 0
    pulse = changes.pulse

    async def counted(*given, **more):
        nonlocal looks
        looks += 1
        return await pulse(*given, **more)

    monkeypatch.setattr(changes, "pulse", counted)
    open_ones = [await listen(port) for _ in range(20)]
    for _ in range(5):
        run_id = await flow.trigger(None).execute(store)
        for stream in open_ones:
            await stream.hear("run", run_id)
    most = 5 * 4 + 20

    assert 5 <= looks <= most
    for stream in open_ones:
        await stream.close()


@pytest.mark.backends("sqlite")
async def test_nobody_asks_when_nobody_listens(store, port, monkeypatch, listen):
    stream = await listen(port)
    await stream.close()
    async with asyncio.timeout(60):
        while any(task.get_name() == "pgqrs-web-watcher" for task in asyncio.all_tasks()):
            await asyncio.sleep(0.01)


@pytest.mark.backends("sqlite")
async def test_there_is_an_end_to_the_number_of_streams(store, port, monkeypatch, listen):
    monkeypatch.setattr(streams, "MOST_STREAMS", 2)
    first, _ = await listen(port), await listen(port)
    refused = await listen(port)
    assert (refused.status, b"too-many-streams" in await refused._reader.read(400)) == (503, True)
    await first.close()

    async with asyncio.timeout(60):
        while (await listen(port)).status != 200:
            await asyncio.sleep(0.01)


@pytest.mark.backends("sqlite")
async def test_silence_is_broken_by_a_comment_and_a_revoked_token_hears_no_more(
    store, token_file, tokens, monkeypatch, listen
):
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.05)
    async with http.server(store, tokens=token_file, actions=None) as port:
        assert (await listen(port)).status == 401
        assert (await listen(port, Authorization=f"Bearer {tokens[Scope.TRIGGER]}")).status == 403
        stream = await listen(port, Authorization=f"Bearer {tokens[Scope.READ]}")
        assert await stream.line() == "retry: 2000"
        assert await stream.line() == ": still here"
        kept.revoke(token_file, "a_read")

        assert await stream.ended()


@pytest.mark.backends("sqlite")
async def test_asking_for_the_head_alone_has_an_end(port):
    answer = await http.raw(
        port, b"HEAD /stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + http.BEARER + b"\r\n"
    )

    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")


# -- the watcher by itself -----------------------------------------------------------------------------------


def _pulse(*, events=(), new_runs=(), numbers=0, at_work=None, newest=0, other=0):
    kinds = {"run": (numbers,), "queue": (other,), "worker": (0,), "outbox": (0,), "schedule": (0,)}
    return changes.ChangeMarks(kinds, 0, newest, events, new_runs, at_work or {})


@pytest.fixture
def seen():
    made = change_feed._Seen()
    assert made.compared(_pulse()) == []
    return made


def test_runs_that_moved_are_named_once(seen):
    found = seen.compared(_pulse(events=[(1, 7), (2, 7), (3, 8)], newest=3, numbers=1))
    assert found == [Hint("run", 7), Hint("run", 8)]
    # Read once more for the sake of those that come late, and not told again.
    assert seen.compared(_pulse(events=[(1, 7), (2, 7), (3, 8)], newest=3, numbers=1)) == []
    assert seen.compared(_pulse(events=[(1, 7), (2, 7), (3, 8), (4, 9)], newest=4, numbers=1)) == [Hint("run", 9)]


def test_an_event_that_was_committed_late_is_told(seen):
    seen.compared(_pulse(events=[(1, 7), (3, 8)], newest=3))

    assert seen.compared(_pulse(events=[(1, 7), (2, 9), (3, 8)], newest=3)) == [Hint("run", 9)]


def test_events_are_read_again_for_some_seconds_only(seen, monkeypatch):
    now = change_feed.time.monotonic()
    monkeypatch.setattr(change_feed.time, "monotonic", lambda: now)
    seen.compared(_pulse(events=[(1, 7)], newest=1))
    assert seen.events_from == 0
    now += change_feed.LATE_SECONDS + 1
    seen.compared(_pulse(events=[(1, 7)], newest=1))

    assert seen.events_from == 1


def test_too_many_are_told_as_one(seen):
    many = [(n, n) for n in range(1, change_feed.MOST_IDS + 2)]

    assert seen.compared(_pulse(events=many, newest=len(many))) == [Hint("run")]
    assert seen.compared(_pulse(events=None, newest=5000, other=1)) == [Hint("run"), Hint("queue")]


def test_runs_at_work_are_named_when_they_begin_go_on_or_are_done(seen):
    assert seen.compared(_pulse(at_work={1: (0,), 2: (0,)})) == [Hint("run", 1), Hint("run", 2)]
    assert seen.compared(_pulse(at_work={1: (1,), 2: (0,)})) == [Hint("run", 1)]
    assert seen.compared(_pulse(at_work={1: (1,)}, numbers=1)) == [Hint("run", 2)]


def test_a_change_that_nobody_can_name_is_told_without_a_name(seen):
    assert seen.compared(_pulse(numbers=1)) == [Hint("run")]


async def test_a_stream_that_lags_is_told_to_look_at_everything():
    watcher = ChangeFeed(None)
    place = watcher.place(None)
    for number in range(1, change_feed.MOST_KEPT + 5):
        watcher._last = number
        watcher._kept.append((number, Hint("run", number)))

    assert watcher.since(place) == [(change_feed.MOST_KEPT + 4, ALL)]
    assert watcher.since(change_feed.MOST_KEPT + 2)[0] == (
        change_feed.MOST_KEPT + 3,
        Hint("run", change_feed.MOST_KEPT + 3),
    )


@pytest.mark.backends("sqlite")
async def test_a_database_that_is_away_does_not_make_streams_deaf_for_good(store, port, monkeypatch, listen):
    monkeypatch.setattr(change_feed, "SECONDS_AFTER_FAILURE", 0.01)
    monkeypatch.setattr(change_feed, "LOOK_EVERY_SECONDS", 0.01)
    stream = await listen(port)
    pulse, failures = changes.pulse, []

    async def away(*given, **more):
        if len(failures) < 3:
            failures.append(1)
            raise pgqrs.ConnectionFailed("away")
        return await pulse(*given, **more)

    monkeypatch.setattr(changes, "pulse", away)
    run_id = await flow.trigger(None).execute(store)

    await stream.hear("run", run_id)
    assert len(failures) == 3


@pytest.mark.parametrize(
    ("took", "rested"), [(0.0, 0.0), (0.02, 0.4), (0.2, 4.0), (60.0, change_feed.MOST_REST_SECONDS)]
)
async def test_the_longer_pages_take_the_more_seldom_they_are_told_to_follow(monkeypatch, took, rested):
    now = 1_000.0

    async def pass_time(seconds):
        nonlocal now
        now += seconds

    monkeypatch.setattr(change_feed.time, "monotonic", lambda: now)
    watcher, before = ChangeFeed(None), now
    with watcher.pages.making():
        # Another one at the same time is not more time.
        with watcher.pages.making():
            now += took / 2
        now += took / 2
    after = now
    monkeypatch.setattr(change_feed.asyncio, "sleep", pass_time)
    await watcher._rest_from_pages(0.0, since=after)

    assert watcher.pages.seconds == pytest.approx(took) == pytest.approx(after - before)
    assert now - after == pytest.approx(rested)
