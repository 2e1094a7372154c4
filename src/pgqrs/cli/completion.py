"""Completion scripts: the names of commands and options, written out. Pressing TAB runs nothing of ours.

Typer's own scripts call the program on every TAB, and the one for zsh evaluates what it prints. These hold the tree
as it was when they were printed: they are quick, they ask no database, and no data can become a command.
"""

from __future__ import annotations

import re

from pgqrs.cli.command_tree import Node, nodes

SHELLS = ("bash", "zsh", "fish")

# What may stand in a script: names of commands and options are made of these, and a test says so.
_WORD = re.compile(r"[A-Za-z0-9-]+")


def script(shell: str) -> str:
    found = list(nodes())
    match shell:
        case "fish":
            return _fish(found)
        case "zsh":
            return f"#compdef pgqrs\nautoload -U +X bashcompinit && bashcompinit\n{_bash(found)}"
    return _bash(found)


def _words(node: Node, found: list[Node]) -> list[str]:
    """What may follow the node: its commands, else its options."""
    below = [each.path[-1] for each in found if each.path[:-1] == node.path]
    options = [name for each in node.parameters if each.is_option for name in each.names if name.startswith("--")]
    words = [*below, *options, "--help"]
    if wrong := [word for word in words if not _WORD.fullmatch(word)]:
        raise AssertionError(f"{wrong[0]!r} cannot stand in a completion script")
    return words


def _bash(found: list[Node]) -> str:
    """One word list for each path of the tree; file names where none of them fits."""
    cases = "\n".join(f'        "{node.name}") words="{" ".join(_words(node, found))}" ;;' for node in found)
    paths = "|".join(f'"{node.name}"' for node in found)
    return f"""# Completion for pgqrs: source this file, or put it where your shell looks for completions.
_pgqrs() {{
    local here="pgqrs" words="" word="${{COMP_WORDS[COMP_CWORD]}}" each
    for each in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$here $each" in
            {paths}) here="$here $each" ;;
        esac
    done
    case "$here" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _pgqrs pgqrs
"""


def _fish(found: list[Node]) -> str:
    lines = ["# Completion for pgqrs: put this file into ~/.config/fish/completions/pgqrs.fish"]
    for node in found:
        words = " ".join(_words(node, found))
        seen = " ".join(node.path[1:])
        if not seen:
            lines.append(f"complete -c pgqrs -f -n __fish_use_subcommand -a '{words}'")
            continue
        last = node.path[-1]
        condition = f"__fish_seen_subcommand_from {node.path[1]}"
        if len(node.path) > 2:
            condition += f"; and __fish_seen_subcommand_from {last}"
        elif node.is_group:
            below = " ".join(each.path[-1] for each in found if each.path[:-1] == node.path)
            condition += f"; and not __fish_seen_subcommand_from {below}"
        lines.append(f"complete -c pgqrs {'-f ' if node.is_group else ''}-n '{condition}' -a '{words}'")
    return "\n".join(lines) + "\n"
