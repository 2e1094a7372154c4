"""Small programs that the engine once got wrong, found and made small by `make proof LAYERS=programs`."""

import pytest

from proof.programs.grammar import Fails, Group, Map, Program, Sleep, Step, Transact, Wait
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
