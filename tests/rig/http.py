"""HTTP for tests: a client inside the process, a real server on a socket, and every route with something in its path."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2

from pgqrs.api.store import Store
from pgqrs.db.queries import TABLES, Query
from pgqrs.web import Caller, Scope, app
from pgqrs.web.application import endpoints
from pgqrs.web.auth.start_token import StartToken
from pgqrs.web.routing import Endpoint
from pgqrs.web.server import server as serving

API = "/api/v1"
# What shows that a request was made on purpose, where there is no token.
ON_PURPOSE = {"x-pgqrs-request": "1"}
# The token of every server that a test starts without others, and a header with it.
TOKEN = "the-token-of-this-start"
BEARER = f"Authorization: Bearer {TOKEN}\r\n".encode()
# What stands in the paths of routes, where a test does not say.
NAMED = {
    "run_id": "1",
    "worker_id": "1",
    "name": "go",
    "queue": "tasks",
    "workflow": "flow",
    "schedule": "nightly",
}


async def everyone(_request: Any) -> Caller:
    """For tests of something else than who may ask."""
    return Caller("local", frozenset(Scope))


def opened(store: Store, **options: Any) -> Any:
    """The application as everyone may use it, unless the test says who may."""
    known = {} if options.get("tokens") is not None else {"authorize": everyone}
    return app(store, **{**known, **options})


def client(store: Store, *, headers: dict[str, str] | None = None, **options: Any) -> httpx2.AsyncClient:
    """Asks the application without a socket; by default it may act. An error that gets out of it is raised here."""
    options = {"read_only": False, **options}
    transport = httpx2.ASGITransport(opened(store, **options), client=("127.0.0.1", 5555))
    return httpx2.AsyncClient(
        transport=transport, base_url="http://localhost", headers=ON_PURPOSE if headers is None else headers
    )


def filled(endpoint: Endpoint, **given: object) -> str:
    """Its path, with something in it."""
    known = NAMED | {name: str(value) for name, value in given.items()}
    return re.sub(r"\{(\w+)(:\w+)?\}", lambda found: known.get(found.group(1), "1"), endpoint.path)


def api_routes() -> list[Endpoint]:
    """Every row of the table but the pages for people, and the stream, which has no end."""
    return [each for each in endpoints(dashboard=False) if each.path != "/stream"]


def changing() -> list[Endpoint]:
    return [each for each in endpoints() if each.changes and each.scope is not None]


def named(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


async def dump(store: Store) -> dict[str, list[str]]:
    """All that is in the database."""

    async def read(table: str) -> list[str]:
        rows = await store.database.fetch(Query(f"dump_{table}", f"select * from {table}"))
        return sorted(repr(tuple(row)) for row in rows)

    return {table: await read(table) for table in TABLES}


@asynccontextmanager
async def server(store: Store, **options: Any) -> AsyncIterator[int]:
    """A real server in this process, on any free port; gives the port. Without tokens of the test's it takes TOKEN."""
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    options = {"actions": True, "tokens": StartToken(TOKEN), **options}
    running = asyncio.create_task(serving.serve(store, port=0, ready=address.set_result, **options))
    waited = asyncio.ensure_future(address)
    await asyncio.wait({running, waited}, return_when=asyncio.FIRST_COMPLETED)
    if not waited.done():
        await running
    try:
        port = urlsplit(waited.result()).port
        assert port is not None
        yield port
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def raw(port: int, request: bytes, *, seconds: float = 30.0) -> bytes:
    """What a server says to these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(seconds):
            return await reader.read()
    except ConnectionError:
        # It hung up on us with something of ours unread.
        return b""
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


class Stream:
    """A client of GET /stream, over a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.head = b""
        self.last_id: str | None = None

    @classmethod
    async def open(cls, port: int, **headers: str) -> Stream:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        lines = [
            f"{name.replace('_', '-')}: {value}"
            for name, value in {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {TOKEN}", **headers}.items()
        ]
        writer.write("\r\n".join(["GET /stream HTTP/1.1", *lines, "", ""]).encode())
        made = cls(reader, writer)
        async with asyncio.timeout(30):
            made.head = await reader.readuntil(b"\r\n\r\n")
        return made

    @property
    def status(self) -> int:
        return int(self.head.split()[1])

    async def line(self) -> str:
        """The next line of text, whatever it is; '' at the end."""
        while True:
            size = await self._reader.readline()
            if not size or int(size, 16) == 0:
                return ""
            chunk = await self._reader.readexactly(int(size, 16))
            await self._reader.readline()
            if chunk.strip():
                return chunk.decode().strip()

    async def hint(self, seconds: float = 30.0) -> tuple[str, int | None]:
        """The next hint: kind and id."""
        async with asyncio.timeout(seconds):
            while True:
                text = await self.line()
                assert text, "the stream has ended"
                fields = dict(line.split(": ", 1) for line in text.splitlines() if not line.startswith(":"))
                if "data" in fields:
                    self.last_id = fields["id"]
                    data = json.loads(fields["data"])
                    return data["kind"], data["id"]

    async def hear(self, kind: str, wanted: int | None = None) -> list[tuple[str, int | None]]:
        """Listens until that comes; gives all that came."""
        heard = []
        while not heard or heard[-1] != (kind, wanted):
            heard.append(await self.hint())
        return heard

    async def ended(self, seconds: float = 30.0) -> bool:
        """True when the server closes it within that time."""
        try:
            async with asyncio.timeout(seconds):
                while await self._reader.read(65536):
                    pass
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
