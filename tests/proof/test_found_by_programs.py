"""Small programs that the engine once got wrong, found and made small by `make proof LAYERS=programs`."""

import pytest

from proof.programs.grammar import Group, Program, Sleep, Transact
from proof.programs.single import check


@pytest.mark.parametrize("fault", ["stall@2", "stall@3"])
def test_a_branch_that_lost_the_lease_does_not_leave_its_siblings_waiting(fault):
    check(Program(body=(Group("t", ((Sleep("z"),), (Transact("x"),))),), attempts=2), fault, on="sqlite")
