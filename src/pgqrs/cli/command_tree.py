"""The tree of commands, walked: for completion scripts, the reference and tests. It runs none of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import typer.main

from pgqrs.cli.state import SHARED


class CommandParameter(NamedTuple):
    """An option or an argument, as its help shows it."""

    names: tuple[str, ...]
    is_option: bool
    is_flag: bool
    required: bool
    metavar: str
    help: str
    default: str
    is_shared: bool


class Node(NamedTuple):
    """A command or a group of them."""

    path: tuple[str, ...]
    help: str
    parameters: tuple[CommandParameter, ...]
    is_group: bool
    command: Any

    @property
    def name(self) -> str:
        return " ".join(self.path)


def nodes() -> Iterator[Node]:
    """All of the tree, each group before its commands."""
    from pgqrs.cli.app import tree

    root = typer.main.get_command(tree())
    yield from _nodes(root, ("pgqrs",))


def _nodes(command: Any, path: tuple[str, ...]) -> Iterator[Node]:
    found = tuple(_parameter(each) for each in command.params if not getattr(each, "hidden", False))
    children = getattr(command, "commands", {})
    yield Node(path, (command.help or "").strip(), found, bool(children), command)
    for name, child in children.items():
        yield from _nodes(child, (*path, name))


def _parameter(given: Any) -> CommandParameter:
    is_option = given.param_type_name == "option"
    is_flag = bool(getattr(given, "is_flag", False))
    default = given.default
    shown = "" if default is None or callable(default) or is_flag or default in ((), []) else str(default)
    return CommandParameter(
        names=(*given.opts, *given.secondary_opts) if is_option else (given.name,),
        is_option=is_option,
        is_flag=is_flag,
        required=bool(given.required),
        metavar="" if is_option else given.metavar or given.name.upper() + ("..." if given.nargs != 1 else ""),
        help=(getattr(given, "help", None) or "").strip(),
        default=shown,
        is_shared=is_option and given.name in SHARED,
    )
