"""A few cases of the crash matrix, one for each mode; `make proof` runs thousands. In a process of their own: what
forks must have no loop, no thread and no connection."""

import os
import subprocess
import sys

import pytest

from proof import ROOT

EVERYWHERE = [
    "steps/kill@before settling.commit#2",
    "steps/kill@after settling.commit#2",
    "steps/error@before settling.commit#1",
    "steps/cancel@after claims.claim#1",
    "transactional/kill@before claims.transact#1",
    "transactional/kill@after claims.transact#2",
    "queue/kill@after messages.settle_and_lease#1",
    "steps/kill@after claims.claim#1/kill@#9",
]
SEVERAL_PROCESSES = [
    "steps/stall@after claims.claim#1",
    "steps/stall@before settling.commit#3",
    "steps/freeze@after claims.claim#1",
    # It goes on while another process holds the lease that it thinks is its own.
    "steps/stall@before settling.commit#2/wait@before settling.commit#1",
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
        "steps/lost@reply settling.commit#2",
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
