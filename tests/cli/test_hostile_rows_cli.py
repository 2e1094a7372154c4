"""Hostile rows on the command line: lists and looks are printed beside them."""

import pytest

from rig.hostile_rows import QUEUE, WORKFLOW, HostileRows, furnish

pytestmark = pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))

LISTS = (
    ("run", "list"), ("run", "list", "--deleted", "any"), ("workflow", "list"), ("worker", "list"), ("queue", "list"), ("queue", "dead", QUEUE),
    ("queue", "peek", QUEUE), ("schedule", "list"), ("outbox", "list"), ("outbox", "dead"), ("failures",), ("stats",), ("metrics",),
    ("workflow", "get", WORKFLOW), ("queue", "get", QUEUE), ("prune", "--dry-run"),
)  # fmt: skip
LOOKS = ("get", "steps", "events", "why", "export")


@pytest.fixture
async def hostile(store):
    rows = HostileRows(store, 3)
    await rows.write(300, **await furnish(store))
    return rows


@pytest.mark.parametrize("form", ["table", "json"])
async def test_every_list_is_printed_beside_hostile_rows(command, hostile, form):
    wrong = {}
    for words in LISTS:
        said = await command("-o", form, *words)
        if said.code != 0:
            wrong[words] = said.err

    assert wrong == {}


async def test_every_look_at_a_hostile_run_is_printed(command, hostile):
    wrong = {}
    for run_id in hostile.run_ids[::6]:
        for verb in LOOKS:
            said = await command("run", verb, run_id)
            if said.code != 0:
                wrong[verb, run_id] = said.err

    assert wrong == {}


async def test_the_doctor_prints_its_findings_beside_hostile_rows(command, hostile):
    said = await command("doctor", "--verify")

    assert said.code == 8
    assert "cannot be read" in said.out
