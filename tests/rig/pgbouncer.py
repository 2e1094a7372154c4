"""A PgBouncer in transaction mode in front of a PostgreSQL, as many installations have it."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit, urlunsplit

from rig._leash import ServerFailed, hold, run_as
from rig.postgres import HOST, free_port


def find() -> Path | None:
    """The program, on PATH or in /usr/sbin, which an ordinary user's PATH often leaves out."""
    found = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    return Path(found) if found else None


def install_hint() -> str:
    """What to tell somebody whose machine has no PgBouncer."""
    return "no pgbouncer on PATH or in /usr/sbin; apt-get install pgbouncer, or brew install pgbouncer"


@contextmanager
def start(dsn: str) -> Iterator[str]:
    """The DSN of the same database through a new PgBouncer, which is stopped on the way out.

    Any other database of that server can be reached through it too, and every client becomes the DSN's user.
    Raises ServerFailed when PgBouncer is missing or does not come up.
    """
    program = find()
    if program is None:
        raise ServerFailed("pgbouncer", install_hint())
    way = run_as(program)
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="pgqrs-pgbouncer-"))
    settings = folder / "pgbouncer.ini"
    pid = folder / "pid"
    settings.write_text(_settings(dsn, port, pid))
    with hold(
        folder,
        [[str(program), str(settings)]],
        way=way,
        # Written once the port is open, and not when somebody else has taken it.
        is_ready=pid.exists,
        # It has nothing to lose; its gentler signals wait for clients, and changed their meaning in 1.23.
        farewell=(signal.SIGKILL,),
    ):
        target = urlsplit(dsn)
        user = quote(_login(dsn)["user"], safe="")
        yield urlunsplit((target.scheme, f"{user}@{HOST}:{port}", target.path, "", ""))


def _settings(dsn: str, port: int, pid: Path) -> str:
    # No ignore_startup_parameters: a default installation refuses a parameter it does not know, and so must this.
    # Five server connections: few enough that clients of one test have to share them.
    login = " ".join(f"{name}={_quoted(value)}" for name, value in _login(dsn).items())
    return f"""
[databases]
* = {login}

[pgbouncer]
listen_addr = {HOST}
listen_port = {port}
unix_socket_dir =
pidfile = {pid}
auth_type = any
pool_mode = transaction
default_pool_size = 5
log_connections = 0
log_disconnections = 0
"""


def _login(dsn: str) -> dict[str, str]:
    target = urlsplit(dsn)
    options = {name: values[-1] for name, values in parse_qs(target.query).items()}
    login = {
        "host": target.hostname or options.get("host", HOST),
        "port": str(target.port or options.get("port", 5432)),
        "user": unquote(target.username or options.get("user", "postgres")),
    }
    password = target.password or options.get("password")
    return {**login, "password": unquote(password)} if password else login


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
