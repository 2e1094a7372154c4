"""Requests that cost the server more than their clients: in its parser, in its places, in its files and in its log."""

import asyncio
import logging
import signal
import socket

import psutil
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

import pgqrs
from pgqrs.web.server import connections, server
from pgqrs.web.server.connections import Gate, GuardedConnection
from rig import http
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")

QUICK = 0.4
HOST = b"Host: localhost\r\n"


# -- the parser ------------------------------------------------------------------------------------------


async def test_the_parser_gets_little_at_a_time(store, monkeypatch):
    """The finding: 256 KB of chunks of one byte took it 0.5 s. 20 such clients, and nobody was answered for 60 s."""
    sizes = []
    parse = H11Protocol.data_received

    def recorded(protocol, data):
        sizes.append(len(data))
        parse(protocol, data)

    monkeypatch.setattr(H11Protocol, "data_received", recorded)
    request = (
        b"POST /api/v1/runs HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 40_000
    )
    async with http.server(store) as port:
        answer = await http.raw(port, request)

    assert answer.startswith(b"HTTP/1.1 401")
    assert 0 < max(sizes) <= connections.READ_BYTES


@pytest.mark.parametrize(
    "request_",
    [
        b"G" * 100_000 + b" /healthz HTTP/1.1\r\n" + HOST + b"\r\n",
        b"POST /login HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: chunked\r\n\r\n5;"
        + b"x" * 100_000
        + b"\r\nabcde\r\n",
    ],
    ids=["method", "chunk extension"],
)
async def test_no_line_of_a_request_is_longer_than_16_kb(store, request_):
    async with http.server(store) as port:
        answer = await http.raw(port, request_)

    assert answer.startswith(b"HTTP/1.1 400")


# -- places ----------------------------------------------------------------------------------------------


class Answering(asyncio.Protocol):
    """A server that sends what it is given, and never hangs up by itself."""

    def __init__(self, answer=b""):
        self.answer = answer

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(self.answer)

    def eof_received(self):
        return None

    def pause_writing(self):
        pass

    def resume_writing(self):
        pass


class Guarded:
    """Connections of such a server, each behind a guard."""

    def __init__(self, answer=b""):
        self.gate = Gate()
        self._answer = answer
        self._made = None

    def __call__(self):
        self._made = GuardedConnection(self.gate, Answering(self._answer))
        return self._made

    async def accepted(self):
        async with asyncio.timeout(60):
            while not len(self.gate):
                await asyncio.sleep(0.01)
        return self._made

    async def empty(self):
        async with asyncio.timeout(60):
            while len(self.gate):
                await asyncio.sleep(0.01)


async def test_a_client_that_neither_reads_nor_sends_any_more_is_put_out(monkeypatch):
    """The finding: an answer that waits, one more byte, and the end of what the client sends: it stayed forever."""
    monkeypatch.setattr(connections, "FLUSH_SECONDS", QUICK)
    monkeypatch.setattr(connections, "HEADER_SECONDS", QUICK)
    guarded = Guarded(b"x" * 8_000_000)
    listening = await asyncio.get_running_loop().create_server(guarded, "127.0.0.1", 0)
    async with listening:
        with socket.create_connection(listening.sockets[0].getsockname()) as client:
            held = await guarded.accepted()
            client.send(b"GET")
            async with asyncio.timeout(60):
                while not held._transport.get_write_buffer_size():
                    await asyncio.sleep(0.01)
            held.exchange_began()
            held.exchange_ended()
            client.send(b"G")
            client.shutdown(socket.SHUT_WR)

            await guarded.empty()


async def test_an_idle_connection_ends_whether_or_not_the_server_thinks_of_it(monkeypatch):
    """The finding: a byte that came while an answer was ending switched off the server's timer. 85 of 200 stayed."""
    monkeypatch.setattr(connections, "FLUSH_SECONDS", QUICK)
    guarded = Guarded()
    listening = await asyncio.get_running_loop().create_server(guarded, "127.0.0.1", 0)
    async with listening:
        with socket.create_connection(listening.sockets[0].getsockname()):
            idle = await guarded.accepted()
            idle.exchange_began()
            idle.exchange_ended()

            await guarded.empty()


async def test_a_request_behind_a_streamed_answer_is_not_taken_for_idle(store, monkeypatch):
    """The end of a stream comes after the beginning of the next request, which waits longer than an idle client may."""
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger(None).execute(store)
    monkeypatch.setattr(connections, "FLUSH_SECONDS", QUICK)
    head = b" HTTP/1.1\r\n" + HOST + http.BEARER
    async with http.server(store) as port:
        answer = await http.raw(
            port,
            b"GET /api/v1/runs/1/export" + head + b"\r\n"
            b"GET /api/v1/runs/1/result?wait=2" + head + b"Connection: close\r\n\r\n",
        )

    assert (answer.count(b"HTTP/1.1 200"), answer.count(b"HTTP/1.1 202")) == (1, 1)


# -- files -----------------------------------------------------------------------------------------------


async def test_more_connections_than_there_are_files_keep_nobody_out(config, store):
    """The finding: all that waited were accepted before the first was counted, until there was no file for one more."""
    async with serving(config) as served:
        process = psutil.Process(served.process.pid)
        if hasattr(process, "rlimit"):
            process.rlimit(psutil.RLIMIT_NOFILE, (server.FILES, server.FILES))
        served.process.send_signal(signal.SIGSTOP)
        clients = [socket.socket() for _ in range(server.FILES + 50)]
        for client in clients:
            client.setblocking(False)  # noqa: FBT003 - the standard library's
            client.connect_ex(("127.0.0.1", served.port))
        served.process.send_signal(signal.SIGCONT)
        answered = (await served.get("/healthz")).status
        for client in clients:
            client.close()

    assert answered == 200
    assert "out of system resource" not in served.said


async def test_a_server_asks_for_the_files_that_it_needs(config, store):
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        async with serving(config) as served:
            assert psutil.Process(served.process.pid).rlimit(psutil.RLIMIT_NOFILE)[0] == server.FILES
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- the log ---------------------------------------------------------------------------------------------


async def test_strangers_do_not_fill_the_log(config, store):
    async with serving(config) as served:
        for _ in range(20):
            await http.raw(served.port, b"nonsense\0\r\n\r\n")
            upgrade = (
                b"GET /healthz HTTP/1.1\r\n" + HOST + b"Connection: close, upgrade\r\nUpgrade: websocket\r\n\r\n"
            )
            assert (await http.raw(served.port, upgrade)).startswith(b"HTTP/1.1 200")

    assert len(served.said.splitlines()) < 5


async def test_a_broken_body_beside_an_answer_ends_the_connection_without_a_trace(config, store):
    async with serving(config) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = f"Authorization: Bearer {served.token}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        writer.write(b"GET /stream HTTP/1.1\r\n" + HOST + head)
        async with asyncio.timeout(60):
            assert b"200" in await reader.readline()
            writer.write(b"no chunk\r\n")
            await reader.read()
        writer.close()

    assert "Traceback" not in served.said


def test_that_there_is_no_room_is_told_once_a_minute(caplog):
    class Refused:
        def abort(self):
            pass

    gate = Gate()
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            gate.refuse(Refused())

    assert [each.message for each in caplog.records] == ["all connections are in use; new ones are refused"]
