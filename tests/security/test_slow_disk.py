"""A disk that takes its time holds up those who log in, and no other caller."""

import asyncio
import threading

import pytest

from pgqrs.web import Scope
from pgqrs.web.auth import file_threads
from pgqrs.web.auth import tokens as kept
from rig import http
from rig.asgi import Browser

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def disk(monkeypatch):
    """Syncs nothing until it is told to; knows how many wait."""

    class Disk:
        moves = threading.Event()
        waits = threading.Semaphore(0)

    def fsync(_descriptor):
        Disk.waits.release()
        assert Disk.moves.wait(60)

    monkeypatch.setattr("pgqrs.web.auth.private_file.os.fsync", fsync)
    yield Disk
    Disk.moves.set()


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


async def _begin_log_in(application, token):
    browser = Browser(application)
    shown = await browser.get("/login")
    return asyncio.create_task(browser.post("/login", {**shown.document.forms[0].fields, "token": token}))


async def test_other_routes_answer_while_a_log_in_waits_for_the_disk(store, file, request):
    """The finding: flock and fsync ran on the event loop."""
    token = kept.create(file, "ann", [Scope.READ])
    disk = request.getfixturevalue("disk")
    application = http.opened(store, tokens=file)
    logging_in = await _begin_log_in(application, token)
    assert await asyncio.to_thread(disk.waits.acquire, timeout=30)

    async with asyncio.timeout(30):
        assert (await Browser(application).get("/healthz")).status == 200
        known = {"authorization": f"Bearer {token}"}
        assert (await Browser(application).get("/api/v1/stats", **known)).status == 200
    assert not logging_in.done()
    disk.moves.set()
    assert (await logging_in).status == 303


async def test_those_who_wait_for_the_disk_are_bounded_and_then_refused(store, file, request, monkeypatch):
    monkeypatch.setattr(file_threads, "MOST_THREADS", 3)
    token = kept.create(file, "ann", [Scope.READ])
    disk = request.getfixturevalue("disk")
    application = http.opened(store, tokens=file)
    waiting = [await _begin_log_in(application, token) for _ in range(3)]
    assert await asyncio.to_thread(disk.waits.acquire, timeout=30)
    async with asyncio.timeout(30):
        refused = await (await _begin_log_in(application, token))

    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    disk.moves.set()
    assert [(await each).status for each in waiting] == [303] * 3
    assert (await (await _begin_log_in(application, token))).status == 303


async def test_one_that_gave_up_counts_until_its_thread_ends(monkeypatch):
    monkeypatch.setattr(file_threads, "MOST_THREADS", 1)
    threads, goes_on, ended = file_threads.FileThreads(), threading.Event(), threading.Event()

    def work():
        assert goes_on.wait(30)
        ended.set()

    first = asyncio.create_task(threads.run(work))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    with pytest.raises(file_threads.Problem):
        await threads.run(dict)
    goes_on.set()
    assert await asyncio.to_thread(ended.wait, 30)
    async with asyncio.timeout(30):
        while threads._running:
            await asyncio.sleep(0)
    assert await threads.run(dict) == {}
