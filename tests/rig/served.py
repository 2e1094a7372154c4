"""A real `pgqrs serve` in a process of its own, and raw requests to it: what an attacker on a socket sees."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pgqrs

# Longer than any answer takes on a busy machine; a server that hangs is a failure, and not a test that hangs.
PATIENCE_SECONDS = 30.0


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    body: bytes
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Served:
    """A server, its address, and what it has said on standard error, once it has ended."""

    process: asyncio.subprocess.Process
    url: str
    said: str = ""

    @property
    def port(self) -> int:
        port = urlsplit(self.url).port
        assert port is not None
        return port

    @property
    def token(self) -> str:
        """Of this start; "" where there is a file of tokens."""
        return parse_qs(urlsplit(self.url).query).get("token", [""])[0]

    async def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answered:
        """One request on a connection of its own. Names of headers are written with underscores."""
        given = {"host": f"127.0.0.1:{self.port}", **{name.replace("_", "-"): v for name, v in headers.items()}}
        if body or method == "POST":
            given.setdefault("content-length", str(len(body)))
        return await ask(self.port, method, target, body, given)

    async def get(self, target: str, **headers: str) -> Answered:
        return await self.ask("GET", target, **headers)

    async def post(self, target: str, thing: Any = None, **headers: str) -> Answered:
        kind = {} if thing is None else {"content_type": "application/json"}
        return await self.ask("POST", target, b"" if thing is None else json.dumps(thing).encode(), **kind, **headers)

    def bearer(self, token: str | None = None) -> dict[str, str]:
        return {"authorization": f"Bearer {token or self.token}"}


async def ask(port: int, method: str, target: str, body: bytes, headers: dict[str, str]) -> Answered:
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    request = "\r\n".join([*lines, "connection: close", "", ""]).encode("latin-1") + body
    async with asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            raw = await reader.read()
        finally:
            writer.close()
    head, _, rest = raw.partition(b"\r\n\r\n")
    status, *fields = head.decode("latin-1").split("\r\n")
    pairs = [(name.lower(), value) for name, _, value in (each.partition(": ") for each in fields)]
    cookies = dict(value.partition(";")[0].split("=", 1) for name, value in pairs if name == "set-cookie")
    found = dict(pairs)
    if found.get("transfer-encoding") == "chunked":
        rest = _unchunked(rest)
    return Answered(int(status.split()[1]), found, rest, cookies)


def _unchunked(text: bytes) -> bytes:
    found = b""
    while text:
        size, _, text = text.partition(b"\r\n")
        length = int(size or b"0", 16)
        found, text = found + text[:length], text[length + 2 :]
    return found


@asynccontextmanager
async def serving(config: pgqrs.Config, *options: object, **environment: str) -> AsyncIterator[Served]:
    """`pgqrs serve --port 0 ...` until the end of the block; then it is told to stop, and must end by itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pgqrs.cli", "serve", "--port", "0", *map(str, options)),
        env={**os.environ, "PGQRS_DSN": config.dsn, "PGQRS_SCHEMA": config.schema, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), PATIENCE_SECONDS)
        served = Served(process, line.decode().strip())
        if not served.url.startswith("http://"):
            _, said = await process.communicate()
            raise AssertionError(f"it did not start: {said.decode()}")
        yield served
        process.send_signal(signal.SIGTERM)
        _, said = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)
        served.said = said.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
