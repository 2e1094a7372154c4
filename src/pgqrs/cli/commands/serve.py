"""`pgqrs serve`: the HTTP API and the dashboard."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgqrs.cli.logs import LogFormat
from pgqrs.cli.state import say, with_store

if TYPE_CHECKING:
    from pgqrs.api.store import Store

TokensFile = Annotated[
    Path | None,
    typer.Option(
        "--tokens",
        envvar="PGQRS_TOKENS",
        help="The file of `pgqrs token create`; else a token is made for this start.",
    ),
]
# Of a process that was started by `pgqrs dev` or `pgqrs demo`, which print the address themselves.
tell_parent: Callable[[str], None] | None = None


def serve(  # noqa: PLR0917 - options
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65_535, help="0 takes any that is free.")] = 7890,
    tokens: TokensFile = None,
    actions: Annotated[
        bool | None,
        typer.Option("--actions/--read-only", help="Without tokens it only shows; with tokens their scopes decide."),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A name under which it is reached; several are possible.")
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard/--no-dashboard", help="Or the HTTP API alone.")] = True,
    root_path: Annotated[
        str, typer.Option("--root-path", help="Where a proxy in front shows it: /pgqrs; the proxy cuts that off.")
    ] = "",
    trust_proxy: Annotated[
        list[str] | None,
        typer.Option("--trust-proxy", help="Address or network of a proxy that sends X-Forwarded-For."),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", min=0, help="Triggers, messages and signals a second of a caller; 0: any.")
    ] = 500.0,
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How it logs, the audit log included: to standard error.")
    ] = LogFormat.text,
) -> None:
    """Serve the HTTP API and the dashboard, on this machine only unless there are tokens."""
    from pgqrs.cli.logs import logging_to_stderr

    async def work(store: Store) -> None:
        # It needs the web extra, and says so.
        from pgqrs.web.server.rate_limit import RateLimit
        from pgqrs.web.server.server import serve as run

        await run(
            store,
            host=host,
            port=port,
            tokens=tokens,
            actions=actions,
            hosts=allow_host or (),
            dashboard=dashboard,
            root_path=_checked(root_path),
            rate=RateLimit(rate, max(1, int(2 * rate))),
            trusted_proxies=trust_proxy or (),
            ready=tell_parent or (lambda address: _say(address, shows_only=_shows_only(tokens, actions=actions))),
        )

    with logging_to_stderr(log_format, always=("pgqrs.audit",)):
        with_store(work)


def _shows_only(tokens: Path | None, *, actions: bool | None) -> bool:
    return tokens is None if actions is None else not actions


def _checked(root_path: str) -> str:
    from pgqrs.errors import ConfigError

    if root_path and (not root_path.startswith("/") or root_path.endswith("/") or not root_path.isascii()):
        raise ConfigError(f"--root-path {root_path!r} must begin with a slash and not end with one: /pgqrs")
    return root_path


def _say(address: str, *, shows_only: bool) -> None:
    print(address, flush=True)
    say("it only shows; --actions lets it act" if shows_only else "Ctrl-C stops it")
    sys.stderr.flush()
