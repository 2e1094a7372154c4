"""Small programs that the engine once got wrong, found and made small by `make proof LAYERS=programs`."""

import pytest

from proof.programs.grammar import (
    Child,
    Emit,
    Fails,
    Group,
    Map,
    Pause,
    Pool,
    Program,
    Sleep,
    Step,
    Transact,
    Try,
    Wait,
)
from proof.programs.single import check


@pytest.mark.parametrize("fault", ["stall@2", "stall@3"])
def test_a_branch_that_lost_the_lease_does_not_leave_its_siblings_waiting(fault):
    check(Program(body=(Group("t", ((Sleep("z"),), (Transact("x"),))),), attempts=2), fault, on="sqlite")


@pytest.mark.parametrize("waits", [Wait("w"), Map("m", (Program(),))])
def test_a_restart_comes_after_the_passes_before_it(waits):
    check(Program(body=(waits, Step("s", Fails())), attempts=1), "restart", on="sqlite")


@pytest.mark.parametrize("fault", ["kill@10", "stall@11"])
def test_a_run_whose_worker_is_lost_in_its_last_attempt_ends(fault):
    """The first attempt has passed eight boundaries; the fault's own, which no attempt was planned for, is struck."""
    check(Program(body=(Step("s", Fails()),), attempts=1), fault, on="sqlite")


@pytest.mark.parametrize("nth", range(13, 18))
def test_a_paused_step_that_runs_again_keeps_its_turn_while_it_looks_for_an_answer(nth):
    branches = ((Wait("w"), Emit("e")), (Pause("a", how="again"),), (Sleep("z", seconds=5000),))
    check(Program(body=(Pool("k", branches, workers=3),), attempts=2), f"answer@{nth}", on="sqlite", is_racy=True)


def test_a_restart_does_not_ask_for_what_a_cancelled_branch_did_on_its_way_out():
    cancelled = (Try(body=(Child("c", Program()),), final=(Sleep("z", seconds=5000),)),)
    branches = (cancelled, (Step("s", body=Fails(number=2), called="", retry=1),))
    check(Program(body=(Pool("k", branches, workers=3),)), "restart", on="sqlite", is_racy=True)
