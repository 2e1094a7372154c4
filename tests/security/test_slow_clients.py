"""Clients that keep a server waiting do not keep others out, and are put out in time."""

import asyncio
import contextlib
import json

import pytest

import pgqrs
from pgqrs.telemetry import health as health_port
from pgqrs.web import request_body
from pgqrs.web.auth import tokens as kept
from pgqrs.web.live import sse
from pgqrs.web.server import connections, exchange, rate_limit
from pgqrs.web.server.connections import Gate, share_of
from pgqrs.web.server.rate_limit import Share
from rig import http
from security import slow_clients
from security.slow_clients import (
    AFTER_THE_ANSWER,
    LONG_POLL,
    NOT_READING,
    SILENT,
    SLOW_BODY,
    SLOW_HEADERS,
    Clients,
    ask,
    attack,
    web_target,
)

pytestmark = pytest.mark.backends("sqlite")

QUICK = 0.4


@pytest.fixture
def quick(monkeypatch):
    """Limits that a test can wait for."""
    for name in ("HEADER_SECONDS", "LINGER_SECONDS", "FLUSH_SECONDS"):
        monkeypatch.setattr(connections, name, QUICK)
    monkeypatch.setattr(exchange, "ANSWER_SECONDS", QUICK)
    monkeypatch.setattr(exchange, "UNREAD_SECONDS", QUICK / 4)
    monkeypatch.setattr(request_body, "BODY_SECONDS", QUICK)


@pytest.fixture
async def furnished(store, tmp_path):
    async def large(ctx, params):
        for number in range(5):
            await ctx.step(f"large {number}", lambda: "x" * slow_clients.LARGE_ROW_BYTES)

    await store.create_workflow("flow")
    await store.create_workflow("other")
    await pgqrs.workflow("flow").trigger(None).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(large).create(store)
    await worker.run_until_idle()
    await worker.close()
    await pgqrs.workflow("other").trigger(None).execute(store)
    return kept.create(tmp_path / "tokens", "operator", ["operate"])


@contextlib.asynccontextmanager
async def served(store, token, tmp_path):
    async with http.server(store, tokens=tmp_path / "tokens", actions=None) as port:
        yield web_target("serve", port, token=token)


async def _gone(target):
    async with asyncio.timeout(60):
        while target.held:
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "kind", [SILENT, SLOW_HEADERS, SLOW_BODY, AFTER_THE_ANSWER, NOT_READING], ids=lambda k: k.name
)
async def test_a_slow_client_is_put_out(store, furnished, tmp_path, quick, monkeypatch, kind):
    # So long that it is not what ends these connections.
    monkeypatch.setattr("pgqrs.web.server.server.KEEP_ALIVE_SECONDS", 3600)
    async with (
        served(store, furnished, tmp_path) as target,
        Clients(target, kind, 3, every=QUICK / 8),
    ):
        # Connections are accepted in their order: when this one is answered, the clients have been let in.
        assert await ask(target, 30) is not None
        await _gone(target)
        assert await ask(target, 30) is not None


@pytest.mark.parametrize(
    "kind", [SILENT, SLOW_HEADERS, SLOW_BODY, AFTER_THE_ANSWER, NOT_READING], ids=lambda k: k.name
)
async def test_slow_clients_do_not_keep_others_out(store, furnished, tmp_path, monkeypatch, kind):
    """The limits are the real ones, so nothing ends by itself meanwhile: the longest waiting makes place."""
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)
    monkeypatch.setattr(connections, "MOST_PER_ADDRESS", 20)
    monkeypatch.setattr(connections, "MOST_REFUSED", 5)
    async with served(store, furnished, tmp_path) as target:
        outcome = await attack(target, kind, 40, asked=5, seconds=30)

    assert (outcome.served, outcome.held <= 25) == (5, True)


async def test_499_silent_connections_without_a_token_keep_nobody_out(tmp_path):
    async with slow_clients.serve(tmp_path) as target:
        outcome = await attack(target, SILENT, 499, asked=10, seconds=30)

    assert outcome.served == 10


async def test_one_token_cannot_hold_every_connection(store, furnished, tmp_path, monkeypatch):
    monkeypatch.setattr("pgqrs.web.application.MOST_AT_ONCE", 5)
    other = kept.create(tmp_path / "tokens", "another", ["read"])
    async with served(store, furnished, tmp_path) as target, Clients(target, LONG_POLL, 5):
        theirs = web_target("serve", target.port, token=other)
        refused = await http.raw(target.port, target.request(target.probe, "Connection: close"))
        assert refused.split()[1] == b"429"
        assert b"requests of this caller are in progress" in refused
        assert await ask(theirs, 30) is not None
        assert target.held == 5


async def test_of_a_burst_as_many_are_heard_as_there_is_room_for(store, furnished, tmp_path, monkeypatch):
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 40)
    monkeypatch.setattr(connections, "MOST_PER_ADDRESS", 40)
    monkeypatch.setattr(connections, "GRACE_SECONDS", 60.0)
    monkeypatch.setattr(connections, "MOST_REFUSED", 50)
    async with served(store, furnished, tmp_path) as target:
        request = target.request(target.waits.replace("60", "1"), "Connection: close")
        answers = await asyncio.gather(*(http.raw(target.port, request) for _ in range(100)))

    statuses = [each.split()[1] if each else b"closed" for each in answers]
    assert statuses.count(b"202") == 40
    assert statuses.count(b"503") + statuses.count(b"closed") == 60


async def test_a_client_that_is_gone_no_longer_waits(store, furnished, tmp_path, monkeypatch):
    monkeypatch.setattr("pgqrs.web.application.MOST_AT_ONCE", 3)
    async with served(store, furnished, tmp_path) as target:
        async with Clients(target, LONG_POLL, 3):
            assert await ask(target, 0.2) is None
        async with asyncio.timeout(30):
            while await ask(target, 30) is None:
                await asyncio.sleep(0.02)


async def test_what_a_caller_held_is_free_again_when_it_ends():
    share = Share(1)
    with share.taken("ann"):
        with pytest.raises(rate_limit.Problem) as refused:
            share.check("ann")
        share.check("bob")
    share.check("ann")

    assert refused.value.status == 429
    assert not share._taken


async def test_one_caller_cannot_hold_every_stream(store, monkeypatch):
    monkeypatch.setattr(sse, "MOST_STREAMS_PER_CALLER", 2)
    async with http.server(store) as port:
        opened = [await http.Stream.open(port) for _ in range(3)]
        assert [each.status for each in opened] == [200, 200, 429]
        for each in opened:
            await each.close()


async def test_a_stream_ends_after_its_time_and_can_be_taken_up_again(store, monkeypatch):
    monkeypatch.setattr(sse, "MOST_STREAM_SECONDS", 0.2)
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.05)
    async with http.server(store) as port:
        opened = await http.Stream.open(port)
        assert await opened.ended(60)
        await opened.close()


@pytest.mark.parametrize("kind", [SILENT, SLOW_HEADERS], ids=lambda k: k.name)
async def test_a_health_probe_is_answered_beside_64_silent_connections(store, kind):
    async def probe():
        return []

    async with health_port.serving_health(probe) as port:
        target = slow_clients.Target("health", port, "/healthz")
        outcome = await attack(target, kind, 2 * health_port._MOST_CONNECTIONS, asked=5, seconds=30)

    assert (outcome.served, outcome.held <= health_port._MOST_CONNECTIONS) == (5, True)


async def test_mounted_on_plain_uvicorn_a_body_after_the_answer_ends_the_connection(tmp_path):
    async with slow_clients.mounted(tmp_path) as target:
        outcome = await attack(target, AFTER_THE_ANSWER, 20, asked=5, seconds=30, until=60)
        assert (outcome.served, outcome.held) == (5, 0)
        outcome = await attack(target, SLOW_BODY, 20, asked=5, seconds=30, until=60)
        assert (outcome.served, outcome.held) == (5, 0)


async def test_a_request_with_two_lengths_is_refused_and_ends_the_connection(store):
    request = (
        b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    )
    async with http.server(store) as port:
        answer = await http.raw(port, request)

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1
    assert b"connection: close" in answer


@pytest.mark.parametrize(("size", "status"), [(15_000, b"200"), (16_500, b"431"), (60_000, b"400")])
async def test_headers_of_more_than_16_kb_are_refused_however_they_arrive(store, size, status):
    async with http.server(store) as port:
        head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Large: " + b"x" * size
        answer = await http.raw(port, head + b"\r\n\r\n")
        assert answer.split()[1] == status
        address = b"GET /healthz?" + b"x" * size + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert (await http.raw(port, address)).split()[1] == (b"422" if status == b"200" else status)


async def test_an_answer_before_a_body_that_is_on_its_way_is_not_lost(store):
    body = json.dumps({"workflow": "x" * 100_000}).encode()
    request = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with http.server(store) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request + body)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()

    # The body was read after all, so that the connection could be used again.
    assert [answer.startswith(b"HTTP/1.1 404"), answer.count(b"HTTP/1.1 200")] == [True, 1]


async def test_a_client_that_waits_to_be_asked_is_not_asked_for_a_body_in_vain(store, furnished, tmp_path):
    async with served(store, furnished, tmp_path) as target:
        answer = await http.raw(
            target.port,
            target.request(
                "/api/v1/runs", "Content-Length: 1000", "Expect: 100-continue", method="POST", known=False
            ),
        )

    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in answer


class _Waiting:
    """A connection as the gate sees it."""

    def __init__(self, gate, host, since):
        self.waits_since, self.host, self.gate, self.is_open = since, host, gate, False
        self.is_open = gate.admit(self, host)

    def abort(self):
        self.is_open = False
        self.gate.left(self)


def test_the_one_that_waits_longest_makes_place_and_only_at_its_own_address_when_that_has_its_share():
    gate = Gate(most=4, per_address=2)
    at_work = _Waiting(gate, "192.0.2.1", None)
    idle = _Waiting(gate, "192.0.2.1", 1.0)
    others = [_Waiting(gate, "192.0.2.2", 0.5), _Waiting(gate, "192.0.2.3", 3.0)]
    again = _Waiting(gate, "192.0.2.1", 4.0)
    assert [each.is_open for each in (at_work, idle, *others, again)] == [True, False, True, True, True]
    newest = _Waiting(gate, "192.0.2.4", 5.0)
    assert [each.is_open for each in (at_work, *others, again, newest)] == [True, False, True, True, True]
    assert len(gate) == 4


def test_connections_at_work_make_no_place():
    gate = Gate(most=2, per_address=2)
    first = [_Waiting(gate, "192.0.2.1", None) for _ in range(2)]

    assert not _Waiting(gate, "192.0.2.2", 1.0).is_open
    assert all(each.is_open for each in first)


def test_a_proxy_that_is_named_has_no_share():
    gate = Gate(trusted=["192.0.2.1"], most=10, per_address=2)

    assert all(_Waiting(gate, "192.0.2.1", None).is_open for _ in range(10))


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        (None, None, True),
    ],
)
def test_what_shares_a_share(one, other, together):
    assert (share_of(one) == share_of(other)) is together
