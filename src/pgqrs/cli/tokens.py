"""`pgqrs token ...`: who may ask over HTTP, and for what."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pgqrs.cli import output
from pgqrs.cli.output import Column, column
from pgqrs.cli.state import say, state
from pgqrs.errors import ConfigError

tokens = typer.Typer(help="Tokens for the HTTP API and the dashboard.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Who it is; this stands in the history of what they do.")]
File = Annotated[
    Path, typer.Option("--file", "-f", envvar="PGQRS_TOKENS", help="Where tokens are kept, as hashes; PGQRS_TOKENS.")
]
DEFAULT = Path("pgqrs.tokens")


@tokens.command("create")
def create(
    name: Name,
    scope: Annotated[
        list[str], typer.Option("--scope", help="read, trigger, operate (both and more) or admin (all); or several.")
    ],
    file: File = DEFAULT,
) -> None:
    """Make a token, and print it: it is shown this once only."""
    from pgqrs.web import tokens as kept
    from pgqrs.web.access import Scope

    unknown = [each for each in scope if each not in set(Scope)]
    if unknown:
        raise ConfigError(f"there is no scope {unknown[0]!r}; use {', '.join(Scope)}")
    if state().dry_run:
        say(f"not done: --dry-run; {name} would get {', '.join(scope)} in {file}")
        return
    made = kept.create(file, name, [Scope(each) for each in scope])
    if state().output in ("json", "jsonl"):
        output.one({"name": name, "scopes": scope, "token": made})
    else:
        print(made)
    say(f"{name} may {', '.join(scope)}; the token is shown this once, {file} keeps its hash")


@tokens.command("list")
def list_tokens(file: File = DEFAULT) -> None:
    """Who has one, since when, and for what."""
    from pgqrs.web import tokens as kept

    found = [
        {"name": each.name, "scopes": [str(scope) for scope in each.scopes], "created_at": each.created_at}
        for each in kept.read(file)
    ]
    columns = [
        column("name"),
        Column("scopes", lambda item: ", ".join(item["scopes"])),
        column("since", "created_at"),
    ]
    output.items(found, columns, key="name")


@tokens.command("revoke")
def revoke(name: Name, file: File = DEFAULT) -> None:
    """Refuse it from now on, also in browsers that are logged in with it; a server need not be started anew."""
    from pgqrs.web import tokens as kept

    if state().dry_run:
        say(f"not done: --dry-run; the token of {name} in {file} would be refused")
        return
    kept.revoke(file, name)
    output.told(f"the token of {name} is refused from now on")
