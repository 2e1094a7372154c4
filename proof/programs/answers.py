"""What must come of a program, as the oracle says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proof.programs.logs import Effect, Pass


class Racy(Exception):
    """What comes of the program depends on how long things take."""


class Ambiguous(Racy):
    """Two statements would have the same step id: of no use, whatever the order."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ends."""

    status: str
    result: Any = None
    # "ValueError: bad", as the run's row has it; None: any.
    error: str | None = None

    def agrees(self, other: Outcome) -> bool:
        same = self.error is None or other.error is None or self.error == other.error
        return self.status == other.status and same and self.result == other.result


@dataclass(slots=True)
class Life:
    """What must come of one run, as the oracle saw it."""

    # One for each attempt; after a restart they go on.
    passes: list[Pass] = field(default_factory=list)
    # Branches whose end the handler waited for, by attempt.
    joined: list[set[str]] = field(default_factory=list)
    outcome: Outcome | None = None


@dataclass(slots=True)
class Answer:
    """What must come of a program."""

    outcome: Outcome
    # By the label of the run: "" is the program's own.
    lives: dict[str, Life]
    effects: list[Effect]
    # How often each body may begin without any fault.
    most: dict[str, int]
    # Effects that must have happened when the run has ended.
    required: frozenset[str]
    # By key: what was emitted, and which rows transactions have written; the second, whether it must be there.
    emitted: dict[str, bool]
    rows: dict[str, bool]
    # Other ways to the same outcome, by the label of the run.
    alternatives: dict[str, list[Life]] = field(default_factory=dict)
