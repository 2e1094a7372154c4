"""What became of a workflow that was killed at each of its boundaries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pgqrs.testing.crash_point import Case

Verdict = Literal["survived", "missed", "failed"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One crash, and what came of it."""

    case: Case
    # The step whose body had begun last in the dry run.
    during: str
    verdict: Verdict
    # Bodies that ran more often than without a crash.
    repeated: tuple[str, ...] = ()
    why: str = ""

    @property
    def where(self) -> str:
        return f"{self.case} ({self.during})" if self.during else str(self.case)


@dataclass(slots=True)
class Report:
    """One line for each crash.

    Parallel steps commit together or one by one, by chance: a boundary that did not come up again is `missed`, and
    not among the `boundaries`.
    """

    workflow: str
    # How it ends without a crash.
    outcome: str
    trials: list[Trial] = field(default_factory=list)

    @property
    def boundaries(self) -> int:
        """Return at how many boundaries the worker was killed or stalled."""
        return len(self.trials) - self.missed

    @property
    def survived(self) -> int:
        return sum(trial.verdict == "survived" for trial in self.trials)

    @property
    def missed(self) -> int:
        return sum(trial.verdict == "missed" for trial in self.trials)

    @property
    def failures(self) -> list[Trial]:
        return [trial for trial in self.trials if trial.verdict == "failed"]

    def __str__(self) -> str:
        width = max((len(trial.where) for trial in self.trials), default=0)
        lines = [
            f"{self.workflow}: {self.boundaries} boundaries, {self.survived} survived"
            + (f", {self.missed} missed" if self.missed else "")
            + (f", {len(self.failures)} FAILED" if self.failures else "")
            + f"; without a crash: {self.outcome}"
        ]
        for trial in self.trials:
            again = f"  ran again: {', '.join(trial.repeated)}" if trial.repeated else ""
            lines.append(f"  {trial.where:<{width}}  {trial.verdict}{again}")
        return "\n".join(lines)
