"""Suggest a command for one that does not exist, wherever in the tree it is: `run why` for `why`."""

from __future__ import annotations

import difflib
from typing import Any

from typer.core import TyperGroup

from pgqrs.text import shell


class SuggestingGroup(TyperGroup):
    """A group of commands that knows the commands of the other groups, too."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the words name; an error that names near misses if there is none."""
        word = args[0]
        if not word.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, word) is None:
            near = ", ".join(repr(each) for each in _near(word, list(self.commands)))
            ctx.fail(f"No such command {word!r}." + (f" Did you mean {near}?" if near else ""))
        return super().resolve_command(ctx, args)


def _near(word: str, here: list[str]) -> list[str]:
    """Return commands of this group by their names, others by all of their words."""
    # Imported late: this imports the modules of all commands, and only a mistake needs them.
    from pgqrs.cli.command_tree import nodes

    by_name: dict[str, list[str]] = {name: [name] for name in here}
    for node in nodes():
        _, *path = node.path
        if path and not node.is_group and path[-1] not in here:
            by_name.setdefault(path[-1], []).append(shell.command(" ".join(path)))
    names = [word] if word in by_name else difflib.get_close_matches(word, by_name)
    return [each for name in names for each in by_name[name]]
