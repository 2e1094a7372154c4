"""The oracle: executes a program in memory, without the engine, and says what must come of it.

It does so under several schedules, in which bodies and waits take different times. A program whose outcome depends on
them is a race, to which it has no answer: `Racy` (see `agreement.py`).
"""

from __future__ import annotations

import operator
from typing import Any

from proof.programs.answers import Answer, Racy
from proof.programs.grammar import Fails, Program, parts
from proof.programs.memory import Memory

SCHEDULES = 9


def ask(program: Program, *, restarted: bool = False) -> Answer:
    """`restarted`: it is restarted once when it has failed, in a healed world."""
    first, *others = [Memory(number, restarted=restarted).ask(program) for number in range(SCHEDULES)]
    for other in others:
        _check_same(first, other)
    for other in others:
        _merge(first, other)
    return first


def _add_way(answer: Answer, other: Answer) -> None:
    """Another way to the same outcome."""
    if other.outcome != answer.outcome:
        raise Racy(f"{answer.outcome} or {other.outcome}")
    answer.required &= other.required
    _merge(answer, other)
    for label, life in other.lives.items():
        answer.alternatives.setdefault(label, []).append(life)


def ask_under_faults(program: Program, *, restarted: bool = False) -> Answer:
    """As `ask`, but with what else a handler may observe when a fault costs an attempt, or the result of a body.

    A body whose result was lost runs again: one that fails only once may never be seen to fail. Raises Racy when that
    changes what comes of the program.
    """
    sensitive = sorted(_fail_a_few_times(program))
    losses = [
        frozenset(),
        *({frozenset([key]) for key in sensitive} if len(sensitive) > 1 else ()),
        frozenset(sensitive),
    ]
    together = ask(program, restarted=restarted)
    for lost in losses:
        for more_attempts in (0, 1):
            other = Memory(0, restarted=restarted, more_attempts=more_attempts, lost=lost).ask(program)
            _add_way(together, other)
    return together


def _fail_a_few_times(node: Any) -> set[str]:
    """The names of the bodies that fail a few times only."""
    return {part.name for part in parts(node) if isinstance(getattr(part, "body", None), Fails) and part.body.times}


def _check_same(first: Answer, other: Answer) -> None:
    if first.outcome != other.outcome or first.required != other.required:
        raise Racy(f"{first.outcome} or {other.outcome}")
    for label, life in first.lives.items():
        # A run that belongs to a branch nobody waits for may not even begin.
        theirs = other.lives.get(label)
        if theirs is None:
            continue
        if life.joined != theirs.joined or len(life.passes) != len(theirs.passes):
            raise Racy(f"branches of {label or 'the program'}")
        for ours_, theirs_, joined in zip(life.passes, theirs.passes, life.joined, strict=True):
            if any(ours_.seen.get(path) != theirs_.seen.get(path) for path in joined):
                raise Racy(f"observations of {label or 'the program'}")
            # A branch that nobody waits for may be cut off anywhere; as far as it comes, it sees the same.
            for path in ours_.seen.keys() & theirs_.seen.keys() - joined:
                if any(map(operator.ne, ours_.seen[path], theirs_.seen[path])):
                    raise Racy(f"observations of branch {path} of {label or 'the program'}")


def _merge(first: Answer, other: Answer) -> None:
    """What branches do that nobody waits for: as much as any schedule has seen."""
    for key, count in other.most.items():
        first.most[key] = max(first.most.get(key, 0), count)
    for mine, theirs in ((first.emitted, other.emitted), (first.rows, other.rows)):
        # A body that must begin need not commit: with another result lost it may be its failure that is recorded.
        for key in mine.keys() | theirs.keys():
            mine[key] = mine.get(key, False) and theirs.get(key, False)
    for label, life in other.lives.items():
        known = first.lives.setdefault(label, life)
        for ours_, theirs_, joined in zip(known.passes, life.passes, known.joined, strict=False):
            for path in theirs_.seen.keys() - joined:
                if len(theirs_.seen[path]) > len(ours_.seen.get(path, ())):
                    ours_.seen[path] = theirs_.seen[path]
