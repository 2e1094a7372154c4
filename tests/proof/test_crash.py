"""A few cases of the crash matrix, one for each mode; `make proof` runs thousands. In a process of their own: what
forks must have no loop, no thread and no connection."""

import os
import subprocess
import sys

import pytest

from proof import ROOT
from proof.crash import check
from proof.crash.scenarios import SCENARIOS

EVERYWHERE = [
    "steps/kill@before settlement.commit#2",
    "steps/kill@after settlement.commit#2",
    "steps/error@before settlement.commit#1",
    "steps/cancel@after claims.claim#1",
    "transactional/kill@before claims.transact#1",
    "transactional/kill@after claims.transact#2",
    "queue/kill@after messages.settle_and_lease#1",
    "steps/kill@after claims.claim#1/kill@#9",
    # A charge that happened is not refunded, whatever the engine runs into.
    "charged/error@before settlement.commit#1",
    "charged/error@before claims.transact#1",
    "charged/kill@after settlement.commit#2",
    # What was caught is caught again, with all that it said.
    "catching/kill@after settlement.commit#1",
    "compensating/kill@before settlement.commit#4",
    "failing_transaction/kill@after settlement.commit#1",
    "failed_child/kill@after settlement.commit#3",
    "task_group/kill@after settlement.commit#1",
    # A worker that is stopped begins no step of a `finally`.
    "cleaning_up/cancel@before settlement.commit#1",
]
SEVERAL_PROCESSES = [
    "steps/stall@after claims.claim#1",
    "steps/stall@before settlement.commit#3",
    "steps/freeze@after claims.claim#1",
    # It goes on while another process holds the lease that it thinks is its own.
    "steps/stall@before settlement.commit#2/wait@before settlement.commit#1",
    # Nobody tells its handler that the lease is gone.
    "charged/stall@before settlement.commit#1",
    "background_work/stall@after settlement.commit#1",
]
CASES = {
    "sqlite": [
        *EVERYWHERE,
        *SEVERAL_PROCESSES,
        "steps/error@commit all#4",
        "steps/disconnect@sql record_held_steps#1",
    ],
    "postgres": [
        *EVERYWHERE,
        *SEVERAL_PROCESSES,
        "steps/disconnect@sql settle_steps#1",
        "steps/lost@reply settlement.commit#2",
        "transactional/lost@reply claims.transact#1",
        "transactional/disconnect@commit claims.transact#1",
    ],
    "turso": [*EVERYWHERE, "steps/error@commit all#4"],
}


def crash(cases, backend):
    command = [sys.executable, "-m", "proof.crash", *(f"{backend}/{case}" for case in cases)]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)


def test_what_is_struck_is_recovered_by_another_process(backend):
    done = crash(CASES[backend], backend)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.backends("sqlite")
def test_a_case_that_strikes_nowhere_is_told(backend):
    done = crash(["steps/kill@before claims.claim#99"], backend)

    assert (done.returncode, done.stdout) == (1, "sqlite/steps/kill@before claims.claim#99: not reached\n")


def saw(value, *, what="flow error", key="run-1"):
    return {"kind": "saw", "what": what, "value": value, "key": key}


@pytest.mark.parametrize(
    ("lines", "expected", "said"),
    [
        ([saw("a"), saw("a")], {"flow error": "a"}, []),
        ([saw("a"), saw("b")], {"flow error": "a"}, ["a pass saw 'flow error' as b, another one as a"]),
        ([saw("b")], {"flow error": "a"}, ["a handler saw 'flow error' as b, and without faults as a"]),
        ([saw("b")], {}, ["a handler saw 'flow error' as b, and without faults nothing"]),
        # Of a run that was triggered twice, as its client heard no answer.
        ([saw("run 2 failed"), saw("run 5 failed", key="run-4")], {"flow error": "run 2 failed"}, []),
    ],
)
def test_what_handlers_see_is_compared_with_every_pass_and_with_peace(lines, expected, said):
    assert check.wrong_observations(lines, expected) == said


def test_an_effect_that_is_repeated_without_a_fault_is_told():
    twice = [{"kind": "effect", "what": what} for what in ("step_retry before", *["step_retry flaky"] * 4)]

    assert check.wrong_in_peace(twice, SCENARIOS["step_retry"]) == [
        "'step_retry flaky' happened 4 times without a fault, not 3"
    ]
