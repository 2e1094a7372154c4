"""The engine broken on purpose, one promise of handlers at a time: the layer must notice each by its random programs.

A breakage is a mutant (`proof/mutants/mutant.py`), but nobody tells it which test is to kill it. It is killed when a
program diverges on the broken engine that does not diverge on the engine as it is.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from proof import ROOT
from proof.mutants.mutant import Edit, Mutant, copy_of
from proof.mutants.source import NoLongerApplies
from proof.order import Order

# How many executions a breakage has to survive; most last for less than fifty.
MOST_EXECUTIONS = 2_500
_HUNT_SECONDS = 600
_AT_A_TIME = 2
_BRIEFLY = 3


def _broken(name: str, breaks: str, where: str, before: str, after: str) -> Mutant:
    return Mutant(name, breaks, (Edit(where, before, after),), ())


# Of the order in which results reach a handler: only racy programs can notice these.
ORDERS: tuple[Mutant, ...] = (
    _broken(
        "order-of-asking",
        "results reach a handler in the order in which they were recorded",
        "engine.replay.arrivals:Arrivals.wait",
        "heapq.heappush(self._waiting, (number, self._count, future, branch))",
        "heapq.heappush(self._waiting, (number if number == math.inf else 0, self._count, future, branch))",
    ),
    _broken(
        "order-forgotten",
        "a replay knows in which order the results were recorded",
        "engine.replay.result_order:ResultOrder._sequence",
        "return self._number_of.get(step_id) or (None if recorded is None else recorded.sequence)",
        "return self._number_of.get(step_id)",
    ),
    _broken(
        "order-unstored",
        "the number of a result is recorded with it",
        "engine.replay.recorder:Recorder.record",
        "write = RunWrite(",
        "step = step._replace(sequence=None)\nwrite = RunWrite(",
    ),
    _broken(
        "order-without-quiet",
        "the next result comes when no branch can move",
        "engine.replay.arrivals:Arrivals._turn",
        "if self._still >= _QUIET_TURNS or self._turns >= _MOST_TURNS:\n",
        "if self._turns:\n",
    ),
    _broken(
        "order-overtaken",
        "no result overtakes one whose record is being written",
        "engine.replay.arrivals:Arrivals._is_overtaking",
        "return bool(self._numbered) and self._numbered[0] < number",
        "return False",
    ),
)

BREAKAGES: tuple[Mutant, ...] = (
    *ORDERS,
    _broken(
        "error-class",
        "a handler catches the class that the step raised",
        "engine.recorded_errors:raised_again",
        "return Reader(program, step_id).read(as_record(text))",
        'return StepFailed(step_id, kind="Exception", message=as_record(text).message)',
    ),
    _broken(
        "error-attributes",
        "an error keeps its attributes",
        "engine.recorded_errors.decode:Reader.read",
        '_set_attributes(error, attributes | unstored["attributes"])\n',
        "",
    ),
    _broken(
        "error-arguments",
        "an error keeps its arguments",
        "engine.recorded_errors.decode:Reader.read",
        "set_args(error, self._args(record, held))",
        "set_args(error, (record.message,))",
    ),
    _broken(
        "error-cause",
        "an error keeps its cause",
        "engine.recorded_errors.decode:Reader.read",
        "cause=self._nested(record.cause)",
        "cause=None",
    ),
    _broken(
        "checkpoint-error-to-handler",
        "an outage while a step is recorded never reaches the handler",
        "engine.replay.recorder:Recorder.record",
        "await self.insisted(error, lambda: self._committer.write(write._replace(again=True)))\n",
        "raise\n",
    ),
    _broken(
        "signal-is-an-exception",
        "no `except Exception` of a handler stops the engine's signals",
        "engine.replay.unwinding:EngineSignal",
        "class EngineSignal(BaseException):",
        "class EngineSignal(Exception):",
    ),
    _broken(
        "plain-errors-through-futures",
        "a plain handler gets the very error that was recorded",
        "engine.ctx.loop_calls:over_there.kept",
        "except Exception as error:  # noqa: BLE001 - raised again below\n",
        "except ArithmeticError as error:\n",
    ),
    _broken(
        "plain-halt-is-an-exception",
        "no `except Exception` of a plain handler stops the engine's signals",
        "engine.ctx.loop_calls:over_there",
        "run_pass.check_usable()\nraise asyncio.CancelledError from None\n",
        "raise\n",
    ),
    _broken(
        "os-error-is-the-engines",
        "whatever a step raises is recorded as its own error",
        "engine.ctx.step_body:run_body",
        "except (EngineSignal, KeyboardInterrupt):\n",
        "except (EngineSignal, KeyboardInterrupt, OSError):\n",
    ),
    _broken(
        "map-order",
        "the results of a map stand in the order of its items",
        "engine.ctx.map_children:map_",
        "return [answers[number].given(run_pass) for number in range(len(items))]",
        "return [answers[number].given(run_pass) for number in reversed(range(len(items)))]",
    ),
    _broken(
        "restart-forgets-what-was-caught",
        "a restart reopens the steps whose error left the handler, and no others",
        "db.runs.restarts:culprits_in",
        "return frozenset(each for each in named if isinstance(each, str)) if isinstance(named, list) else None",
        "return None if isinstance(named, list) else None",
    ),
    _broken(
        "retry-forgets-what-was-caught",
        "an error that the handler caught stays caught in the run's next attempt",
        "engine.replay.failures:culprits",
        "return _Uncaught(failed, error).steps",
        "return list(failed)",
    ),
    _broken(
        "retry-reopens-nothing",
        "a step whose error left the handler runs again in the run's next attempt",
        "engine.runs.executor:Executor._decided",
        "again = reopened(made_it_fail) if isinstance(end, Suspended) else ()",
        "again = ()",
    ),
    _broken(
        "compensated-and-retried",
        "a run whose handler made up for its error is not retried",
        "engine.runs.executor:Executor._decided",
        "is_made_up_for = bool(compensated_by) and not is_transient(error)",
        "is_made_up_for = False",
    ),
    Mutant(
        "policy-times-attempts",
        "a step with a policy runs as often as that says in the life of the run",
        (
            Edit(
                "engine.runs.executor:Executor._decided",
                "is_used_up = any(step.is_final for step in made_it_fail)",
                "is_used_up = False",
            ),
            Edit(
                "engine.replay.failures:reopened",
                "if not step.is_final\n",
                "",
            ),
        ),
        (),
    ),
    _broken(
        "attempts-of-a-step",
        "a step remembers how often it was tried",
        "engine.ctx.steps:step",
        "attempts = (recorded.attempts if recorded else 0) + 1",
        "attempts = 1",
    ),
    _broken(
        "transaction-error-unrecorded",
        "an error of a transaction is recorded",
        "engine.ctx.transactions:_attempt",
        "return Raise(await run_pass.recorder.fail(pending, failed, branch=branch))\n",
        "return Raise(failed)\n",
    ),
    _broken(
        "transaction-twice",
        "a transaction whose reply was lost is not carried out again",
        "db.runs.claims:transact",
        "if is_second and (found := await _recorded(db, fence, step)) is not None:\n"
        '    return found.output or "null"\n',
        "",
    ),
    _broken(
        "children-twice",
        "children whose start was not confirmed are not started again",
        "db.runs.claims:spawn",
        "if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:\n"
        '    return [int(run_id) for run_id in (found.output or "[]").strip("[]").split(",") if '
        "run_id]\n",
        "",
    ),
    _broken(
        "timeout-unrecorded",
        "a wait that timed out stays so in every pass",
        "engine.ctx.wait:wait_for.ask",
        "failed = await run_pass.recorder.fail_unless_answered(record, late, branch=branch)\n",
        'failed = WaitTimeout(f"no signal {name!r} came in time at {run_pass.now()}")\n',
    ),
    _broken(
        "cancelled-child-failed",
        "the parent of a cancelled child gets RunCancelled",
        "engine.ctx.children:_failure",
        "return (RunCancelled if status == RunStatus.CANCELLED else ExecutionFailed)(run_id, details)",
        "return ExecutionFailed(run_id, details)",
    ),
    _broken(
        "sleep-begins-again",
        "a sleep ends at the time that was fixed when it was first asked for",
        "engine.ctx.wait:sleep.ask",
        "until = _until(run_pass, place, length) or run_pass.now()\n",
        "until = run_pass.now() + length\n",
    ),
    _broken(
        "events-of-steps-lost",
        "what a step emits is published when the step is recorded",
        "engine.ctx.steps:_attempt",
        "await run_pass.recorder.record(record, emitted)",
        "await run_pass.recorder.record(record)",
    ),
    _broken(
        "events-again",
        "an event is published once, however often its handler is replayed",
        "engine.ctx.emissions:emit",
        "recorded = run_pass.recorded(place)\n"
        "if recorded is not None and recorded.status is StepStatus.SUCCESS:\n"
        "    await run_pass.order.turn(place.step_id)\n"
        "    return\n"
        "await run_pass.leave_behind()\n",
        "run_pass.recorded(place)\n",
    ),
    _broken(
        "steps-unfenced",
        "a worker that lost its lease records nothing",
        "db/runs/settlement.sql:record_held_steps",
        "and m.lease_token = given.token\nand m.leased_by is not null\n",
        "",
    ),
)


class Verdict(NamedTuple):
    mutant: Mutant
    killed: bool
    # The program and the fault that killed it, and what was wrong; or why it lives.
    by: str
    executed: int = 0


def verdicts(order: Order, chosen: tuple[Mutant, ...]) -> Iterator[Verdict]:
    def hunted(mutant: Mutant) -> Verdict:
        folder = order.folder / mutant.name
        try:
            return _hunted(order, mutant, folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        yield from pool.map(hunted, chosen)


def chosen_of(order: Order, case: str = "") -> tuple[Mutant, ...]:
    if case:
        return tuple(each for each in BREAKAGES if each.name in case.split(","))
    return BREAKAGES if order.full else tuple(random.Random(order.seed).sample(BREAKAGES, _BRIEFLY))


def _hunted(order: Order, mutant: Mutant, folder: Path) -> Verdict:
    try:
        copy = copy_of(mutant, folder)
    except NoLongerApplies as error:
        return Verdict(mutant, killed=False, by=f"no longer applies: {error}")
    executed = 0
    kind = ["racy"] if mutant in ORDERS else []
    for found in _hunt(copy, order.seed, [str(MOST_EXECUTIONS), *kind]):
        executed = found["executed"]
        if found["case"] and _is_killed(copy, order.seed, found["case"]):
            return Verdict(mutant, killed=True, by=f"{found['case']}: {found['said'][:160]}", executed=executed)
    return Verdict(mutant, killed=False, by=f"SURVIVED {executed} executions", executed=executed)


def _is_killed(copy: Path, seed: int, case: str) -> bool:
    """It happens again with it, and does not without it: then it is its doing."""
    return any(_hunt(copy, seed, ["check", case])) and not any(_hunt(ROOT / "src", seed, ["check", case]))


def _hunt(library: Path, seed: int, given: list[str]) -> Iterator[dict[str, Any]]:
    """What diverges on that library, as it is found; at its end, with an empty case, how much was executed."""
    command = [sys.executable, "-m", "proof.programs.hunt", str(seed), *given]
    path = os.pathsep.join([str(library), str(ROOT), str(ROOT / "tests")])
    with subprocess.Popen(
        ["timeout", str(_HUNT_SECONDS), *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                yield json.loads(line)
        finally:
            # `timeout` hands it on; a kill would end `timeout` alone, and the hunt would run on to its end.
            process.terminate()
