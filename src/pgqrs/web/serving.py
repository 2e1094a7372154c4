"""Serving the application: uvicorn with limits, a clear word when it cannot listen, and an end within a second."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from pgqrs.errors import ConfigError
from pgqrs.web.access import LOOPBACK
from pgqrs.web.application import app
from pgqrs.web.limits import RateLimit
from pgqrs.web.tokens import Tokens

try:
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ModuleNotFoundError as _error:
    raise ConfigError(f"serving needs {_error.name}: pip install 'pgqrs[web]'") from None

if TYPE_CHECKING:
    from pgqrs.api.store import Store

PORT = 7890
# A request whose headers take longer to arrive holds a connection for nothing.
HEADER_SECONDS = 10.0
# After the end is said, what the client still sends is read for so long: a socket closed with unread bytes is reset,
# and a reset takes answers from the client that it has not read yet.
LINGER_SECONDS = 1.0
KEEP_ALIVE_SECONDS = 15
MOST_CONNECTIONS = 500
MOST_HEADER_BYTES = 16 * 1024
# What is under way when it is told to stop may finish within this.
DRAIN_SECONDS = 1


async def serve(
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    tokens: str | Path | Tokens | None = None,
    actions: bool | None = None,
    hosts: Iterable[str] = (),
    dashboard: bool = True,
    root_path: str = "",
    rate: RateLimit | None = None,
    trusted_proxies: Iterable[str] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serves until SIGTERM or Ctrl-C. `ready` is told the address once it listens.

    Without tokens it only shows, unless `actions`; with tokens their scopes decide, unless `actions` is False.
    Another address than loopback is refused without tokens: whoever reaches it could see everything.
    """
    if tokens is None and not is_loopback(host):
        raise ConfigError(
            f"{host} can be reached by others, and nobody would be asked who they are; "
            "make a token (`pgqrs token create NAME --scope read`) and give its file with --tokens, or use 127.0.0.1"
        )
    await store.ready()
    names = {*hosts, *([] if _is_any(host) else [f"[{host}]" if ":" in host else host])}
    application = app(
        store,
        tokens=tokens,
        read_only=None if actions is None else not actions,
        hosts=names - set(LOOPBACK),
        dashboard=dashboard,
        rate=rate,
    )
    listening = listen(host, port)
    try:
        server = _Server(_config(application, root_path=root_path, trusted_proxies=trusted_proxies), application)
        where = f"[{host}]" if ":" in host else host
        address = f"http://{where}:{listening.getsockname()[1]}{root_path}"
        await server.run_until_told(listening, lambda: ready(address) if ready else None)
    finally:
        listening.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it; a name other than localhost may be anybody's."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """The socket, or ConfigError with the way out."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            raise ConfigError(f"port {port} of {host} is in use; choose another with --port, or 0 for any") from None
        if number == errno.EACCES:
            raise ConfigError(f"port {port} needs more rights than this process has; use one from 1024 on") from None
        raise ConfigError(f"cannot listen on {host}, port {port}: {error}") from None
    return listening


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _config(application: Starlette, *, root_path: str, trusted_proxies: Iterable[str]) -> uvicorn.Config:
    proxies = list(trusted_proxies)
    return uvicorn.Config(
        application,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # Whoever may say for whom they ask decides who is locked out: nobody, unless they are named.
        proxy_headers=bool(proxies),
        forwarded_allow_ips=proxies or None,
        root_path=root_path,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )


class _Server(uvicorn.Server):
    """Ends the streams before it waits for connections to close, and leaves signals as it found them."""

    def __init__(self, config: uvicorn.Config, application: Starlette) -> None:
        super().__init__(config)
        self._application = application

    async def run_until_told(self, listening: socket.socket, ready: Callable[[], None]) -> None:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        for each in signals:
            # In a thread that is not the main one there are no signals to hear of.
            with contextlib.suppress(RuntimeError, ValueError):
                loop.add_signal_handler(each, self._stop)
        self._ready = ready
        running = asyncio.create_task(self.serve(sockets=[listening]), name="pgqrs-web-server")
        try:
            # Shielded: whoever is cancelled still ends as after a signal, with nothing left open.
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self._stop()
            await running
            raise
        finally:
            for each in signals:
                with contextlib.suppress(RuntimeError, ValueError):
                    loop.remove_signal_handler(each)
            await self._application.state.watcher.close()

    def _stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn's own raises them again at the end, and so would end the process before the store is closed."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._application.state.watcher.close()
        await super().shutdown(sockets)


class _Protocol(H11Protocol):
    """Closes connections on which a request has begun and does not come to the end of its headers.

    uvicorn bounds only the time between two requests: a client that sends a byte now and then would stay for ever.
    """

    _late: asyncio.TimerHandle | None = None
    _ended = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        if self.conn.their_state is h11.IDLE:
            self._expect_headers()
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _expect_headers(self) -> None:
        if self._late is None:
            self._late = asyncio.get_running_loop().call_later(HEADER_SECONDS, self._end)

    def _forget(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _end(self) -> None:
        if not self.transport.is_closing():
            self._ended = True
            self.transport.write_eof()
            self._late = asyncio.get_running_loop().call_later(LINGER_SECONDS, self.transport.close)
