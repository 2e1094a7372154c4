"""The processes beside `pgqrs demo` and `pgqrs dev`, as those who started them see them."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Self

from pgqrs.cli.subprocess_main import LINE
from pgqrs.config import Config
from pgqrs.distribution import install_command
from pgqrs.shutdown_budgets import SUBPROCESS_SECONDS


class Process:
    """`python -m pgqrs.cli.subprocess_main ...`, which ends when we do, however we end."""

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket) -> None:
        self._process = process
        self._line = line
        self.pid: int = process.pid

    @classmethod
    def start(
        cls,
        *words: str,
        environment: Mapping[str, str],
        output: IO[bytes] | None = None,
        own_session: bool = False,
    ) -> Self:
        """`output` takes what it prints, else it prints where we do; in a session of its own no key reaches it."""
        ours, its = socket.socketpair()
        with its:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", "pgqrs.cli.subprocess_main", *words],
                env={**os.environ, **environment, LINE: str(its.fileno())},
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL if own_session else None,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                start_new_session=own_session,
            )
        return cls(process, ours)

    async def told(self) -> dict[str, Any]:
        """What it says when it has begun, or cannot; nothing when it ended without a word."""
        self._line.setblocking(False)  # noqa: FBT003 - the library's own
        heard = b""
        while not heard.endswith(b"\n"):
            part = await asyncio.get_running_loop().sock_recv(self._line, 65_536)
            if not part:
                return {}
            heard += part
        return dict(json.loads(heard))

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: it can do nothing about it, and nothing more."""
        self._process.kill()
        self._process.wait()
        self._line.close()

    async def stop(self) -> None:
        """SIGTERM: it hands back what it holds. One that does not end is ended."""
        if self.is_alive:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, SUBPROCESS_SECONDS)
        if self.is_alive:
            self.kill()
        self._process.wait()
        self._line.close()


def environment_of(config: Config) -> dict[str, str]:
    """Every setting, for a process that shall have the same. Not as arguments: `ps` shows those to all."""
    values = {f"PGQRS_{each.name.upper()}": getattr(config, each.name) for each in dataclasses.fields(config)}
    texts = {name: str(int(value)) if isinstance(value, bool) else str(value) for name, value in values.items()}
    # Written at once, also into a file; and no file that was saved twice in a second is taken for its older self.
    return {**texts, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


# -- the dashboard -------------------------------------------------------------------------------------------

NO_DASHBOARD = f"not installed; {install_command('web')} brings it"


class Dashboard:
    """`pgqrs serve` beside us. Where it comes from, and how it is asked for, is known here only."""

    def __init__(self, process: Process, url: str) -> None:
        self._process = process
        self.url = url

    @classmethod
    async def start(
        cls, config: Config, port: int, *, output: IO[bytes] | None, seconds: float = 10.0
    ) -> Dashboard | str:
        """The dashboard when it answers, else why there is none."""
        if not dashboard_is_installed():
            return NO_DASHBOARD
        process = Process.start(
            *("serve", "--host", "127.0.0.1", "--port", str(_free_port(port)), "--actions", "--quiet"),
            environment=environment_of(config),
            output=output,
            own_session=True,
        )
        try:
            # Its own word, and no look at the port: another process may listen there, and would be sent the token.
            async with asyncio.timeout(seconds):
                told = await process.told()
        except TimeoutError:
            told = {}
        except asyncio.CancelledError:
            process.kill()
            raise
        if "url" in told:
            return cls(process, told["url"])
        await process.stop()
        return "did not start; `pgqrs serve` says why"

    async def stop(self) -> None:
        await self._process.stop()


def dashboard_is_installed() -> bool:
    from pgqrs.cli import app

    needs = ("pgqrs.web", "starlette", "uvicorn", "jinja2")
    return "serve" in app.COMMANDS and all(find_spec(each) is not None for each in needs)


def _free_port(wanted: int) -> int:
    """The one that is wanted, else one that nobody has."""
    for port in (*range(wanted, min(wanted + 20, 65_536)), 0):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(tried.getsockname()[1])
    raise AssertionError("port 0 is always free")


def tail(file: Path, lines: int = 20) -> str:
    """The last that a process said."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
