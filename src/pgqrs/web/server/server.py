"""Serving the application: uvicorn with limits, a clear word when it cannot listen, and an end within a second."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from starlette.applications import Starlette

from pgqrs.distribution import install_command
from pgqrs.errors import ConfigError
from pgqrs.process_signals import on_signals
from pgqrs.shutdown_budgets import SERVE_DRAIN_SECONDS
from pgqrs.web.application import app
from pgqrs.web.auth.access import LOOPBACK
from pgqrs.web.auth.login import TOKEN
from pgqrs.web.auth.proxies import ForwardedClient, TrustedProxies
from pgqrs.web.auth.start_token import StartToken
from pgqrs.web.auth.tokens import Tokens
from pgqrs.web.server.connections import MOST_CONNECTIONS, MOST_REFUSED, Gate, GuardedConnection
from pgqrs.web.server.exchange import MOST_HEADER_BYTES
from pgqrs.web.server.rate_limit import RateLimit

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ModuleNotFoundError as _error:
    raise ConfigError(f"serving needs {_error.name}: {install_command('web')}") from None

if TYPE_CHECKING:
    from pgqrs.api.store import Store

log: logging.Logger = logging.getLogger("pgqrs.web")

PORT = 7890
KEEP_ALIVE_SECONDS = 15
# Connections that wait to be accepted. All of them are, in one turn of the event loop, before the first is counted.
BACKLOG = 128
# File descriptors: for connections, and some for the store, the log and the files of the dashboard.
FILES = MOST_CONNECTIONS + MOST_REFUSED + BACKLOG + 100


async def serve(
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    tokens: str | Path | Tokens | StartToken | None = None,
    actions: bool | None = None,
    hosts: Iterable[str] = (),
    dashboard: bool = True,
    root_path: str = "",
    rate: RateLimit | None = None,
    trusted_proxies: Iterable[str] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serves until SIGTERM or Ctrl-C. `ready` is told the address once it listens.

    With tokens their scopes decide, unless `actions` is False. Without, it makes one for this start, which is in the
    address; it then answers callers on this machine only, and only shows, unless `actions`.
    """
    host = _without_name(host)
    proxies = TrustedProxies(trusted_proxies)
    known = StartToken() if tokens is None else tokens
    if isinstance(known, StartToken):
        _check_local(host, proxies)
    await store.ready()
    names = {*hosts, *([] if _is_any(host) else [f"[{host}]" if ":" in host else host])}
    application = app(
        store,
        tokens=known,
        read_only=None if actions is None else not actions,
        hosts=names - set(LOOPBACK),
        dashboard=dashboard,
        rate=rate,
    )
    _ask_for_files()
    listening = listen(host, port)
    try:
        gate = Gate(trusted=proxies)
        server = uvicorn.Server(_config(application, gate, root_path=root_path, proxies=proxies))
        where = f"[{host}]" if ":" in host else host
        address = f"http://{where}:{listening.getsockname()[1]}{root_path}"
        if isinstance(known, StartToken):
            address += f"/?{TOKEN}={known.token}"
        told = (lambda: ready(address)) if ready is not None else (lambda: None)
        await _serve_until_told(server, application, gate, listening, told)
    finally:
        listening.close()


def _check_local(host: str, proxies: TrustedProxies) -> None:
    reached = f"{host} can be reached from other machines" if not is_loopback(host) else ""
    if reached or proxies:
        raise ConfigError(
            f"{reached or 'a proxy passes on requests of other machines'}, and the token of a start is for this "
            "machine",
            hint="make a token (`pgqrs token create NAME --scope read`) and give its file with --tokens, "
            "or serve on 127.0.0.1 without a proxy",
        )


def _without_name(host: str) -> str:
    """Return the address to listen on, which is also printed.

    Browsers try `localhost` on [::1] first, where another user of this machine may listen for the token in the
    address. So the name is neither bound, nor printed.
    """
    return "127.0.0.1" if host.lower() == "localhost" else host


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
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use", hint="choose another with --port, or 0 for any"
            ) from None
        if number == errno.EACCES:
            raise ConfigError(
                f"port {port} needs more rights than this process has", hint="use one from 1024 on"
            ) from None
        raise ConfigError(f"cannot listen on {host}, port {port}: {error}") from None
    return listening


def _ask_for_files() -> None:
    """Raise the limit of open files where it is too low (256 on macOS): without one, no connection makes place."""
    try:
        import resource  # noqa: PLC0415 - Windows has no such limit
    except ModuleNotFoundError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < FILES:
        most = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        if most < FILES:
            log.warning("this process may have %d files open, and needs up to %d; see `ulimit -n`", most, FILES)


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _config(application: Starlette, gate: Gate, *, root_path: str, proxies: TrustedProxies) -> uvicorn.Config:
    def guarded(**given: Any) -> GuardedConnection:
        return GuardedConnection(gate, H11Protocol(**given))

    return uvicorn.Config(
        ForwardedClient(application, proxies) if proxies else application,
        # A setting that takes a class; all that uvicorn does with it is to call it.
        http=cast(type[asyncio.Protocol], guarded),
        ws="none",
        lifespan="off",
        log_config=None,
        # Its notes on starting and stopping would stand between the lines of the audit log. Its warnings tell of
        # requests that are not HTTP, or ask for websockets: strangers may cause as many as they like.
        log_level="error",
        backlog=BACKLOG,
        access_log=False,
        server_header=False,
        # A proxy that may say for whom it asks decides who is locked out. uvicorn compares addresses by their text.
        proxy_headers=False,
        root_path=root_path,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=SERVE_DRAIN_SECONDS,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )


async def _serve_until_told(
    server: uvicorn.Server, application: Starlette, gate: Gate, listening: socket.socket, ready: Callable[[], None]
) -> None:
    """Serve until SIGTERM, Ctrl-C or a cancellation, and leave nothing open."""
    told = asyncio.Event()
    # uvicorn hears of signals, too, and raises them again at its end. They then come here a second time, where they
    # end nothing: by default they would end the process before its store is closed.
    with on_signals(told.set, "SIGINT", "SIGTERM", if_possible=True):
        # The socket listens: clients that come before uvicorn does wait in its backlog.
        ready()
        running = asyncio.create_task(server.serve(sockets=[listening]), name="pgqrs-web-server")
        hearing = asyncio.create_task(told.wait(), name="pgqrs-web-signals")
        try:
            await asyncio.wait({running, hearing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hearing.cancel()
            gate.is_closing = True
            # Streams have no end of their own, and uvicorn waits for connections to close.
            await application.state.watcher.close()
            server.should_exit = True
            try:
                await running
            finally:
                gate.close()
