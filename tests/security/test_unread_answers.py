"""Clients that ask for more than they read: an answer counts until it is sent, and so do the bytes that wait."""

import asyncio
import socket
from contextlib import asynccontextmanager

import psutil
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

import pgqrs
from pgqrs.web import Caller, Scope, app
from pgqrs.web.auth import tokens as kept
from pgqrs.web.live import sse
from pgqrs.web.problems import Problem
from pgqrs.web.server import unsent
from pgqrs.web.server.unsent import Unsent
from rig import http
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")

API = http.API
# Three of them, in a page that shows each whole.
VALUE_BYTES = 1_900_000
LARGE = f"{API}/queues/tasks/messages?limit=3"


@pytest.fixture
async def furnished(store):
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger(None).execute(store)
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many(["x" * VALUE_BYTES] * 3)


@asynccontextmanager
async def not_reading(port, token, count):
    """Clients that read the status of a large answer, and no more; gives the statuses."""
    loop = asyncio.get_running_loop()
    clients = [socket.socket() for _ in range(count)]

    async def ask(client):
        client.setblocking(False)  # noqa: FBT003 - the standard library's
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(client, ("127.0.0.1", port))
        head = f"GET {LARGE} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"
        await loop.sock_sendall(client, head.encode())
        return int((await loop.sock_recv(client, 12)).split()[1])

    try:
        async with asyncio.timeout(120):
            yield await asyncio.gather(*map(ask, clients))
    finally:
        for client in clients:
            client.close()


async def test_slow_readers_of_large_answers_do_not_fill_the_memory(config, furnished, tmp_path):
    """The finding: 120 slow readers of 6 MB each took the server from 120 to 851 MB."""
    file = tmp_path / "tokens"
    slow, other = (kept.create(file, name, [Scope.READ]) for name in ("slow", "other"))
    async with serving(config, "--tokens", file) as served:
        assert len((await served.get(LARGE, **served.bearer(other))).body) > 5_000_000
        process = psutil.Process(served.process.pid)
        before = process.memory_info().rss

        async with not_reading(served.port, slow, 80) as statuses:
            grown = process.memory_info().rss - before
            assert statuses.count(200) == unsent.MOST_BYTES_PER_CALLER // (3 * VALUE_BYTES)
            assert statuses.count(429) == 80 - statuses.count(200)
            assert grown < 200_000_000
            # Small answers are none that wait, and others have room of their own.
            assert (await served.get(f"{API}/runs?limit=1", **served.bearer(slow))).status == 200
            assert (await served.get(LARGE, **served.bearer(other))).status == 200
        async with asyncio.timeout(60):
            while (await served.get(LARGE, **served.bearer(slow))).status != 200:
                pass


class Slow:
    """An exchange whose client takes nothing of the answer until it is told to."""

    def __init__(self, application, path, root):
        self.began, self.takes = asyncio.Event(), asyncio.Event()
        self.status = None
        target, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": root + target, "raw_path": (root + target).encode(), "query_string": query.encode(),
            "root_path": "", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }  # fmt: skip
        self.task = asyncio.create_task(application(scope, self._receive, self._send))

    async def _receive(self):
        await asyncio.Event().wait()

    async def _send(self, message):
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.began.set()
        await self.takes.wait()

    async def end(self):
        self.takes.set()
        await self.task


@pytest.fixture(params=["served", "mounted"])
def asked(request, store, monkeypatch):
    """Begins a request of the one caller that there is, who may have two at the same time."""
    monkeypatch.setattr("pgqrs.web.application.MOST_AT_ONCE", 2)
    monkeypatch.setattr("pgqrs.web.application.MOST_DOCUMENTS", 2)

    async def ann(_request):
        return Caller("ann", frozenset(Scope))

    ours = app(store, authorize=ann)
    around = ours if request.param == "served" else Starlette(routes=[Mount("/pgqrs", app=ours)])

    async def begin(path):
        made = Slow(around, path, "" if request.param == "served" else "/pgqrs")
        async with asyncio.timeout(60):
            await made.began.wait()
        return made

    begin.application = ours
    return begin


@pytest.mark.parametrize("path", [f"{API}/runs", "/runs", "/runs/1", "/runs/999", f"{API}/runs/1/export", "/login"])
async def test_a_request_counts_until_its_answer_is_sent(asked, furnished, path):
    first = [await asked(path) for _ in range(2)]
    refused = await asked(path)
    await first[0].end()
    again = await asked(path)

    assert [refused.status, again.status == first[0].status] == [429, True]
    for each in (first[1], refused, again):
        await each.end()


@pytest.mark.parametrize("path", [f"{API}/runs", "/runs", f"{API}/runs/1/export", "/stream"])
async def test_a_request_whose_client_is_gone_counts_no_more(asked, furnished, path):
    for each in [await asked(path) for _ in range(2)]:
        each.task.cancel()
        await asyncio.gather(each.task, return_exceptions=True)

    state = asked.application.state
    assert [share._taken for share in (state.share, state.document_share, state.stream_share)] == [{}, {}, {}]
    assert not state.unsent
    assert not state.watcher.listeners
    await state.watcher.close()


async def test_streams_take_no_place_of_requests(asked, furnished):
    opened = [await asked("/stream") for _ in range(4)]
    listed = await asked(f"{API}/runs")

    assert [each.status for each in (*opened, listed)] == [200] * 5
    for each in (*opened, listed):
        each.task.cancel()
    await asyncio.gather(*(each.task for each in (*opened, listed)), return_exceptions=True)
    await asked.application.state.watcher.close()


@pytest.mark.parametrize(("setting", "status"), [("MOST_STREAMS_PER_CALLER", 429), ("MOST_STREAMS", 503)])
async def test_streams_that_are_opened_in_the_same_moment_are_all_counted(store, monkeypatch, setting, status):
    """The finding: each was checked before the others were counted."""
    monkeypatch.setattr(sse, setting, 3)
    monkeypatch.setattr("pgqrs.web.application.MOST_AT_ONCE", 100)

    async def ann(_request):
        return Caller("ann", frozenset(Scope))

    application = app(store, authorize=ann)
    begun = [Slow(application, "/stream", "") for _ in range(20)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(each.began.wait() for each in begun))

    assert sorted(each.status for each in begun) == [200] * 3 + [status] * 17
    for each in begun:
        each.task.cancel()
    await asyncio.gather(*(each.task for each in begun), return_exceptions=True)
    await application.state.watcher.close()


def test_bytes_that_wait_are_counted_for_their_caller_and_for_all():
    waiting = Unsent(most=300, per_caller=200, small=10)
    with waiting.held("ann", 150):
        with pytest.raises(Problem, match="150 bytes of answers wait") as refused, waiting.held("ann", 51):
            pass
        with waiting.held("ann", 10), waiting.held("ann", 50), waiting.held("bob", 100):
            # All together have what they may; a caller that has nothing yet gets one answer, however large.
            with pytest.raises(Problem), waiting.held("bob", 11):
                pass
            with waiting.held("eve", 1_000), pytest.raises(Problem), waiting.held("eve", 11):
                pass
    assert refused.value.status == 429
    assert not waiting
