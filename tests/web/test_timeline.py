"""A run's steps on a line of time."""

from datetime import UTC, datetime, timedelta

import pytest

from pgqrs.db.tables.runs import RunRow
from pgqrs.db.views.run_details import FailedAttempt, TimedStep
from pgqrs.types import RunStatus, StepStatus
from pgqrs.web.pages.timeline import drawn

START = datetime(2030, 1, 1, tzinfo=UTC)


def at(seconds):
    return START + timedelta(seconds=seconds)


def run(status=RunStatus.SUCCESS, *, ended=None):
    empty = dict.fromkeys(RunRow.__dataclass_fields__)
    known = {"run_id": 1, "workflow": "flow", "status": status, "created_at": START, "started_at": START}
    return RunRow(**{**empty, **known, "completed_at": None if ended is None else at(ended)})


def step(name, start, end, status=StepStatus.SUCCESS, attempts=1):
    return TimedStep(name, 0, status, attempts, at(start), None if end is None else at(end))


def test_bars_stand_where_their_steps_ran():
    found = drawn(run(ended=10), [step("a", 0, 5), step("b", 5, 10)], [], at(99))

    assert [[(s.kind, s.x, s.width) for s in line.segments] for line in found.lines] == [
        [("ok", 0, pytest.approx(50))],
        [("ok", pytest.approx(50), pytest.approx(50))],
    ]
    assert (found.folds, found.now) == ((), None)
    assert [found.ticks[0].label, found.ticks[-1].label] == ["0", "+10 s"]


def test_an_idle_stretch_is_folded_so_that_the_rest_can_be_seen():
    found = drawn(
        run(ended=86_410), [step("a", 0, 5), step("sleep", 5, 86_405), step("b", 86_405, 86_410)], [], at(0)
    )
    [fold] = found.folds
    [first], [wait], [last] = [line.segments for line in found.lines]

    assert (fold.label, fold.width) == ("24 h", 4) or (fold.label, fold.width) == ("1 d", 4)
    assert first.width == pytest.approx(48)
    assert last.width == pytest.approx(48)
    assert (wait.kind, wait.width) == ("wait", pytest.approx(4))


def test_a_retried_step_shows_each_attempt():
    failures = [FailedAttempt("a", 1, "E", "no", at(1)), FailedAttempt("a", 2, "E", "no", at(4))]
    found = drawn(run(ended=10), [step("a", 0, 10, attempts=3)], failures, at(10))
    [line] = found.lines

    assert [segment.kind for segment in line.segments] == ["failed", "retry", "failed", "retry", "ok"]
    assert "attempt 2: E: no" in [segment.title for segment in line.segments]


def test_the_last_failure_is_drawn_once():
    failures = [FailedAttempt("a", 1, "E", "no", at(5))]
    found = drawn(run(RunStatus.ERROR, ended=5), [step("a", 0, 5, StepStatus.ERROR)], failures, at(9))

    assert [segment.kind for segment in found.lines[0].segments] == ["failed"]


def test_what_goes_on_reaches_to_now():
    waiting = step("wait_for:approve", 5, None, StepStatus.PAUSED)
    found = drawn(run(RunStatus.PAUSED), [step("a", 0, 5), waiting], [], at(10))
    [segment] = found.lines[1].segments

    assert found.now == pytest.approx(100)
    assert segment.kind == "wait"
    assert segment.x + segment.width == pytest.approx(100)


def test_failures_before_a_reset_are_no_part_of_the_step():
    found = drawn(run(ended=20), [step("a", 15, 20)], [FailedAttempt("a", 1, "E", "no", at(3))], at(20))

    assert [segment.kind for segment in found.lines[0].segments] == ["ok"]


@pytest.mark.parametrize("moment", [-5, 0, 1e9])
def test_odd_clocks_draw_nothing_outside(moment):
    steps = [step("a", moment, moment), step("b", 3, 1), step("c", 2, None, StepStatus.RUNNING)]
    found = drawn(run(RunStatus.RUNNING), steps, [], at(4))

    for line in found.lines:
        for segment in line.segments:
            assert segment.x >= 0
            assert segment.x + segment.width <= 100.001


def test_a_run_that_has_not_begun_has_a_line_of_its_own():
    row = run(RunStatus.PENDING)
    found = drawn(row, [], [], at(0))

    assert found.lines == ()
    assert found.run


@pytest.mark.parametrize("name", ["pause_campaign", "sleepwalk@1", "wait_for", "result", "results:7", "result:old"])
def test_a_step_named_like_a_wait_is_drawn_as_work(name):
    """The finding: a step `pause_campaign` that took an hour was drawn as a wait, and its hour was folded away."""
    found = drawn(run(ended=3_600), [step(name, 0, 3_600)], [], at(3_600))

    assert [segment.kind for segment in found.lines[0].segments] == ["ok"]
    assert found.folds == ()


@pytest.mark.parametrize("name", ["sleep#2", "pause@1", "wait_for:a:b@1.2#3", "result:7@1"])
def test_a_wait_is_drawn_as_one_wherever_it_stands(name):
    found = drawn(run(ended=3_600), [step(name, 0, 3_600)], [], at(3_600))

    assert [segment.kind for segment in found.lines[0].segments] == ["wait"]
