"""What came of one execution of a program, as the database and the case have it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pgqrs.faults import Point
from proof.programs.faults import Fault
from proof.programs.handlers import Case


class Row(NamedTuple):
    """One run, as the database has it."""

    run_id: int
    parent_run_id: int | None
    status: str
    label: str
    output: str | None
    last_error: str | None
    waiting_for: str
    attempt: int
    progress: int
    workflow: str = ""


@dataclass(slots=True)
class Result:
    """What came of one execution."""

    case: Case
    fault: Fault
    rows: dict[str, Row] = field(default_factory=dict)
    # How many runs there are of each label: the second of a child takes the place of the first in `rows`.
    started: Counter[str] = field(default_factory=Counter)
    # What is wrong whatever the program is.
    wrong: list[str] = field(default_factory=list)
    emitted: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    steps: list[Any] = field(default_factory=list)
    # The boundaries that the worker passed, by phase.
    points: list[Point] = field(default_factory=list)
    struck: bool = False
    struck_at: str = ""
    # The worker went away in the last attempt that the run may have.
    struck_last: bool = False
    cancelled: bool = False
