"""`pgqrs serve`: where it listens, whom it lets wait, and how it ends."""

import ast
import asyncio
import os
import re
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import pgqrs
from pgqrs.web.server import connections
from pgqrs.web.server import server as serving
from rig import http
from rig.http import filled, raw

pytestmark = pytest.mark.backends("sqlite")


def _serve(config, *options, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "pgqrs.cli", "serve", "--port", "0", *map(str, options)],
        env={**os.environ, "PGQRS_DSN": config.dsn, "PGQRS_SCHEMA": config.schema, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def _port(process):
    line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 60)
    assert line.startswith("http://127.0.0.1:"), line + process.stderr.read()
    return urlsplit(line).port


async def _opened(process):
    """The port, and a header with the token of this start."""
    line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 60)
    parts = urlsplit(line.strip())
    return parts.port, f"Authorization: Bearer {parts.query.removeprefix('token=')}"


async def _happens(client, event):
    poll = select.poll()
    poll.register(client, event)
    assert await asyncio.to_thread(poll.poll, 60_000)


async def _ended(process, seconds=60):
    out, err = await asyncio.wait_for(asyncio.to_thread(process.communicate), seconds)
    return process.returncode, out, err


async def test_an_address_that_others_reach_is_refused_without_tokens(store, config):
    code, out, err = await _ended(_serve(config, "--host", "0.0.0.0"))

    assert (code, out) == (2, "")
    assert "can be reached from other machines" in err
    assert "--tokens" in err
    for host in ("::", "192.0.2.1", "jobs.example", "127.0.0.1.evil.example"):
        with pytest.raises(pgqrs.ConfigError, match="can be reached from other machines"):
            await serving.serve(store, host=host, port=0)


async def test_with_tokens_it_may_listen_anywhere(store, token_file, tokens):
    async with http.server(store, host="0.0.0.0", tokens=token_file, actions=None, hosts=["jobs.example"]) as port:
        asked = b"GET /api/v1/stats HTTP/1.1\r\nHost: jobs.example\r\nConnection: close\r\n"
        refused = await raw(port, asked + b"\r\n")
        given = await raw(port, asked + f"Authorization: Bearer {tokens['read']}\r\n\r\n".encode())

    assert refused.startswith(b"HTTP/1.1 401")
    assert given.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("host", "only_here"),
    [
        ("127.0.0.1", 1),
        ("127.9.9.9", 1),
        ("::1", 1),
        ("localhost", 1),
        ("0.0.0.0", 0),
        ("::", 0),
        ("10.0.0.1", 0),
        ("localhost.example", 0),
    ],
)
def test_what_counts_as_this_machine_only(host, only_here):
    assert serving.is_loopback(host) is bool(only_here)


async def test_a_port_that_is_taken_is_said_with_the_way_out(store, config):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = await _ended(_serve(config, "--port", taken.getsockname()[1]))

    assert code == 2
    assert re.search(r"port \d+ of 127.0.0.1 is in use; choose another with --port", err)


async def test_a_database_that_is_not_there_is_said(tmp_path):
    config = pgqrs.Config(f"sqlite:///{tmp_path / 'nowhere.db'}")
    code, _, err = await _ended(_serve(config))

    assert (code, "pgqrs install" in err) == (9, True)


async def test_it_only_shows_unless_it_is_told_otherwise(store, config):
    await store.create_workflow("flow")
    post = (
        b"POST /api/v1/workflows/flow/pause HTTP/1.1\r\nHost: localhost\r\nX-Pgqrs-Request: 1\r\n"
        b"Content-Length: 0\r\nConnection: close\r\n\r\n"
    )
    for options, status in ((), b"403"), (("--actions",), b"200"):
        process = _serve(config, *options)
        try:
            port, bearer = await _opened(process)
            answer = await raw(port, post.replace(b"\r\n\r\n", f"\r\n{bearer}\r\n\r\n".encode()))
            assert answer.split()[1] == status
            assert b"server:" not in answer.lower()
        finally:
            process.terminate()
            assert (await _ended(process))[0] == 0


async def test_it_ends_at_once_with_streams_open(store, config, listen):
    process = _serve(config)
    port, bearer = await _opened(process)
    open_ones = [await listen(port, Authorization=bearer.partition(": ")[2]) for _ in range(5)]

    process.send_signal(signal.SIGTERM)
    code, _, err = await _ended(process)

    # uvicorn's word for what did not end by itself within the second.
    assert (code, "Traceback" in err, "Cancel" in err) == (0, False, False)
    assert [await each.ended() for each in open_ones] == [True] * 5


async def test_ctrl_c_ends_it_too(store, config):
    process = _serve(config)
    await _port(process)

    process.send_signal(signal.SIGINT)

    assert (await _ended(process))[0] == 0


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
async def test_a_second_signal_ends_it_as_well_as_one(store, config, listen, sent):
    process = _serve(config)
    port, bearer = await _opened(process)
    stream = await listen(port, Authorization=bearer.partition(": ")[2])

    process.send_signal(sent)
    process.send_signal(sent)
    code, _, err = await _ended(process)

    assert (code, "Traceback" in err, "Cancel" in err) == (0, False, False)
    assert await stream.ended()


async def test_the_store_is_closed_after_a_signal_has_ended_the_server(store, config):
    """uvicorn raises the signal again when it has ended, which by default ends the process."""
    program = (
        "import asyncio, os, signal, sys, pgqrs\n"
        "from pgqrs.web.server.server import serve\n"
        "async def main():\n"
        "    async with pgqrs.connect(sys.argv[1], schema=sys.argv[2]) as store:\n"
        "        await serve(store, port=0, ready=lambda _: os.kill(os.getpid(), signal.SIGTERM))\n"
        "        print('served')\n"
        "    print('closed', signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, config.dsn, config.schema]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "served\nclosed True\n", "")


def test_nothing_of_uvicorn_is_used_but_its_server_its_settings_and_one_protocol():
    """Nothing is inherited or replaced: what decision 25 keeps by hand is around the protocol."""
    source = Path(serving.__file__).parent.parent
    named, imported, bases = set(), set(), set()
    for file in source.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Attribute(ast.Name("uvicorn"), name):
                    named.add(name)
                case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] == "uvicorn":
                    imported |= {(module, each.name) for each in names}
                case ast.ClassDef():
                    bases |= {ast.unparse(each) for each in node.bases}

    assert named == {"Config", "Server"}
    assert imported == {("uvicorn.protocols.http.h11_impl", "H11Protocol")}
    assert not {each for each in bases if "uvicorn" in each or each == "H11Protocol"}


async def test_the_guard_needs_nothing_of_the_protocol_inside_but_what_asyncio_defines():
    class Echo(asyncio.Protocol):
        def connection_made(self, transport):
            self.transport = transport

        def data_received(self, data):
            self.transport.write(data)
            self.transport.close()

    gate = connections.Gate()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: connections.GuardedConnection(gate, Echo()), "127.0.0.1", 0)
    async with server:
        answer = await raw(server.sockets[0].getsockname()[1], b"hello")
        gate.close()

    assert answer == b"hello"


async def test_a_host_that_is_not_ours_is_told_nothing_on_any_route(store, furnished):
    async with http.server(store) as port:
        for endpoint in http.endpoints():
            path = filled(endpoint, **furnished)
            for host in (b"Host: evil.example\r\n", b"Host: localhost\r\nHost: evil.example\r\n", b"Host: \r\n"):
                request = f"{endpoint.method} {path} HTTP/1.1\r\n".encode() + host + b"Connection: close\r\n\r\n"
                answer = await raw(port, request)
                # 400: two of them are none for h11 already.
                assert answer.split()[1] in (b"421", b"400"), (endpoint, host, answer)
        assert (await raw(port, b"GET /static/app.css HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n")).split()[
            1
        ] == b"421"


async def test_a_request_without_a_host_is_refused(store):
    async with http.server(store) as port:
        assert (await raw(port, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n")).split()[1] == b"400"
        assert (await raw(port, b"GET /healthz HTTP/1.0\r\n\r\n")).split()[1] == b"421"


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HT",
    ],
)
async def test_headers_that_do_not_come_to_an_end_are_not_waited_for(store, monkeypatch, begin):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(serving, "KEEP_ALIVE_SECONDS", 3600)
    async with http.server(store) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begin)

        async def drip():
            # A byte now and then, as a client does that wants to stay.
            while True:
                await asyncio.sleep(0.02)
                writer.write(b"X")

        dripping = asyncio.create_task(drip()) if begin else None
        async with asyncio.timeout(60):
            answer = await reader.read()
        if dripping is not None:
            dripping.cancel()
        writer.close()

    # Whatever was asked before is answered.
    assert answer.count(b"HTTP/1.1 200") == begin.count(b"\r\n\r\n")


async def test_who_still_sends_when_the_end_is_said_loses_no_answer(store, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    end = connections.GuardedConnection.end

    def end_with_a_byte_unread(protocol):
        client.send(b"X")
        end(protocol)

    monkeypatch.setattr(connections.GuardedConnection, "end", end_with_a_byte_unread)
    async with http.server(store) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await _happens(client, select.POLLIN)
            client.send(b"GET /healthz HT")
            await _happens(client, select.POLLRDHUP)
            answer = client.recv(65536)

            assert (answer.split()[1], client.recv(65536)) == (b"200", b"")


async def test_who_does_not_go_after_the_end_is_said_is_put_out(store, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    monkeypatch.setattr(connections, "LINGER_SECONDS", 0.2)
    async with http.server(store) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.send(b"GET /healthz HT")
            gone = select.poll()
            gone.register(client, 0)

            def put_out():
                # Up to a minute; what is sent to a closed socket comes back as a reset.
                for _ in range(3000):
                    if gone.poll(20):
                        return True
                    client.send(b"X")
                return False

            assert await asyncio.to_thread(put_out)


async def test_a_slow_answer_is_no_slow_request(store, monkeypatch, listen):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    await store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger(None).execute(store)
    async with http.server(store) as port:
        stream = await listen(port)
        answer = await raw(
            port,
            b"GET /api/v1/runs/1/result?wait=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            + http.BEARER
            + b"\r\n",
        )
        assert answer.startswith(b"HTTP/1.1 202")
        await store.create_queue("later")
        await stream.hear("queue")


async def test_a_body_that_does_not_come_is_not_waited_for(store, monkeypatch):
    monkeypatch.setattr("pgqrs.web.request_body.BODY_SECONDS", 0.2)
    async with http.server(store) as port:
        request = (
            b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n"
            + http.BEARER
            + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        )
        answer = await raw(port, request)

    assert answer.startswith(b"HTTP/1.1 408")


async def test_headers_that_are_too_large_are_refused(store):
    async with http.server(store) as port:
        large = b"X-Large: " + b"x" * 200_000
        answer = await raw(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + large + b"\r\n\r\n")

    assert b" 200 " not in answer.partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
        b"\r\n" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused(store, request_, monkeypatch):
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.2)
    async with http.server(store) as port:
        answer = await raw(port, request_)
        assert b" 200 " not in answer
        assert (await raw(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")).split()[
            1
        ] == b"200"


async def test_a_proxy_is_believed_only_when_it_is_named(store, token_file, tokens):
    asked = b"GET /api/v1/stats HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer wrong\r\nConnection: close\r\n"
    for proxies, status in ((), b"429"), (("127.0.0.1",), b"401"):
        async with http.server(store, tokens=token_file, actions=None, trusted_proxies=proxies) as port:
            for number in range(25):
                answer = await raw(port, asked + f"X-Forwarded-For: 10.0.0.{number}\r\n\r\n".encode())
            # Each wrong token from another address, if what is said of addresses is believed.
            assert answer.split()[1] == status


async def test_below_a_path_that_a_proxy_cuts_off(store):
    await store.create_workflow("flow")
    async with http.server(store, root_path="/pgqrs") as port:
        body = b'{"workflow": "flow"}'
        head = (
            b"POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            + http.BEARER
            + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        answer = await raw(port, head + body)

    assert b"location: /pgqrs/api/v1/runs/1\r\n" in answer.lower()
