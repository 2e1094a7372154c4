"""Metrics are what the reference says; the dashboard and the alerts use only what there is."""

import json
import re
from pathlib import Path

import pytest
import yaml

from pgqrs.db.views.metrics import StoreGauges
from pgqrs.telemetry.gauges import families_of
from pgqrs.telemetry.meter import WorkerMetrics

ROOT = Path(__file__).parent.parent.parent
REFERENCE = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
ALERTS = yaml.safe_load((ROOT / "ops/alerts.yml").read_text(encoding="utf-8"))
RULES = [rule for group in ALERTS["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((ROOT / "ops/grafana/pgqrs.json").read_text(encoding="utf-8"))

WORKER = {family.name: family for family in WorkerMetrics().families()}
SERVER = {family.name: family for family in families_of(StoreGauges([], [], [], 0, 0))}
FAMILIES = WORKER | SERVER
LABELS = {name: set(family.labels) | {"instance"} for name, family in FAMILIES.items()}
VALUES = {
    "state": {"ready", "scheduled", "leased", "dead", "stale", "busy", "free", "ahead"},
    "status": {"SUCCESS", "ERROR", "PENDING", "RUNNING", "PAUSED"},
    "kind": {"message", "event"},
}


def expressions():
    for rule in RULES:
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield pytest.param(variable["definition"], id=f"${variable['name']}")


def family_of(name):
    """A family, by its own name or by that of one of its parts; KeyError when there is none."""
    if name in FAMILIES:
        assert FAMILIES[name].kind != "histogram", f"{name} is a histogram; ask for its buckets, sum or count"
        return name
    found = re.sub(r"_(bucket|sum|count)$", "", name)
    assert FAMILIES[found].kind == "histogram"
    return found


def documented(heading):
    text = REFERENCE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(pgqrs_\w+)` \| (\w+) \| (.*?) \|", text, re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


@pytest.mark.parametrize(("heading", "families"), [("Worker process", WORKER), ("Server", SERVER)])
def test_the_reference_has_every_metric_its_kind_and_its_labels(heading, families):
    assert documented(heading) == {name: (family.kind, family.labels) for name, family in families.items()}


def test_the_metrics_are_those_that_the_design_names():
    assert sorted(WORKER) == [
        "pgqrs_commit_batch_size",
        "pgqrs_event_loop_lag_seconds",
        "pgqrs_heartbeat_failures_total",
        "pgqrs_lease_lost_total",
        "pgqrs_run_duration_seconds",
        "pgqrs_run_wait_seconds",
        "pgqrs_runs_finished_total",
        "pgqrs_step_duration_seconds",
        "pgqrs_step_retries_total",
        "pgqrs_worker_slots",
    ]
    assert sorted(SERVER) == [
        "pgqrs_dead_letters",
        "pgqrs_outbox_unpublished",
        "pgqrs_queue_depth",
        "pgqrs_queue_oldest_ready_age_seconds",
        "pgqrs_runs_active",
        "pgqrs_workers",
    ]


def test_nobody_documents_a_metric_that_there_is_not():
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    named = {
        name
        for page in pages
        for name in re.findall(r"\bpgqrs_\w+?_(?:total|seconds|size)\b", page.read_text(encoding="utf-8"))
    }

    assert named <= set(FAMILIES)
    assert len(named) >= 10


@pytest.mark.parametrize("expression", list(expressions()))
def test_alerts_and_panels_use_metrics_labels_and_values_that_exist(expression):
    used = re.findall(r"\b(pgqrs_\w+)(?:\{([^}]*)\})?", expression)
    assert used
    for name, selector in used:
        family = family_of(name)
        for label, value in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', selector):
            assert label in LABELS[family]
            assert label not in VALUES or value in VALUES[label]
    grouped = {label for inside in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r",\s*", inside)}
    assert grouped <= set().union(*(LABELS[family_of(name)] for name, _ in used)) | {"le"}


def test_every_metric_is_on_the_dashboard():
    shown = {family_of(name) for each in expressions() for name in re.findall(r"\bpgqrs_\w+", each.values[0])}

    assert shown == set(FAMILIES)


def test_alerts_are_whole_and_documented():
    documented = set(re.findall(r"^\| `(Pgqrs\w+)` \|", REFERENCE, re.MULTILINE))

    assert documented == {rule["alert"] for rule in RULES}
    for rule in RULES:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_panels_do_not_overlap_and_have_ids_of_their_own():
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
