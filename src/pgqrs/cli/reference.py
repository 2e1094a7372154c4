"""`python -m pgqrs.cli.reference` writes docs/reference/cli.md from the commands; a test fails when it is stale."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pgqrs.cli.command_tree import CommandParameter, Node, nodes
from pgqrs.cli.examples import EXAMPLES
from pgqrs.cli.exit_codes import MEANINGS

PAGE = Path("docs/reference/cli.md")

_HEAD = """# Command line

<!-- Written by `python -m pgqrs.cli.reference`. Change the commands, not this page. -->

Noun, then verb: `pgqrs run list`, `pgqrs queue pause emails`. Data goes to standard output, words to standard error.
`pgqrs COMMAND --help` shows what stands here. `python -m pgqrs` is the same program.

## Which database

A flag beats the environment, which beats `[tool.pgqrs]` of the project's `pyproject.toml`. Without any of them it is
`sqlite:///pgqrs.db`. `pgqrs config show` names the source of every setting, secrets masked. Give the DSN as
`PGQRS_DSN`: others on the machine see arguments in `ps`.

The project's file is the one in the current folder, or else the nearest above it: up to the root of the project (a
folder with `.git` or `.hg`), and below the home directory. A file above must belong to you or to root. The
command does not read a file that everyone can write, nor another user's in a folder that everyone can write, and says
so. If the file names the database, it says which file that was.

## Options of every command

They may stand before the verb or after it.
"""

_OUTPUT = """
| `-o` | prints |
|---|---|
| `table` | for people; text of users cannot command the terminal |
| `json` | exactly the body of the HTTP API, never cut: `{"items": [...], "next_cursor": ...}` for lists |
| `jsonl` | one object a line |
| `ids` | what the next command takes: `pgqrs run list --status error -o ids \\| pgqrs run restart -` |

`-` among ids reads them from standard input. Without a terminal nothing is asked: what is hard to undo then needs
`--yes`. Long work shows a bar on standard error, if that is a terminal.

## Which runs

`run list` and the bulk verbs `run cancel`, `run restart` and `run delete` take the same filters, which are those of
[operations](../guides/operations.md): `--status`, `--workflow`, `--since`, `--attr` and so on, or all in one as
`--where 'status:error workflow:billing.* since:1h'`. Bulk verbs say first how many runs they mean.

## Exit codes

| code | meaning |
|---|---|
"""

_COMPLETION = """
An error says what is wrong and, on a line of its own, the command that helps. `-v` shows where something unexpected
happened.

## Completion

`pgqrs completion bash`, `zsh` or `fish` prints a script with the names of all commands and options. It is fixed when
it is printed: pressing TAB starts no program of ours, asks no database and evaluates no data. Print it anew after an
upgrade.

## Commands
"""


def page() -> str:
    """The whole of docs/reference/cli.md."""
    found = list(nodes())
    root, *rest = found
    codes = "\n".join(f"| {code} | {words} |" for code, words in MEANINGS.items())
    shared = "\n".join(_row(each) for each in root.parameters if each.is_shared)
    commands = "\n".join(part for node in rest for part in _command(node))
    return f"{_HEAD}\n| option | |\n|---|---|\n{shared}\n{_OUTPUT}{codes}\n{_COMPLETION}\n{commands}".rstrip() + "\n"


def _command(node: Node) -> Iterator[str]:
    if node.is_group:
        yield f"### {node.name}\n\n{node.help}\n"
        return
    level = "###" if len(node.path) == 2 else "####"
    yield f"{level} {node.name}\n\n{_paragraphs(node.help)}\n"
    usage = " ".join([node.name, *(_argument(each) for each in node.parameters if not each.is_option), "[OPTIONS]"])
    yield f"`{usage}`\n"
    examples = EXAMPLES.get(" ".join(node.path[1:]), ())
    yield "```console\n" + "\n".join(f"$ {each}" for each in examples) + "\n```\n"
    own = [each for each in node.parameters if not each.is_shared and (each.help or each.is_option)]
    if own:
        yield "| option | |\n|---|---|\n" + "\n".join(map(_row, own)) + "\n"


def _argument(given: CommandParameter) -> str:
    return given.metavar if given.required or given.metavar.startswith("[") else f"[{given.metavar}]"


def _row(given: CommandParameter) -> str:
    names = ", ".join(f"`{each}`" for each in given.names) if given.is_option else f"`{given.metavar}`"
    default = f"Default: {given.default}." if given.default else ""
    return f"| {names} | {' '.join(filter(None, (_cell(given.help), default)))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _paragraphs(text: str) -> str:
    """Lines of a paragraph joined, as --help joins them."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text))


if __name__ == "__main__":
    target: Path = Path(sys.argv[1]) if len(sys.argv) > 1 else PAGE
    target.write_text(page(), encoding="utf-8")
