"""`pgqrs token ...`: who may ask over HTTP, and for what."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pgqrs.cli import output
from pgqrs.cli.output import Column, column
from pgqrs.cli.state import say, state
from pgqrs.errors import ConfigError
from pgqrs.text.durations import parse_duration

if TYPE_CHECKING:
    from pgqrs.web.auth.access import Scope

tokens: typer.Typer = typer.Typer(help="Tokens for the HTTP API and the dashboard.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Who it is; this stands in the history of what they do.")]
File = Annotated[
    Path, typer.Option("--file", "-f", envvar="PGQRS_TOKENS", help="Where tokens are kept, as hashes; PGQRS_TOKENS.")
]
Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="read, trigger, signal, operate (those three and more) or admin (all); or several."),
]
DEFAULT = Path("pgqrs.tokens")


@tokens.command("create")
def create(
    name: Name,
    scope: Scopes = None,
    file: File = DEFAULT,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="LENGTH", help="Refuse it after that: 12h, 90d; else never.")
    ] = None,
) -> None:
    """Make a token, and print it: it is shown this once only."""
    from pgqrs.web.auth import tokens as kept

    wanted = _checked(scope)
    lasts = None if expires is None else parse_duration(expires)
    if lasts is not None and not lasts:
        raise ConfigError(f"--expires {expires!r} would refuse the token immediately", hint="write 12h, 90d or 52w")
    if state().dry_run:
        say(f"not done: --dry-run; {name} would get {', '.join(wanted)} in {file}")
        return
    made = kept.create(file, name, wanted, expires=lasts)
    if state().output in ("json", "jsonl"):
        output.one({"name": name, "scopes": [str(each) for each in wanted], "token": made})
    else:
        print(made)
    until = "" if expires is None else f" for {expires}"
    say(f"{name} may {', '.join(wanted)}{until}; the token is shown this once, {file} keeps its hash")


@tokens.command("grant")
def grant(name: Name, scope: Scopes = None, file: File = DEFAULT) -> None:
    """Add scopes to a token, which stays the same."""
    from pgqrs.web.auth import tokens as kept

    wanted = _checked(scope)
    if state().dry_run:
        say(f"not done: --dry-run; {name} would also get {', '.join(wanted)} in {file}")
        return
    output.told(f"{name} may {', '.join(kept.grant(file, name, wanted))}")


def _checked(scopes: list[str] | None) -> list[Scope]:
    from pgqrs.web.auth.access import Scope

    if not scopes:
        raise ConfigError(f"say what the token may do: --scope {', '.join(Scope)}", hint="several are possible")
    if unknown := [each for each in scopes if each not in set(Scope)]:
        raise ConfigError(f"there is no scope {unknown[0]!r}", hint=f"use {', '.join(Scope)}")
    return [Scope(each) for each in scopes]


@tokens.command("list")
def list_tokens(file: File = DEFAULT) -> None:
    """List who has one, for what, since when, and until when."""
    from pgqrs.web.auth import tokens as kept

    found = [
        {
            "name": each.name,
            "scopes": [str(scope) for scope in each.scopes],
            "created_at": each.created_at,
            "expires_at": None if each.expires_at is None else kept.written(each.expires_at),
        }
        for each in kept.read(file)
    ]
    columns = [
        column("name"),
        Column("scopes", lambda item: ", ".join(item["scopes"])),
        column("since", "created_at"),
        column("until", "expires_at"),
    ]
    output.items(found, columns, key="name")


@tokens.command("revoke")
def revoke(name: Name, file: File = DEFAULT) -> None:
    """Refuse it from now on, also in browsers that are logged in with it; a server need not be started anew."""
    from pgqrs.web.auth import tokens as kept

    if state().dry_run:
        say(f"not done: --dry-run; the token of {name} in {file} would be refused")
        return
    kept.revoke(file, name)
    output.told(f"the token of {name} is refused from now on")
