"""Which cases there are: every point of a dry run x every mode that means something there."""

from __future__ import annotations

import random

from pgqrs.faults import Point
from proof.crash.case import Case, Result
from proof.crash.faults import AROUND, INSIDE, Fault, modes

# Of this one, all pairs: a fault anywhere, then a kill anywhere in the recovery; a stall anywhere, and it goes on
# anywhere in the recovery.
WHOLLY_PAIRED = "steps"
FIRST_OF_A_PAIR = ("kill", "error", "stall")
# Of each of the others, so many.
PAIRS_OF_EACH = 70


def may_begin(asked: str, case: str) -> bool:
    """True when a case that begins with one could begin with the other."""
    return case.startswith(asked) or asked.startswith(f"{case}/") or not asked


def points(backend: str, dry: dict[str, Result]) -> list[str]:
    return [case for case, mode, phase in _all(backend, dry) if not (mode == "kill" and phase in INSIDE)]


def statements(backend: str, dry: dict[str, Result]) -> list[str]:
    """Killed before each statement, and before each commit."""
    return [case for case, mode, phase in _all(backend, dry) if mode == "kill" and phase in INSIDE]


def pairs(backend: str, first: list[Result], rng: random.Random) -> list[str]:
    """After a first fault that was survived, a second one during the recovery, whose length is known by then."""
    second = [mode for mode in modes(backend, "before") if mode != "freeze"]
    cases: list[str] = []
    others: dict[str, list[str]] = {}
    for result in first:
        case = Case.of(result.case)
        fault = case.faults[0]
        if not result.between or result.wrong or fault.point is None:
            continue
        stalled = fault.mode in ("stall", "freeze")
        if case.scenario == WHOLLY_PAIRED and fault.point.phase in AROUND:
            follow = [*(["kill"] if fault.mode in FIRST_OF_A_PAIR else []), *(["wait"] if stalled else [])]
            cases += [f"{case}/{Fault(mode, nth)}" for nth in range(1, result.between + 1) for mode in follow]
        elif case.scenario != WHOLLY_PAIRED:
            nth = rng.randint(1, result.between)
            mode = rng.choice([*second, *(["wait"] * len(second) if stalled else [])])
            others.setdefault(case.scenario, []).append(f"{case}/{Fault(mode, nth)}")
    for found in others.values():
        cases += rng.sample(found, min(PAIRS_OF_EACH, len(found)))
    return cases


def _all(backend: str, dry: dict[str, Result]) -> list[tuple[str, str, str]]:
    return [
        (str(Case(backend, scenario, (Fault(mode, nth, Point(phase, name)),))), mode, phase)
        for scenario, result in dry.items()
        for phase, name, nth in result.points
        for mode in modes(backend, phase)
    ]
