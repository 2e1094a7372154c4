"""From results to docs/reference/benchmarks.md and its charts."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template

from benchmarks import chart
from benchmarks.arithmetic import OURS, Line, Results, Verdict, best_peer, collect, judge, split
from benchmarks.limits.measure import SCRIPTS
from benchmarks.plan import ALL, Scenario
from benchmarks.targets import TARGETS, Itself

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent
# What the repository shows, and what was measured here since: files that git does not see.
PUBLISHED, PAGE = FOLDER / "results", ROOT / "docs" / "reference" / "benchmarks.md"
MEASURED, PREVIEW = ROOT / ".bench" / "results", ROOT / ".bench" / "benchmarks.md"
DATABASES = {"postgres": "PostgreSQL", "sqlite": "SQLite"}
FIGURES = {
    "rate": "",
    "p50_ms": "ms p50",
    "p99_ms": "ms p99",
    "ratio": "",
    "drain_ratio": "messages",
    "runs_ratio": "runs",
    "queries_per_second": "queries/s",
    "cpu_percent": "% CPU",
    "rss_mb": "MB RSS",
}


def publish(measured: Path = MEASURED, published: Path = PUBLISHED, page: Path = PAGE) -> None:
    """Move what was measured here to the results that the repository shows, and write the page from all of them."""
    published.mkdir(parents=True, exist_ok=True)
    for file in sorted(measured.glob("*.jsonl")):
        with (published / file.name).open("a", encoding="utf-8") as shown:
            shown.write(file.read_text(encoding="utf-8"))
        file.unlink()
    write([published], page)


def write(results: Sequence[Path], page: Path) -> None:
    """The page and a chart for each database that has something to show."""
    lines: list[Line] = []
    # By name, which is a date: what was measured last comes last.
    files = [file for folder in results for file in folder.glob("*.jsonl")]
    for file in sorted(files, key=lambda file: file.name):
        lines += map(json.loads, file.read_text(encoding="utf-8").splitlines())
    collected = collect(split(lines))
    page.parent.mkdir(parents=True, exist_ok=True)
    charts = []
    for database, title in DATABASES.items():
        drawing = chart.draw(f"{title}: per second, more is better", bars(collected, database))
        if drawing:
            name = f"{page.stem}-{database}.svg"
            page.with_name(name).write_text(drawing, encoding="utf-8")
            charts.append(f"![{title}]({name})")
    page.write_text(text(collected, charts), encoding="utf-8")
    print(f"written: {page}")


def text(results: Results, charts: Sequence[str] = ()) -> str:
    verdicts = [judge(target, results) for target in TARGETS]
    return Template((FOLDER / "page.md").read_text(encoding="utf-8")).substitute(
        targets=_table(("scenario", "database", "ours", "beside", "", "value", "target", "met"), map(_row, verdicts)),
        charts="\n".join(charts),
        figures=_figures(results),
        parts=_parts(results),
        limits=_limits(results),
        settings=_settings(results),
        missing=_missing(results),
        runs="\n".join(map(_run, results.runs)),
    )


def bars(results: Results, database: str) -> list[chart.Group]:
    """The rates of each scenario, ours first, then the peers from the fastest on."""
    groups = []
    for scenario in ALL.values():
        ours = results.of(database, scenario.name)
        if ours is None or scenario.figure != "rate":
            continue
        peers = sorted(results.peers(database, scenario.name), key=lambda each: -each.figures.get("rate", 0))
        found = [(each.peer, each.figures["rate"]) for each in (ours, *peers) if "rate" in each.figures]
        groups.append(chart.Group(scenario.title, found))
    return groups


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _row(verdict: Verdict) -> tuple[str, ...]:
    target = verdict.target
    unit = FIGURES[target.figure]
    title = target.title or ALL[target.scenario].title + (f", {unit}" if unit else "")
    value = "not measured"
    if verdict.value is not None:
        value = number(verdict.value) + ("" if isinstance(target.against, Itself) else "x")
    met = {True: "yes", False: "**no**", None: "-"}[verdict.met]
    place = DATABASES[target.database]
    return (title, place, number(verdict.ours), verdict.beside, number(verdict.other), value, target.bound, met)


def _figures(results: Results) -> str:
    rows = [
        _figures_row(results, database, title, scenario)
        for database, title in DATABASES.items()
        for scenario in ALL.values()
        if (database, scenario.name) in results.by_place
    ]
    return _table(("scenario", "database", "ours", "best peer", "ratio", "others"), rows)


def _figures_row(results: Results, database: str, title: str, scenario: Scenario) -> tuple[str, ...]:
    figure = scenario.figure
    ours = results.of(database, scenario.name)
    peers = results.peers(database, scenario.name)
    best = best_peer(peers, figure)
    value = ours.figures.get(figure) if ours else None
    others = [each for each in peers if each is not best and figure in each.figures]
    ratio = f"{number(value / best.figures[figure])}x" if best and value else ""
    return (
        scenario.title,
        title,
        f"{number(value)} {scenario.unit}",
        f"{best.peer} {number(best.figures[figure])}" if best else "",
        ratio,
        ", ".join(f"{each.peer} {number(each.figures[figure])}" for each in others),
    )


def _parts(results: Results) -> str:
    said = []
    for database, title in DATABASES.items():
        for scenario in ALL.values():
            ours = results.of(database, scenario.name)
            if ours is None or scenario.figure == "rate":
                continue
            parts = [
                f"{name} {number(value)}" for name, value in ours.figures.items() if name not in ("count", "samples")
            ]
            said.append((scenario.title, title, ", ".join(parts)))
    return _table(("scenario", "database", "figures"), said)


def _limits(results: Results) -> str:
    names = {script.name: script.what for script in SCRIPTS} | {
        "fsync": "write 8 kB and fdatasync, by a loop in Python"
    }
    found = [name for name in names if (name, 1) in results.limits]
    rows = [
        (names[name], f"`{name}`", number(results.limits[name, 1]), number(results.limits.get((name, 2))))
        for name in found
    ]
    return _table(("what", "script", "rows/s, 1 client", "2 clients"), rows)


def _settings(results: Results) -> str:
    """Each peer with its version, and each of its settings with the scenarios that it was used in."""
    seen: dict[tuple[str, str], dict[str, list[str]]] = {}
    for (database, scenario), by_peer in results.by_place.items():
        for result in by_peer.values():
            used = seen.setdefault((result.peer, result.version), {})
            used.setdefault(result.settings, []).append(f"{scenario} ({DATABASES[database]})")
    said = []
    for (peer, version), used in sorted(seen.items(), key=lambda each: (each[0][0] != OURS, each[0])):
        said.append(f"**{peer}** {version}\n")
        said += [f"- {settings or 'defaults'}: {', '.join(places)}" for settings, places in used.items()]
        said.append("")
    return "\n".join(said).rstrip()


def _missing(results: Results) -> str:
    rows = [
        (line["peer"], line["scenario"], DATABASES[line["database"]], f"{line['how']}: {line['why']}")
        for line in results.missing
    ]
    return "Not measured:\n\n" + _table(("peer", "scenario", "database", "why"), rows) if rows else ""


def _run(line: Line) -> str:
    packages = ", ".join(f"{name} {version}" for name, version in line["packages"].items())
    postgres = f"PostgreSQL {line['postgres']}, " if line["postgres"] else ""
    return (
        f"- {line['date']}, commit {line['commit']}: {line['cpus']} x {line['cpu']}, {line['system']}, "
        f"{postgres}SQLite {line['sqlite']}, Python {line['python']}, {packages}; {line['rounds']} round(s)"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    # A bar in a cell would begin the next one.
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
