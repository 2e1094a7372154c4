"""A webhook whose name does not resolve: it holds a few threads of its own, and no other route waits for it."""

import asyncio
import socket
import subprocess
import sys
import threading
import time

import pytest

import pgqrs
from pgqrs.engine.outbox.publishers.lookups import MOST_LOOKUPS
from rig.outbox import an_event, emit, new_runs
from rig.receiver import receiving

SLOW = "hang.example.org"
GOOD = "good.example.org"


class NameServer:
    """Instead of the system's: hangs for one name until it is let go, and answers for all others."""

    def __init__(self):
        self.let_go = threading.Event()
        self.asked = []
        self.hanging = threading.Semaphore(0)

    def resolve(self, host, port, *args, **kwargs):
        self.asked.append(host)
        if host == SLOW:
            self.hanging.release()
            assert self.let_go.wait(60)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    @property
    def threads(self):
        return [each for each in threading.enumerate() if each.name == f"pgqrs-dns-{SLOW}"]


@pytest.fixture
def names(monkeypatch):
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.resolve)
    yield server
    server.let_go.set()
    for each in server.threads:
        each.join(10)


def publisher_to(host, port, **options):
    given = {"allow_http": True, "allow_hosts": [host], "ports": [port], "connect_timeout": 0.05, "timeout": 5}
    return pgqrs.HttpPublisher(f"http://{host}:{port}/hook", **given | options)


@pytest.mark.backends("sqlite")
async def test_other_routes_go_on_while_a_name_hangs(live_store, names):
    events = 60
    runs = await new_runs(live_store, 2 * events)
    kinds = ["slow.one", "good.one"] * events
    await emit(live_store, [(run_id, kind, "{}") for run_id, kind in zip(runs, kinds, strict=True)])
    async with receiving() as receiver:
        dispatcher = (
            pgqrs.dispatcher(live_store)
            .to(publisher_to(SLOW, receiver.port, connect_timeout=5), types=["slow.*"])
            .to(publisher_to(GOOD, receiver.port, connect_timeout=5), types=["good.*"])
            .concurrency(100)
        )
        running = asyncio.create_task(dispatcher.run_forever())
        deadline = time.monotonic() + 4  # before the first of the lookups is given up
        while len(receiver.requests) < events and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        came = len(receiver.requests)
        dispatcher.stop()
        names.let_go.set()
        await running

    assert came == events


async def test_the_loop_has_its_threads_for_others(names):
    publisher = publisher_to(SLOW, 1, connect_timeout=1)
    failures = await asyncio.gather(*(publisher.publish(an_event()) for _ in range(200)), return_exceptions=True)

    async with asyncio.timeout(5):
        assert await asyncio.to_thread(int, "7") == 7
    assert {str(each) for each in failures} == {f"{SLOW}: the name was not resolved within 1 s"}
    assert len(names.threads) <= MOST_LOOKUPS


async def test_requests_at_the_same_time_share_a_lookup(names):
    async with receiving() as receiver:
        publisher = publisher_to(SLOW, receiver.port, connect_timeout=30, timeout=60)
        requests = [asyncio.create_task(publisher.publish(an_event())) for _ in range(50)]
        # Each has begun, and waits for the same answer.
        await asyncio.to_thread(names.hanging.acquire)
        names.let_go.set()
        await asyncio.gather(*requests)
        shared = len(names.asked)
        await publisher.publish(an_event())

    assert len(receiver.requests) == 51
    # Later ones ask again: a name may have moved.
    assert (shared, len(names.asked)) == (1, 2)


async def until_refused(publisher):
    """A request whose time is up a moment before that of the lookup shares it with the next one."""
    for _ in range(10 * MOST_LOOKUPS):
        with pytest.raises(pgqrs.PublishFailed) as raised:
            await publisher.publish(an_event())
        if "still hang" in str(raised.value):
            return
        assert "not resolved within" in str(raised.value)
    pytest.fail("its lookups have no bound")


async def test_lookups_that_hang_are_bounded_and_then_refused_without_waiting(names):
    publisher = publisher_to(SLOW, 1)
    await until_refused(publisher)
    assert len(names.threads) == MOST_LOOKUPS

    with pytest.raises(pgqrs.PublishFailed, match=f"{MOST_LOOKUPS} lookups of the name still hang"):
        await publisher.publish(an_event())

    assert len(names.threads) == MOST_LOOKUPS


async def test_a_name_that_resolves_again_is_used_again(names):
    async with receiving() as receiver:
        publisher = publisher_to(SLOW, receiver.port)
        for _ in range(MOST_LOOKUPS):
            with pytest.raises(pgqrs.PublishFailed):
                await publisher.publish(an_event())
        names.let_go.set()
        for each in names.threads:
            await asyncio.to_thread(each.join, 10)
        await publisher.publish(an_event())

    assert len(receiver.requests) == 1


async def test_each_publisher_has_a_bound_of_its_own(names):
    for publisher in [publisher_to(SLOW, 1) for _ in range(3)]:
        await until_refused(publisher)

    assert len(names.threads) == 3 * MOST_LOOKUPS


_PROGRAM = f"""
import asyncio, socket, threading
import pgqrs
from rig.outbox import an_event

socket.getaddrinfo = lambda *_, **__: threading.Event().wait()

async def main():
    publisher = pgqrs.HttpPublisher("https://{SLOW}/", connect_timeout=0.05)
    try:
        await publisher.publish(an_event())
    except pgqrs.PublishFailed as error:
        print(error)

asyncio.run(main())
"""


def test_a_process_ends_although_a_lookup_hangs():
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=30, check=False, cwd="tests"
    )

    assert (done.stdout, done.stderr) == (f"{SLOW}: the name was not resolved within 0.05 s\n", "")
    assert done.returncode == 0
