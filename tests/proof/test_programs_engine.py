"""A few programs on the engine, under a few faults; `make proof LAYERS=programs` runs thousands.

In a process of their own: they have an event loop, a clock and a log of their own.
"""

import os
import subprocess
import sys

import pytest

from proof import ROOT
from proof.mutants.mutant import found
from proof.programs.breakages import BREAKAGES
from proof.programs.grammar import Fails, Pool, Program, Sleep, Step
from proof.programs.single import check

SEED = 2026
# How many programs, and how many faults of each: some seconds.
AMOUNT = {"sqlite": (12, 8), "postgres": (5, 5), "turso": (4, 4)}
RACY = {"sqlite": (8, 6), "postgres": (4, 4), "turso": (3, 3)}

PROGRAM = """
import sys
from proof.programs.bench import Bench
from proof.programs.single import config_for

backend, dsn, seed, programs, faults, is_racy = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
bench = Bench(config_for(backend, dsn))
reports = [bench.run(seed, number, faults, is_racy=bool(is_racy)) for number in range(programs)]
for report in reports:
    for each in report.diverged:
        print(each.number, each.fault, *each.said[:3], each.program, sep=chr(10))
print(sum(report.executed for report in reports), "executed")
bench.close()
"""


@pytest.mark.parametrize("amount", [AMOUNT, RACY], ids=["as the oracle says", "as their passes agree"])
def test_programs_do_on_the_engine_what_they_must(backend, amount):
    given = [backend, os.environ.get("PGQRS_TEST_POSTGRES_DSN", ""), str(SEED), *map(str, amount[backend])]
    given.append(str(int(amount is RACY)))

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *given],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1, done.stdout
    assert int(done.stdout.split()[0]) >= amount[backend][0]


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), str(ROOT / "tests")])}


def test_a_printed_test_runs_one_program_under_one_fault():
    check(Program((Step("a", Fails("os", times=1), retry=2), Step("b"))), "kill@5")


def test_a_printed_test_fails_when_the_engine_and_the_oracle_disagree(monkeypatch):
    monkeypatch.setattr("pgqrs.engine.ctx.step_body.decode", lambda *_given: "something else")

    with pytest.raises(AssertionError, match="outcome"):
        check(Program((Step("a"),)))


SHARED = Program((Pool("k", tuple((Step(f"s{n}", called="", plain=n == 0),) for n in range(5))), Sleep("z")))


def test_a_printed_test_runs_a_racy_program():
    check(SHARED, "kill@9", is_racy=True)


def test_a_printed_test_fails_when_the_passes_of_a_racy_program_disagree(monkeypatch):
    monkeypatch.setattr("pgqrs.engine.replay.result_order.ResultOrder._sequence", lambda *_given: None)

    with pytest.raises(AssertionError, match="order"):
        check(SHARED, is_racy=True)


@pytest.mark.parametrize("breakage", BREAKAGES, ids=lambda each: each.name)
def test_a_breakage_still_finds_the_text_that_it_breaks(breakage):
    assert list(found(breakage))
