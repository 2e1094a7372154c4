"""The arithmetic of the benchmarks: what is compared with what, and what the page says of it. Nothing is measured."""

import json

import pytest

from benchmarks import report
from benchmarks.arithmetic import best_peer, collect, judge, split
from benchmarks.chart import Group, draw
from benchmarks.plan import ALL
from benchmarks.scenarios import SCENARIOS
from benchmarks.targets import TARGETS, BestPeer, Limit, NamedPeer, OwnScenario, Target


def run(*lines, date="2030-01-01 10:00 UTC"):
    about = {
        "cpus": 2,
        "cpu": "a processor",
        "system": "Linux",
        "python": "3.11",
        "postgres": "18.1",
        "sqlite": "3.40",
    }
    return [
        {"kind": "run", "date": date, "commit": "abc", "rounds": 3, "packages": {"asyncpg": "0.30"}, **about},
        *lines,
    ]


def figure(peer, scenario="drain", database="postgres", number=1, **figures):
    about = {"version": "1.0", "settings": f"settings of {peer}"}
    place = {"kind": "figure", "database": database, "scenario": scenario, "peer": peer, "round": number}
    return {**place, **about, **figures}


def limit(name, rate, clients=1):
    return {"kind": "limit", "limit": name, "clients": clients, "rows_per_second": rate}


def missing(peer, why, how="unsupported"):
    place = {"database": "postgres", "scenario": "drain", "peer": peer}
    return {"kind": "missing", **place, "how": how, "why": why}


def test_the_median_of_the_rounds_counts():
    results = collect([run(*(figure("ours", number=n, rate=rate) for n, rate in ((1, 10), (2, 900), (3, 30))))])

    ours = results.of("postgres", "drain")
    assert (ours.figures["rate"], ours.rounds) == (30, 3)


def test_the_best_peer_is_the_fastest_and_never_ourselves():
    results = collect([run(figure("ours", rate=500), figure("a", rate=100), figure("b", rate=200))])

    assert best_peer(results.peers("postgres", "drain"), "rate").peer == "b"


@pytest.mark.parametrize("name", ["p50_ms", "rss_mb", "cpu_percent", "queries_per_second"])
def test_of_latencies_and_costs_the_lowest_is_the_best(name):
    results = collect([run(figure("a", **{name: 3.5}), figure("b", **{name: 120}))])

    assert best_peer(results.peers("postgres", "drain"), name).peer == "a"


def test_a_peer_without_the_figure_is_not_the_best():
    results = collect([run(figure("a", rate=1), figure("b", p50_ms=2))])

    assert best_peer(results.peers("postgres", "drain"), "rate").peer == "a"
    assert best_peer(results.peers("postgres", "drain"), "p99_ms") is None


@pytest.mark.parametrize(("ours", "met"), [(400, True), (399, False)])
def test_a_target_is_a_ratio_to_the_best_peer(ours, met):
    results = collect([run(figure("ours", rate=ours), figure("a", rate=100), figure("b", rate=200))])

    verdict = judge(Target("postgres", "drain", BestPeer(), at_least=2), results)

    assert (verdict.beside, verdict.value, verdict.met) == ("b", ours / 200, met)


def test_a_latency_may_not_be_above_the_best_peers():
    lines = [figure(peer, "latency", p50_ms=ms) for peer, ms in (("ours", 4.0), ("a", 3.2), ("b", 100.0))]

    verdict = judge(Target("postgres", "latency", BestPeer(), figure="p50_ms", at_most=1), collect([run(*lines)]))

    assert (verdict.value, verdict.met) == (1.25, False)


def test_a_target_may_name_its_peer_an_own_scenario_or_a_limit():
    lines = [figure("ours", rate=50), figure("a", rate=100), figure("b", rate=25), figure("ours", "runs_10", rate=10)]
    results = collect([run(*lines, limit("steps_100", 200), limit("steps_100", 999, clients=2))])

    assert judge(Target("postgres", "drain", NamedPeer("b")), results).value == 2
    assert judge(Target("postgres", "drain", OwnScenario("runs_10")), results).value == 5
    assert judge(Target("postgres", "runs_10", Limit("steps_100", rows=10)), results).value == 0.5


def test_what_was_not_measured_is_neither_met_nor_missed():
    results = collect([run(figure("ours", rate=5))])

    assert judge(Target("postgres", "drain", BestPeer(), at_least=2), results).met is None
    assert judge(Target("postgres", "drain", NamedPeer("b"), at_least=2), results).met is None
    assert judge(Target("sqlite", "drain", at_least=2), results).met is None


def test_figures_of_different_runs_are_never_compared():
    together = run(figure("ours", rate=100), figure("a", rate=50), date="first")
    alone = run(figure("ours", rate=900), date="second")

    results = collect([together, alone])

    assert results.of("postgres", "drain").figures["rate"] == 100
    assert [line["date"] for line in results.runs] == ["first"]


def test_the_newest_of_two_runs_of_a_kind_counts():
    older, newer = (run(figure("ours", rate=rate), figure("a", rate=1)) for rate in (100, 200))

    assert collect([older, newer]).of("postgres", "drain").figures["rate"] == 200


def test_lines_are_split_where_a_run_begins():
    first, second = run(figure("ours", rate=1)), run(figure("ours", rate=2), limit("fsync", 3))

    assert split([*first, *second]) == [first, second]


def test_the_page_says_whether_each_target_is_met_and_why_a_peer_is_missing(tmp_path):
    lines = run(
        figure("ours", rate=40_000, count=20_000),
        figure("pgqueuer", rate=10_000),
        figure("ours", "audit", ratio=0.5, rate=10),
        missing("huey", "it has no | PostgreSQL"),
        limit("insert_1", 2_900),
    )
    (tmp_path / "2030-01-01.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    report.write([tmp_path], tmp_path / "page.md")

    page = (tmp_path / "page.md").read_text()
    assert "| drain through a handler | PostgreSQL | 40,000 | pgqueuer | 10,000 | 4x | ≥ 2x | yes |" in page
    assert "| audit full against none | PostgreSQL | 0.5 |  | - | 0.5 | ≥ 0.75 | **no** |" in page
    assert "| huey | drain | PostgreSQL | unsupported: it has no \\| PostgreSQL |" in page
    assert "| insert one row, commit | `insert_1` | 2,900 | - |" in page
    assert "- settings of pgqueuer: drain (PostgreSQL)" in page
    assert "![PostgreSQL](page-postgres.svg)" in page
    assert (tmp_path / "page-postgres.svg").exists()
    assert not (tmp_path / "page-sqlite.svg").exists()


def kept(folder, name, *lines):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_publishing_moves_what_was_measured_and_keeps_what_was_published(tmp_path):
    measured, published = tmp_path / "measured", tmp_path / "published"
    kept(published, "2030-01-01.jsonl", *run(figure("ours", rate=1_000), figure("pgqueuer", rate=10_000)))
    kept(measured, "2030-01-01.jsonl", *run(figure("ours", rate=40_000), figure("pgqueuer", rate=10_000)))

    for _ in range(2):
        report.publish(measured, published, tmp_path / "page.md")

        assert "| 40,000 | pgqueuer | 10,000 | 4x |" in (tmp_path / "page.md").read_text()
        assert len((published / "2030-01-01.jsonl").read_text().splitlines()) == 6
        assert list(measured.iterdir()) == []


def test_a_measurement_changes_no_file_of_the_repository():
    """Otherwise `make bench` would make `make test` fail."""
    ignored = (report.ROOT / ".gitignore").read_text().split()

    for place in (report.MEASURED, report.PREVIEW):
        assert f"{place.relative_to(report.ROOT).parts[0]}/" in ignored


def test_the_page_can_be_made_of_nothing():
    assert "not measured" in report.text(collect([]))


def test_bars_grow_with_the_logarithm():
    picture = draw("title", [Group("drain", [("ours", 10_000.0), ("a & b", 100.0), ("c", 1.0)])])

    widths = [float(part.split('"')[0]) for part in picture.split('width="')[1:]]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert "a &amp; b" in picture


def test_every_target_is_of_a_scenario_that_there_is():
    assert {target.scenario for target in TARGETS} <= ALL.keys()
    assert ALL.keys() == SCENARIOS.keys()
    assert {target.figure for target in TARGETS} <= report.FIGURES.keys()
