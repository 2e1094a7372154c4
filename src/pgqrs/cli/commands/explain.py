"""`pgqrs explain`: what a code means, why it happens, what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Annotated

import typer

from pgqrs import explanations
from pgqrs.cli import output
from pgqrs.cli.output import column
from pgqrs.cli.state import state
from pgqrs.errors import NotFound
from pgqrs.explanations import Explanation

LIST = (column("code"), column("kind"), column("means"))
_TITLES = {
    "error": "Errors",
    "cause": "Causes: why a run does not move",
    "check": "Checks of the doctor",
    "rule": "Rules of the linter",
    "invariant": "Invariants",
}
_HEAD = """# Errors, causes and checks

Each has a code that stays the same. `pgqrs explain CODE` prints what is here; `pgqrs explain` alone lists all codes.
An error's code is also the `code` of the HTTP API's problems, and `pgqrs.errors.code_of(error)` in Python.
This page is made by `pgqrs explain --markdown`.
"""


def explain(
    code: Annotated[str | None, typer.Argument(help="An error, a cause of `run why`, a check, PGQ101, I5.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", hidden=True, help="As the reference has it.")] = False,
) -> None:
    """What a code means, why it happens, what to do; without a code: all of them."""
    if markdown:
        print(document(), end="")
    elif code is None:
        output.items([each._asdict() for each in everything()], LIST, key="code")
    else:
        _print(found(code))


def everything() -> Iterator[Explanation]:
    """Errors, causes, checks, the linter's rules, the invariants."""
    from pgqrs.db.upkeep.invariants import QUESTIONS
    from pgqrs.lint.rules import RULES

    for table in (explanations.ERRORS, explanations.CAUSES, explanations.CHECKS):
        yield from table.values()
    for rule in RULES:
        means = f"{rule.title[0].upper()}{rule.title[1:]} in a workflow body, which runs again on each replay."
        happens = (
            "`pgqrs lint` found it; docs/reference/lint.md shows code that breaks the rule, and code that does not."
        )
        yield Explanation(rule.code, "rule", means, happens, f"{rule.instead[0].upper()}{rule.instead[1:]}.")
    for number in dict.fromkeys(question.code for question in QUESTIONS):
        facts = "; ".join(question.fact for question in QUESTIONS if question.code == number)
        broken = "`pgqrs doctor --verify` found rows that break it: a bug, a broken disk, or a change by hand."
        keep = "Keep a copy of the database and report it; docs/reference/invariants.md says more."
        yield Explanation(number, "invariant", f"{facts[0].upper()}{facts[1:]}.", broken, keep)


def found(code: str) -> Explanation:
    """By its code, however it is written: `run-not-found`, `run_not_found`, `RunNotFound`."""
    known = {_plain(each.code): each for each in everything()}
    wanted = _plain(code)
    if wanted not in known:
        near = difflib.get_close_matches(wanted, known, n=1)
        hint = f"; did you mean {known[near[0]].code!r}?" if near else "; `pgqrs explain` lists them all"
        raise NotFound(f"no code {code[:60]!r}{hint}")
    return known[wanted]


def _plain(code: str) -> str:
    return re.sub(r"[^a-z0-9]", "", code.lower())


def _print(each: Explanation) -> None:
    if state().output != "table":
        output.one(each._asdict())
        return
    print(f"{each.code} ({each.kind})")
    for heading, text in (("means", each.means), ("happens", each.happens), ("do", each.do)):
        print(f"  {heading.ljust(8)} {text}")


def document() -> str:
    """The reference, as Markdown."""
    parts = [_HEAD]
    kind = None
    for each in everything():
        if each.kind != kind:
            kind = each.kind
            parts.append(f"## {_TITLES[kind]}\n")
        parts.append(f"### `{each.code}`\n\n{each.means}\n\n*Why:* {each.happens}\n\n*What to do:* {each.do}\n")
    return "\n".join(parts)
