"""Generated workflows through replay, assert_deterministic and crash_everywhere: sound ones pass, spoiled ones are caught."""

import json
import os

import pytest

import pgqrs
from pgqrs.testing import DoesNotSurvive, Kit, assert_deterministic, crash_everywhere, replay
from testing.generated import changed, program, spoiled

# PGQRS_GENERATED=300 tries as many of each.
MANY = int(os.environ.get("PGQRS_GENERATED", "6"))
SEEDS = range(int(os.environ.get("PGQRS_GENERATED_FROM", "0")), MANY)


def recorded(sound, *, skip_time=True):
    """Return the exported history of a run, as a file would hold it, and its handle."""
    with Kit() as kit:
        run = kit.trigger(sound.workflow())
        kit.drain(skip_time=skip_time)
        return json.loads(json.dumps(kit.export(run))), run


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sound_workflow_passes_everywhere(seed):
    sound = program(f"sound-{seed}")
    history, run = recorded(sound)
    begun, _ = recorded(sound, skip_time=False)

    assert run.status == "SUCCESS", run.timeline()
    assert replay(history, sound.workflow()) == run.result()
    assert replay(begun, sound.workflow()) in (None, run.result())
    assert_deterministic(sound.workflow())
    report = crash_everywhere(sound.workflow())
    assert report.survived == report.boundaries, str(report)


@pytest.mark.parametrize("seed", SEEDS)
def test_changed_code_is_refused_by_replay(seed):
    sound = program(f"changed-{seed}")
    history, _ = recorded(sound)
    other = changed(sound, f"change-{seed}")

    with pytest.raises((pgqrs.NonDeterminism, AssertionError)):
        replay(history, other.workflow())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_workflow_that_differs_from_pass_to_pass_is_not_deterministic(seed):
    bad = spoiled(program(f"spoiled-{seed}"), f"fault-{seed}")

    with pytest.raises(AssertionError, match="is not deterministic"):
        assert_deterministic(bad.workflow())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_workflow_that_differs_from_pass_to_pass_does_not_survive_a_crash(seed):
    bad = spoiled(program(f"spoiled-{seed}"), f"fault-{seed}")

    with pytest.raises(DoesNotSurvive):
        crash_everywhere(bad.workflow(), setup=bad.passes.reset)
