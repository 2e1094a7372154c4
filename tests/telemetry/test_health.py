"""The HTTP server of a worker process: alive, ready, counted; and patient with nobody."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import prometheus_client
import pytest

import pgqrs
from pgqrs import telemetry
from pgqrs.telemetry import health
from rig.exposition import values_of


async def nothing(ctx, params):
    return None


async def exchanged(port, request, *, more=None):
    """What comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    if more is not None:
        await more(writer)
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def get(port, path, method="GET"):
    """(status, headers, body)"""
    answer = await exchanged(port, f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body.decode()


@pytest.fixture
async def port(store, worker, monkeypatch):
    monkeypatch.setattr(health, "_PROBED_FOR_SECONDS", 0.0)
    telemetry.instrument(tracing=False)
    async with telemetry.serve_health(await worker(nothing)) as found:
        yield found


async def test_a_worker_that_is_well_is_alive_and_ready(port):
    assert (await get(port, "/healthz"))[0::2] == (200, "ok\n")
    assert (await get(port, "/readyz?verbose"))[0::2] == (200, "ready\n")


async def test_a_worker_that_was_told_to_stop_is_alive_but_not_ready(store, worker):
    made = await worker(nothing)
    made.stop()
    async with telemetry.serve_health(made) as port:
        status, _, body = await get(port, "/readyz")

        assert (status, body) == (503, "draining: it was told to stop\n")
        assert (await get(port, "/healthz"))[0] == 200


async def test_a_worker_whose_tables_are_gone_is_not_ready(store, worker, port, monkeypatch):
    monkeypatch.setattr("pgqrs.db.migrations.latest_version", lambda: 999)

    assert (await get(port, "/readyz"))[0::2] == (503, "the tables are not those that this version works with\n")


async def test_a_worker_whose_database_is_away_is_not_ready_and_tells_no_secret(store, port, config):
    def away(point):
        raise pgqrs.ConnectionFailed("no route to postgresql://ann:S3cr3t@db")

    with pgqrs_faults(away):
        status, _, body = await get(port, "/readyz")

    assert (status, body) == (503, "the database does not answer\n")


def pgqrs_faults(action):
    from pgqrs import faults

    return faults.injected(lambda point: action(point) if point.phase == "before" else None)


async def test_many_probes_ask_the_database_once(store, worker, monkeypatch):
    made = await worker(nothing)
    asked = []

    async def problems():
        asked.append(1)
        return []

    monkeypatch.setattr(made, "problems", problems)
    monkeypatch.setattr(health, "_PROBED_FOR_SECONDS", 3600.0)
    async with telemetry.serve_health(made) as port:
        answers = await asyncio.gather(*(get(port, "/readyz") for _ in range(20)))

    assert [status for status, _, _ in answers] == [200] * 20
    assert len(asked) == 1


async def test_metrics_are_ours_and_those_that_the_application_counts_by_itself(port):
    orders = prometheus_client.Counter("shop_orders", "Of the application.")
    try:
        orders.inc(3)
        status, headers, body = await get(port, "/metrics")
    finally:
        prometheus_client.REGISTRY.unregister(orders)

    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    values = values_of(body)
    assert values["shop_orders_total", frozenset()] == 3
    assert values["pgqrs_worker_slots", frozenset({("state", "free")})] == 10


async def test_metrics_of_a_registry_that_was_given(store, flow, worker):
    registry = prometheus_client.CollectorRegistry()
    prometheus_client.Counter("shop_orders", "Of the application.", registry=registry).inc()
    telemetry.instrument(tracing=False, registry=registry)
    await flow.trigger(None).execute(store)
    made = await worker(nothing)
    await made.run_until_idle()
    async with telemetry.serve_health(made) as port:
        values = values_of((await get(port, "/metrics"))[2])

    assert values["shop_orders_total", frozenset()] == 1
    finished = frozenset({("workflow", "flow"), ("status", "SUCCESS")})
    assert values["pgqrs_runs_finished_total", finished] == 1
    assert values["pgqrs_run_wait_seconds_count", frozenset({("workflow", "flow")})] == 1
    assert registry.get_sample_value("pgqrs_lease_lost_total") == 0
    telemetry.uninstrument()
    assert registry.get_sample_value("pgqrs_lease_lost_total") is None


@pytest.mark.backends("sqlite")
async def test_without_prometheus_client_ours_are_there_all_the_same(port, monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    status, _, body = await get(port, "/metrics")

    assert status == 200
    assert body.splitlines()[-1].startswith("pgqrs_event_loop_lag_seconds_count ")


@pytest.mark.backends("sqlite")
async def test_a_worker_that_nobody_watches_has_no_metrics(store, worker):
    async with telemetry.serve_health(await worker(nothing)) as port:
        assert (await get(port, "/metrics"))[0] == 404


@pytest.mark.backends("sqlite")
async def test_head_gives_the_head_alone(port):
    status, headers, body = await get(port, "/healthz", "HEAD")

    assert (status, headers["Content-Length"], body) == (200, "3", "")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get", "CONNECT"])
async def test_whoever_wants_to_change_something_is_refused(port, method):
    status, headers, _ = await get(port, "/healthz", method)

    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("request_", "first"),
    [
        (b"GET /nowhere HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"GET /healthz/../readyz HTTP/1.1\r\n\r\n", b"HTTP/1.1 404"),
        (b"GET  /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET /healthz\r\n\r\n", b"HTTP/1.1 400"),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", b"HTTP/1.1 400"),
        (b"\r\n\r\n", b"HTTP/1.1 400"),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"HTTP/1.1 431"),
        (b"GET /healthz HTTP/2\r\n\r\n", b"HTTP/1.1 405"),
    ],
    ids=lambda value: repr(value[:24]),
)
async def test_what_is_no_short_request_is_answered_as_such(port, request_, first):
    assert (await exchanged(port, request_)).startswith(first)
    assert (await get(port, "/healthz"))[0] == 200


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("host", "first"),
    [
        (b"localhost:8081", b"HTTP/1.1 200"),
        (b"[::1]:8081", b"HTTP/1.1 200"),
        (b"LOCALHOST", b"HTTP/1.1 200"),
        (b"evil.example", b"HTTP/1.1 421"),
        (b"127.0.0.1.evil.example:8081", b"HTTP/1.1 421"),
        (b"127.0.0.1\r\nHost: evil.example", b"HTTP/1.1 421"),
        (b"\xff", b"HTTP/1.1 421"),
    ],
)
async def test_a_page_that_calls_the_loopback_by_a_name_of_its_own_reads_nothing(port, host, first):
    assert (await exchanged(port, b"GET /metrics HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")).startswith(first)


@pytest.mark.backends("sqlite")
async def test_a_server_for_others_is_called_as_they_know_it(store, worker):
    async with telemetry.serve_health(await worker(nothing), host="0.0.0.0") as port:
        answer = await exchanged(port, b"GET /healthz HTTP/1.1\r\nHost: worker-1.internal\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.backends("sqlite")
async def test_one_request_is_answered_per_connection(port):
    answer = await exchanged(port, b"GET /healthz HTTP/1.1\r\n\r\n" * 3)

    assert answer.count(b"HTTP/1.1 200") == 1


@pytest.mark.backends("sqlite")
async def test_who_sends_a_byte_now_and_then_is_cut_off(port, monkeypatch):
    monkeypatch.setattr(health, "_SECONDS_PER_EXCHANGE", 0.1)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /heal")

    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


@pytest.mark.backends("sqlite")
async def test_of_more_connections_than_it_bears_the_oldest_is_closed(port, monkeypatch):
    monkeypatch.setattr(health, "_MOST_CONNECTIONS", 3)
    monkeypatch.setattr(health, "_SECONDS_PER_EXCHANGE", 600.0)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]

    async def ended(reader):
        try:
            return await asyncio.wait_for(reader.read(), 60)
        except ConnectionError:
            return b""

    assert await ended(idle[0][0]) == b""
    assert (await exchanged(port, b"GET /healthz HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert await ended(idle[1][0]) == b""
    for _, writer in idle:
        writer.close()


@pytest.mark.backends("sqlite")
async def test_a_port_that_is_taken_is_named(store, worker):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]

        with pytest.raises(pgqrs.ConfigError, match=rf"cannot listen on 127\.0\.0\.1 port {number}"):
            async with telemetry.serve_health(await worker(nothing), port=number):
                pass


APPLICATION = """
import asyncio
import pgqrs
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())


@pgqrs.workflow
async def order(ctx, n: int) -> int:
    ctx.log.info("begun", extra={"n": n})
    await ctx.step("count", lambda: 1)
    if n == 2:
        # Until the worker is told to stop, and its grace is over.
        await asyncio.Event().wait()
    return n
"""


@pytest.mark.several_processes
async def test_the_worker_of_the_command_line_from_its_first_line_to_its_last(live_store, config, tmp_path):
    (tmp_path / "shop.py").write_text(APPLICATION)
    command = ["-m", "pgqrs.cli", "worker", "run", "shop.py", "--health-port", "0", "--log-format", "json"]
    environment = {**os.environ, "PGQRS_DSN": config.dsn, "PGQRS_SCHEMA": config.schema}
    process = subprocess.Popen(
        [sys.executable, *command], cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    lines = []

    async def line_with(words):
        while text := await asyncio.to_thread(process.stderr.readline):
            lines.append(json.loads(text))
            if words in lines[-1]["message"]:
                return lines[-1]
        raise AssertionError(f"the worker ended before it said {words!r}: {lines}")

    try:
        port = int((await line_with("health checks on"))["message"].rpartition(":")[2])
        await line_with("serving order")
        flow = pgqrs.workflow("order")
        run_id = await flow.trigger(1).execute(live_store)
        assert await (await flow.get_run(run_id, live_store)).result(60) == 1
        begun = await line_with("begun")
        assert (await get(port, "/readyz"))[0] == 200
        values = values_of((await get(port, "/metrics"))[2])
        await flow.trigger(2).execute(live_store)
        await line_with("begun")
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            while (await get(port, "/readyz"))[0] != 503:
                await asyncio.sleep(0.05)
        process.send_signal(signal.SIGTERM)

        assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()
        process.wait()
        rest = process.stderr.read()
        process.stderr.close()
    assert (begun["run_id"], begun["workflow"], begun["n"]) == (run_id, "order", 1)
    # The application has set a provider, so that spans are drawn.
    assert len(begun["trace_id"]) == 32
    assert values["pgqrs_runs_finished_total", frozenset({("workflow", "order"), ("status", "SUCCESS")})] == 1
    assert all(json.loads(line) for line in rest.splitlines())
