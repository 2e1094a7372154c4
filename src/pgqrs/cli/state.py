"""What every command may be told, before its verb or after it, and where a setting comes from.

A flag wins over the environment, which wins over `[tool.pgqrs]` in pyproject.toml.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer import Option

from pgqrs.cli.project import project
from pgqrs.errors import ConfigError, ConnectionFailed
from pgqrs.text.shell import quoted

if TYPE_CHECKING:
    from pgqrs.api.operations.admin import Admin
    from pgqrs.api.store import Store
    from pgqrs.config import Config

FORMATS = ("table", "json", "jsonl", "ids")


@dataclass(slots=True)
class State:
    """The options that all commands share, as they were given on the command line."""

    dsn: str | None = None
    schema: str | None = None
    app: str | None = None
    output: str = "table"
    colour: bool = True
    quiet: bool = False
    verbose: bool = False
    yes: bool = False
    dry_run: bool = False


_state = State()


class ReaderGoneError(Exception):
    """Whoever read our output has closed it: `pgqrs run list | head -1`. Typer would call that a failure."""


def state() -> State:
    """Of the command that runs now."""
    return _state


SHARED: dict[str, Any] = {
    "dsn": Annotated[
        str | None, Option("--dsn", "-d", help="The database; better set PGQRS_DSN: `ps` shows arguments to all.")
    ],
    "schema": Annotated[str | None, Option("--schema", "-s", help="The schema (PGQRS_SCHEMA).")],
    "app": Annotated[str | None, Option("--app", "-A", help="The workflows: module, module:attribute or file.py.")],
    "output": Annotated[str | None, Option("--output", "-o", help=f"{', '.join(FORMATS)}.")],
    "colour": Annotated[bool | None, Option("--color/--no-color", help="Colours, on a terminal.")],
    "quiet": Annotated[bool | None, Option("--quiet", "-q", help="Say nothing but what was asked for.")],
    "verbose": Annotated[bool | None, Option("--verbose", "-v", help="Say more.")],
    "yes": Annotated[bool | None, Option("--yes", "-y", help="Do not ask.")],
    "dry_run": Annotated[bool | None, Option("--dry-run", help="Say what would be done, and do nothing.")],
}


def share(app: typer.Typer) -> None:
    """Lets every command of the tree be told the shared options, before its verb and after it. Idempotent."""
    app.callback()(with_options(_nothing, SHARED, _remember))
    for command in app.registered_commands:
        if command.callback is not None and not hasattr(command.callback, "shares"):
            command.callback = with_options(command.callback, SHARED, _remember)
            command.callback.shares = True  # type: ignore[attr-defined]
    for group in app.registered_groups:
        if group.typer_instance is not None:
            share(group.typer_instance)


def _nothing() -> None:
    pass


def _remember(**given: Any) -> dict[str, Any]:
    for name, value in given.items():
        if value is not None:
            setattr(_state, name, value)
    if _state.output not in FORMATS:
        raise ConfigError(f"there is no format {_state.output!r}", hint=f"use -o {', -o '.join(FORMATS)}")
    return {}


def with_options(
    command: Callable[..., Any], options: Mapping[str, Any], use: Callable[..., dict[str, Any]]
) -> Callable[..., Any]:
    """The command with more options; what `use` makes of their values goes to the command. Its own names win."""
    own = inspect.signature(command, eval_str=True)
    added = {name: annotation for name, annotation in options.items() if name not in own.parameters}
    made = {name for name in own.parameters if name in _made_by(use)}

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        try:
            return command(**use(**{name: given.pop(name) for name in added}), **given)
        except BrokenPipeError:
            raise ReaderGoneError from None

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [each.replace(kind=keyword) for each in own.parameters.values() if each.name not in made]
    parameters += [inspect.Parameter(name, keyword, default=None, annotation=a) for name, a in added.items()]
    wrapped.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapped


def _made_by(use: Callable[..., Any]) -> tuple[str, ...]:
    """The parameters that the command gets from `use`, and not from the command line."""
    return getattr(use, "makes", ())


# -- settings ------------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    name: str
    value: Any
    source: str


def settings() -> Iterator[Setting]:
    """Every setting of Config with its value and where that comes from; secrets are masked."""
    from pgqrs.text.dsn import masked

    flags, (file, path, _) = _flags(), project()
    config = configured()
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name in flags:
            source = "flag"
        elif os.environ.get(f"PGQRS_{field.name.upper()}"):
            source = f"PGQRS_{field.name.upper()}"
        else:
            source = str(path) if field.name in file else "default"
        yield Setting(field.name, masked(value) if field.name.endswith("dsn") and value else value, source)


def configured() -> Config:
    """The settings of the store that a command works with."""
    from pgqrs.config import Config

    file, path, _ = project()
    known = {field.name for field in fields(Config)}
    if unknown := sorted(file.keys() - known - {"app"}):
        raise ConfigError(
            f"[tool.pgqrs] in {path} has {unknown[0]!r}", hint=f"known are app, {', '.join(sorted(known))}"
        )
    kept = {name: value for name, value in file.items() if name in known and not _in_environment(name)}
    return Config(**{**kept, **_flags()})


def application() -> str | None:
    """Where the workflows are, as --app, PGQRS_APP or the file says."""
    found = state().app or os.environ.get("PGQRS_APP") or project().settings.get("app")
    return None if found is None else str(found)


def _flags() -> dict[str, Any]:
    given = {"dsn": state().dsn, "schema": state().schema}
    return {name: value for name, value in given.items() if value is not None}


def _in_environment(name: str) -> bool:
    return bool(os.environ.get(f"PGQRS_{name.upper()}"))


# -- the store -----------------------------------------------------------------------------------------------


def with_store(work: Callable[[Store], Coroutine[Any, Any, Any]], *, creates: bool = False) -> Any:
    """Runs the work on the store that the settings name; `creates` may make its file."""
    import asyncio

    from pgqrs.api.connect import connect_with

    config = configured()
    _say_which(config)
    if not creates and config.backend != "postgres" and not Path(config.path).exists():
        # Connecting would make it, and then all would be well with an empty file.
        raise _no_file(Path(config.path))

    async def call() -> Any:
        async with connect_with(config) as store:
            return await work(store)

    return asyncio.run(call())


def _no_file(path: Path) -> ConnectionFailed:
    """Names the command that makes it, with the folder where that is missing, too."""
    folder = path.parent
    if folder.is_dir():
        return ConnectionFailed(f"there is no file {str(path)!r}", hint="make it with `pgqrs install`")
    # sqlite:///data/x.db is a path below the current folder, and often meant to begin at the root.
    below = "" if folder.is_absolute() else f" in {str(Path.cwd())!r} (four slashes begin an absolute path)"
    return ConnectionFailed(
        f"there is no file {str(path)!r}, as there is no folder {str(folder)!r}{below}",
        hint=f"make both with `mkdir -p -- {quoted(folder)} && pgqrs install`",
    )


def _say_which(config: Config) -> None:
    """Which database, if neither the command nor the environment says so."""
    if state().dsn is not None or _in_environment("dsn"):
        return
    file, path, distrusted = project()
    if distrusted is not None:
        say(f"not reading {distrusted}: other users can write it, or its folder")
    if "dsn" in file:
        say(f"using {config.safe_dsn}, as {path} says")
    else:
        say(f"using {config.safe_dsn}; name another database with PGQRS_DSN or --dsn")


def with_admin(work: Callable[[Admin], Coroutine[Any, Any, Any]], *, creates: bool = False) -> Any:
    async def call(store: Store) -> Any:
        from pgqrs.api.operations.admin import admin

        return await work(admin(store))

    return with_store(call, creates=creates)


def say(words: str) -> None:
    """Words go to standard error, data to standard output."""
    from pgqrs.cli.output import lines

    if not state().quiet:
        print(lines(words), file=sys.stderr)
