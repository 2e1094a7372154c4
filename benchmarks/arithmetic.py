"""From lines of results to medians, the best peer, ratios and verdicts. No database, no clock."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from benchmarks.plan import ALL
from benchmarks.targets import BestPeer, Itself, Limit, NamedPeer, OwnScenario, Target

OURS = "ours"
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What one of them reached in one scenario on one database: the median of each figure."""

    peer: str
    version: str
    settings: str
    rounds: int
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that is reported, and where it comes from."""

    by_place: Mapping[tuple[str, str], Mapping[str, Result]]
    # (name, clients): rows per second
    limits: Mapping[tuple[str, int], float]
    missing: Sequence[Line]
    runs: Sequence[Line]

    def of(self, database: str, scenario: str, peer: str = OURS) -> Result | None:
        return self.by_place.get((database, scenario), {}).get(peer)

    def peers(self, database: str, scenario: str) -> list[Result]:
        return [each for each in self.by_place.get((database, scenario), {}).values() if each.peer != OURS]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A target, and how we stand to it. Without a value it was not measured."""

    target: Target
    ours: float | None = None
    beside: str = ""
    other: float | None = None
    value: float | None = None

    @property
    def met(self) -> bool | None:
        return None if self.value is None else self.target.is_met(self.value)


def split(lines: Iterable[Line]) -> list[list[Line]]:
    """The lines of each run, oldest first: a run begins with the line that says where it ran."""
    runs: list[list[Line]] = []
    for line in lines:
        if line["kind"] == "run":
            runs.append([])
        runs[-1].append(line)
    return runs


def collect(runs: Sequence[Sequence[Line]]) -> Results:
    """Of each scenario on each database the newest run that has peers beside it, else the newest; never a mixture."""
    chosen: dict[tuple[str, str], int] = {}
    for number, run in enumerate(runs):
        for place in dict.fromkeys((line["database"], line["scenario"]) for line in run if line["kind"] == "figure"):
            if place not in chosen or _has_peers(run, place) or not _has_peers(runs[chosen[place]], place):
                chosen[place] = number
    limits: dict[tuple[str, int], float] = {}
    with_limits = [number for number, run in enumerate(runs) if any(line["kind"] == "limit" for line in run)]
    if with_limits:
        limits = _limits(runs[with_limits[-1]])
    used = sorted({*chosen.values(), *with_limits[-1:]})
    return Results(
        by_place={place: _medians(runs[number], place) for place, number in chosen.items()},
        limits=limits,
        missing=[
            line
            for place, number in chosen.items()
            for line in runs[number]
            if line["kind"] == "missing" and (line["database"], line["scenario"]) == place
        ],
        runs=[runs[number][0] for number in used],
    )


def best_peer(peers: Iterable[Result], figure: str) -> Result | None:
    """The fastest; of latencies and costs the lowest. None when nobody has that figure."""
    able = [each for each in peers if figure in each.figures]
    return (min if is_lower_better(figure) else max)(able, key=lambda each: each.figures[figure], default=None)


def is_lower_better(figure: str) -> bool:
    return figure.endswith(("_ms", "_mb", "_percent", "_per_second"))


def judge(target: Target, results: Results) -> Verdict:
    result = results.of(target.database, target.scenario)
    if result is None or target.figure not in result.figures:
        return Verdict(target)
    ours = result.figures[target.figure]
    beside, other, factor = "", None, 1.0
    match target.against:
        case Itself():
            return Verdict(target, ours, value=ours)
        case BestPeer():
            best = best_peer(results.peers(target.database, target.scenario), target.figure)
            if best is not None:
                beside, other = best.peer, best.figures[target.figure]
        case NamedPeer(name):
            peer = results.of(target.database, target.scenario, name)
            beside, other = name, peer.figures.get(target.figure) if peer else None
        case OwnScenario(name):
            own = results.of(target.database, name)
            beside, other = ALL[name].title, own.figures.get(target.figure) if own else None
        case Limit(name, rows):
            beside, other, factor = f"limit {name}", results.limits.get((name, 1)), rows
        case _:
            assert_never(target.against)
    return Verdict(target, ours * factor, beside, other, ours * factor / other if other else None)


def _has_peers(run: Iterable[Line], place: tuple[str, str]) -> bool:
    return any(
        line["kind"] == "figure" and (line["database"], line["scenario"]) == place and line["peer"] != OURS
        for line in run
    )


def _medians(run: Iterable[Line], place: tuple[str, str]) -> dict[str, Result]:
    found: dict[str, list[Line]] = {}
    for line in run:
        if line["kind"] == "figure" and (line["database"], line["scenario"]) == place:
            found.setdefault(line["peer"], []).append(line)
    return {peer: _median(peer, lines) for peer, lines in found.items()}


def _median(peer: str, lines: Sequence[Line]) -> Result:
    names = dict.fromkeys(name for line in lines for name, value in line.items() if isinstance(value, int | float))
    return Result(
        peer=peer,
        version=str(lines[-1].get("version", "")),
        settings=str(lines[-1].get("settings", "")),
        rounds=len(lines),
        figures={
            name: statistics.median(line[name] for line in lines if name in line) for name in names if name != "round"
        },
    )


def _limits(run: Iterable[Line]) -> dict[tuple[str, int], float]:
    return {(line["limit"], line["clients"]): line["rows_per_second"] for line in run if line["kind"] == "limit"}
