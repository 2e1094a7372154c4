"""Clients that keep a server waiting: in their headers, in their body, while they read, after the answer, many at once.

`python -m security.slow_clients` (or `make slow-clients`) sends each kind to a real `pgqrs serve`, to a worker's health
port and to the application mounted on plain uvicorn, and prints how many connections were held and how many other
clients were served meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil

LONG = b"x" * 3_000
# A run whose steps have large outputs: what a client that does not read is sent.
LARGE_ROW_BYTES = 1_900_000


@dataclass
class Kind:
    """How a client behaves: what it sends first, what it sends now and then, whether it ever reads."""

    name: str
    first: Callable[[Target], bytes]
    drip: bytes = b""
    reads: bool = True
    # Waits for the answer, then sends this.
    then: bytes = b""


@dataclass
class Target:
    """A server under attack."""

    name: str
    port: int
    probe: str
    # Of its process, whose sockets are counted.
    pid: int = field(default_factory=os.getpid)
    headers: tuple[str, ...] = ()
    # How the clients that ask meanwhile say who they are: another caller than the slow ones.
    others: tuple[str, ...] = ()
    large: str = ""
    # Where a request with a body is answered before the body is read; and where it is read.
    refused: str = ""
    accepted: str = ""
    waits: str = ""

    def request(self, path: str, *headers: str, method: str = "GET", known: bool = True) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: localhost:{self.port}", *headers]
        return "\r\n".join([*lines, *(self.headers if known else ()), "", ""]).encode()

    def question(self) -> bytes:
        """Of another client."""
        return self.request(self.probe, "Connection: close", *self.others, known=False)

    @property
    def held(self) -> int:
        """Connections that the server holds. A client that does not read cannot see that the other side is gone."""
        found = psutil.Process(self.pid).net_connections("tcp")
        return sum(each.laddr.port == self.port and bool(each.raddr) for each in found)


SILENT = Kind("silent", lambda _: b"")
SLOW_HEADERS = Kind("slow headers", lambda target: target.request(target.probe)[:-2] + b"X-A: ", drip=b"a")
SLOW_BODY = Kind(
    "slow body",
    lambda target: target.request(
        target.accepted,
        "Content-Type: application/json",
        "Content-Length: 100000",
        "X-Pgqrs-Request: 1",
        method="POST",
    ),
    drip=b" ",
)
AFTER_THE_ANSWER = Kind(
    "body after the answer",
    lambda target: target.request(target.refused, "Content-Length: 100000", method="POST", known=False),
    then=b"x",
)
NOT_READING = Kind("not reading", lambda target: target.request(target.large), reads=False)
LONG_POLL = Kind("long polls of one token", lambda target: target.request(target.waits))
OF_WEB = (SILENT, SLOW_HEADERS, SLOW_BODY, AFTER_THE_ANSWER, NOT_READING, LONG_POLL)
OF_HEALTH = (SILENT, SLOW_HEADERS, Kind("not reading", lambda target: target.request("/healthz"), reads=False))


@dataclass
class Outcome:
    held: int
    served: int
    asked: int
    slowest: float


class Clients:
    """Many of one kind, each on a connection of its own."""

    def __init__(self, target: Target, kind: Kind, count: int, *, every: float = 0.5) -> None:
        self.target, self.kind, self.count, self.every = target, kind, count, every
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        begun = [asyncio.Event() for _ in range(self.count)]
        self._tasks = [asyncio.create_task(self._hold(event)) for event in begun]
        for event in begun:
            await event.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self, begun: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)  # noqa: FBT003 - the standard library's
            if not self.kind.reads:
                # As little as possible is taken from the server without being read.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            try:
                await loop.sock_connect(client, ("127.0.0.1", self.target.port))
                begun.set()
                await self._behave(client)
            except OSError:
                pass
            finally:
                begun.set()

    async def _behave(self, client: socket.socket) -> None:
        """Until the server hangs up."""
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, self.kind.first(self.target))
        if self.kind.then:
            await loop.sock_recv(client, 65536)
            await loop.sock_sendall(client, self.kind.then)
        if not self.kind.reads:
            await asyncio.Event().wait()
        watching = asyncio.ensure_future(_closed(client))
        try:
            while not watching.done():
                await asyncio.wait({watching}, timeout=self.every)
                if self.kind.drip and not watching.done():
                    await loop.sock_sendall(client, self.kind.drip)
        finally:
            watching.cancel()


async def _closed(client: socket.socket) -> None:
    while await asyncio.get_running_loop().sock_recv(client, 65536):
        pass


async def ask(target: Target, seconds: float) -> float | None:
    """The seconds until another client is answered well; None when it is not. It asks again when told to (503)."""
    started = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            while (status := await _status(target)) == b"503":
                await asyncio.sleep(0.1)
    except (OSError, TimeoutError):
        return None
    return time.monotonic() - started if status == b"200" else None


async def _status(target: Target) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port)
    try:
        writer.write(target.question())
        return (await reader.read()).split(b" ", 2)[1]
    except IndexError:
        return b""
    finally:
        writer.close()


async def attack(
    target: Target, kind: Kind, count: int, *, asked: int = 20, seconds: float = 5.0, until: float = 0.0
) -> Outcome:
    """Others are asked while all of the clients are there; what is still held is counted `until` seconds after the
    first was answered, or as soon as nothing is; without such a time, when all have been asked."""
    async with Clients(target, kind, count):
        # A busy server has not accepted the clients yet, and so holds nothing. It accepts connections in their order:
        # once a later one is answered, it has them all.
        took = [await ask(target, seconds)]
        counting = asyncio.create_task(_held(target, until)) if until else None
        took += [await ask(target, seconds) for _ in range(asked - 1)]
        held = target.held if counting is None else await counting
        answered = [each for each in took if each is not None]
        return Outcome(held, len(answered), asked, max(answered, default=0.0))


async def _held(target: Target, until: float) -> int:
    ends_at = time.monotonic() + until
    while (held := target.held) and time.monotonic() < ends_at:
        await asyncio.sleep(0.1)
    return held


# -- targets -------------------------------------------------------------------------------------------------

_WORKER = """
import asyncio, sys, pgqrs
from pgqrs import telemetry
async def main():
    async with pgqrs.connect(sys.argv[1]) as store:
        worker = await pgqrs.consumer("w", 0, "flow").handler(nothing).create(store)
        async with telemetry.serve_health(worker) as port:
            print(port, flush=True)
            await asyncio.Event().wait()
async def nothing(ctx, params):
    return None
asyncio.run(main())
"""

_MOUNTED = """
import asyncio, socket, sys, pgqrs, uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from pgqrs.web import Caller, Scope, app
async def authorize(request):
    kind, _, name = request.headers.get("authorization", "").partition(" ")
    return Caller(name, frozenset(Scope)) if name else None
async def main():
    async with pgqrs.connect(sys.argv[1]) as store:
        ours = app(store, authorize=authorize, hosts=["localhost"])
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(Starlette(routes=[Mount("/pgqrs", app=ours)]), log_level="critical")
        await uvicorn.Server(config).serve(sockets=[listening])
asyncio.run(main())
"""


@contextlib.contextmanager
def _process(*command: str, **environment: str):
    process = subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline().rpartition(":")[2].partition("/")[0]), process.pid
    finally:
        process.kill()
        process.communicate()


async def furnish(dsn: str) -> None:
    """A run that has ended with large steps, and one that does not end."""
    import pgqrs

    async def large(ctx, params):
        for number in range(5):
            await ctx.step(f"large {number}", lambda: "x" * LARGE_ROW_BYTES)

    async with pgqrs.connect(dsn) as store:
        await store.create_workflow("flow")
        await store.create_workflow("other")
        await pgqrs.workflow("flow").trigger(None).execute(store)
        worker = await pgqrs.consumer("w", 0, "flow").handler(large).create(store)
        await worker.run_until_idle()
        await worker.close()
        await pgqrs.workflow("other").trigger(None).execute(store)


@contextlib.asynccontextmanager
async def serve(folder: Path) -> AsyncIterator[Target]:
    from pgqrs.web.auth import tokens

    dsn = f"sqlite:///{folder / 'serve.db'}"
    await furnish(dsn)
    token = tokens.create(folder / "tokens", "operator", ["operate"])
    other = tokens.create(folder / "tokens", "reader", ["read"])
    options = ("--port", "0", "--tokens", str(folder / "tokens"))
    with _process("-m", "pgqrs.cli", "serve", *options, PGQRS_DSN=dsn) as (port, pid):
        yield web_target("pgqrs serve", port, token=token, other=other, pid=pid)


def web_target(
    name: str, port: int, *, token: str, other: str = "", root: str = "", pid: int | None = None
) -> Target:
    api = f"{root}/api/v1"
    return Target(
        name,
        port,
        f"{api}/queues",
        os.getpid() if pid is None else pid,
        (f"Authorization: Bearer {token}",),
        (f"Authorization: Bearer {other or token}",),
        large=f"{api}/runs/1/export",
        refused=f"{api}/runs",
        accepted=f"{api}/runs",
        waits=f"{api}/runs/2/result?wait=60",
    )


@contextlib.asynccontextmanager
async def mounted(folder: Path) -> AsyncIterator[Target]:
    dsn = f"sqlite:///{folder / 'mounted.db'}"
    await furnish(dsn)
    with _process("-c", _MOUNTED, dsn) as (port, pid):
        yield web_target("mounted on uvicorn", port, token="ann", other="bob", root="/pgqrs", pid=pid)


@contextlib.asynccontextmanager
async def health(folder: Path) -> AsyncIterator[Target]:
    dsn = f"sqlite:///{folder / 'health.db'}"
    await furnish(dsn)
    with _process("-c", _WORKER, dsn) as (port, pid):
        yield Target("a worker's health port", port, "/healthz", pid)


async def main() -> None:
    count, until = int(os.environ.get("COUNT") or 499), float(os.environ.get("SECONDS") or 45)
    print(f"{'server':<24}{'clients':<26}{'count':>6}{'others served':>15}{'slowest':>10}{'held after':>18}")
    for opened, kinds in (serve, OF_WEB), (health, OF_HEALTH), (mounted, OF_WEB):
        for kind in kinds:
            # Each on a server of its own: what one kind leaves behind is not the next one's.
            with tempfile.TemporaryDirectory(prefix="pgqrs-slow-") as folder:
                async with opened(Path(folder)) as target:
                    outcome = await attack(target, kind, count, until=until)
            print(
                f"{target.name:<24}{kind.name:<26}{count:>6}{outcome.served:>9} of {outcome.asked:<3}"
                f"{outcome.slowest:>8.2f} s{outcome.held:>8} ({until:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    asyncio.run(main())
