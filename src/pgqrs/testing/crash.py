"""`crash_everywhere`: a dry run learns where a workflow can be killed, then it is killed at each of these places."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pgqrs.blocking import _portal
from pgqrs.config import Config
from pgqrs.db.views import inspection
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.errors import ConfigError
from pgqrs.testing.crash_kit import CrashKit, SyncCrashKit
from pgqrs.testing.crash_point import MODES, Boundary, Case, Mode
from pgqrs.testing.crash_workers import CrashableWorker, Forked, InProcess
from pgqrs.testing.handle import RunHandle, shown
from pgqrs.testing.kit import AsyncKit, handler_of
from pgqrs.testing.report import Report, Trial
from pgqrs.testing.step_hooks import Ledger
from pgqrs.text.step_ids import anywhere
from pgqrs.types import RunStatus

# The crash that a failure names, for `pytest` to repeat only that.
VARIABLE = "PGQRS_CRASH_AT"
# A boundary that did not come up in so many tries is missed: parallel steps are committed together or not, by chance.
_TRIES = 3
# Enough to see a pattern.
_MOST_FAILURES = 10

Effects = Counter[str]
Check = Callable[[RunHandle, Effects], Any]
Drive = Callable[[Any, RunHandle], Any]


def crash_everywhere(
    workflow: Any,
    /,
    *args: Any,
    check: Check | None = None,
    drive: Drive | None = None,
    setup: Callable[[], Any] | None = None,
    compare: Callable[[Any, Any], bool] | None = None,
    modes: Sequence[Mode] = ("kill",),
    real: bool = False,
    dsn: str | None = None,
    only: str | None = None,
    serve: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Report:
    """Kills the worker at every durable boundary of the workflow, lets another recover, and checks what comes out.

    `args` and `kwargs` are the workflow's own; or one mapping with its parameters. After each crash the run must end
    as it did without one, with the same steps on record, and no step body may have run more than once more. Steps of
    branches are compared by name and number, whichever branch asked for them: that may depend on timing.

    `check(run, effects)` may ask for more: `effects` counts how often each body began. `drive(kit, run)` is the
    world outside: it drains, signals, advances. `setup()` is called before each run, to reset what the workflow's own
    code remembers. `compare(expected, result)` replaces `==` where results hold times or random values. `serve` names
    handlers of other workflows that take part.

    `modes`: `kill`; `stall` freezes the worker past its lease, and lets it go on when another one has finished.
    `real` does it to a forked process, with SIGKILL and SIGSTOP. `dsn` names another database than a temporary SQLite
    file; each run gets a file or a schema of its own there. `only` repeats one crash of a report.
    Raises AssertionError with the place, the timeline and the way to repeat it.
    """
    __tracebackhide__ = True
    if unknown := [mode for mode in modes if mode not in MODES]:
        raise ConfigError(f"there is no mode {unknown[0]!r}", hint=f"there are {', '.join(MODES)}")
    handler = handler_of(workflow)
    trial = _Plan(handler, (args, kwargs), check, drive, setup, compare, real, dsn, dict(serve or {}))
    only = only or os.environ.get(VARIABLE)
    with _folder() as folder:
        expected = _learned(trial, folder)
        report = Report(handler.name, expected.outcome.text())
        if expected.parked:
            raise DoesNotSurvive(expected.parked, report)
        every = [Case(mode, boundary) for mode in modes for boundary in expected.during]
        for case in [Case.of(only)] if only else every:
            report.trials.append(_tried(trial, case, expected, folder))
            if len(report.failures) == _MOST_FAILURES:
                break
    if report.failures:
        raise DoesNotSurvive(_told(report), report)
    return report


class DoesNotSurvive(AssertionError):
    """Says where, why, what happened, and how to repeat it; `report` has all of the trials."""

    def __init__(self, text: str, report: Report) -> None:
        super().__init__(text)
        self.report = report


@dataclass(frozen=True, slots=True)
class _Plan:
    handler: Handler
    given: tuple[tuple[Any, ...], dict[str, Any]]
    check: Check | None
    drive: Drive | None
    setup: Callable[[], Any] | None
    compare: Callable[[Any, Any], bool] | None
    real: bool
    dsn: str | None
    serve: dict[str, Any]


class _Outcome(NamedTuple):
    """How a run ended, or where it waits, and what it left behind."""

    status: RunStatus
    value: Any
    steps: tuple[str, ...]
    # What it has put into the outbox.
    emitted: tuple[str, ...]
    # Its children, and theirs.
    runs: dict[str, int]

    @classmethod
    def of(cls, run: RunHandle, kit: CrashKit) -> _Outcome:
        match run.status:
            case RunStatus.SUCCESS:
                value = run.result()
            case RunStatus.PAUSED:
                value = run.waiting_for
            case _:
                value = run.error
        # A child's id stands in the name of the step that waits for it; one that was rolled back leaves a gap.
        steps = sorted(anywhere(step) for step in run.step_ids)
        return cls(run.status, value, tuple(steps), kit.emitted, kit.run_counts)

    def text(self) -> str:
        return f"{self.status} {shown(self.value)}"

    def differs_from(self, other: _Outcome, compare: Callable[[Any, Any], bool] | None) -> str:
        """What is another here than there; empty when nothing is."""
        if self.status is not other.status:
            return f"it ended as {self.text()} and not as {other.text()}"
        same = self.value == other.value if compare is None else compare(other.value, self.value)
        # What a paused run shows may be a time that has moved.
        if not same and self.status is not RunStatus.PAUSED:
            return f"it gave {shown(self.value)} and not {shown(other.value)}"
        if self.steps != other.steps:
            return f"it has the steps {list(self.steps)} on record and not {list(other.steps)}"
        if self.emitted != other.emitted:
            return f"it has emitted {list(self.emitted)} and not {list(other.emitted)}"
        if self.runs != other.runs:
            return f"there are runs {self.runs} and not {other.runs}"
        return ""


class _Expected(NamedTuple):
    outcome: _Outcome
    effects: Effects
    # Each boundary, and the step whose body had begun last before it.
    during: dict[Boundary, str]
    handlers: dict[str, Handler]
    # Its code is not deterministic, and a wait has shown that.
    parked: str


def _learned(plan: _Plan, folder: Path) -> _Expected:
    """Run it without a crash; again, if it has met workflows that every other run serves from its beginning."""
    expected = _dry_run(plan, {}, folder)
    served = {plan.handler.name, *plan.serve}
    return expected if served.issuperset(expected.handlers) else _dry_run(plan, expected.handlers, folder)


def _dry_run(plan: _Plan, handlers: dict[str, Handler], folder: Path) -> _Expected:
    ledger = _LearningLedger(folder / f"{secrets.token_hex(6)}.txt")
    victim = InProcess("kill", None)
    ledger.seen = victim.seen
    kit, run = _ran(plan, victim, ledger, handlers, folder)
    if not victim.seen:
        raise ConfigError(f"workflow {plan.handler.name!r} came to no boundary: drive it with kit.drain()")
    if run.status in (RunStatus.PENDING, RunStatus.RUNNING):
        raise AssertionError(f"without a crash it does not come to rest; give it a `drive`\n{run.timeline()}")
    parked = f"without a crash it is {run.waiting_for}\n{run.timeline()}" if run.is_parked else ""
    return _Expected(_Outcome.of(run, kit), ledger.read(), ledger.during(), kit.handlers, parked)


class _LearningLedger(Ledger):
    """Remembers beside which boundary each body began."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.seen: list[Boundary] = []
        self._begun: list[tuple[int, str]] = []

    def write(self, name: str) -> None:
        self._begun.append((len(self.seen), name))
        super().write(name)

    def during(self) -> dict[Boundary, str]:
        found = {}
        for index, boundary in enumerate(self.seen):
            before = [name for at, name in self._begun if at <= index]
            found[boundary] = f"{before[-1]} has begun" if before else "no step has begun"
        return found


def _tried(plan: _Plan, case: Case, expected: _Expected, folder: Path) -> Trial:
    during = expected.during.get(case.boundary, "")
    for number in range(_TRIES):
        ledger = Ledger(folder / f"{secrets.token_hex(6)}.txt")
        victim: CrashableWorker = (
            Forked(case.mode, case.boundary, folder) if plan.real else InProcess(case.mode, case.boundary)
        )
        kit, run = _ran(plan, victim, ledger, expected.handlers, folder)
        if not kit.crashes and number < _TRIES - 1:
            continue
        effects = ledger.read()
        why = _wrong(plan, kit, run, effects, expected)
        if why:
            return Trial(case, during, "failed", why=f"{why}\n{run.timeline()}\n  bodies begun: {dict(effects)}")
        usual = _usual(expected.effects)
        repeated = tuple(sorted(name for name in effects if effects[name] > usual[_of_any_run(name)]))
        return Trial(case, during, "survived" if kit.crashes else "missed", repeated)
    raise AssertionError("the last try always answers")


def _ran(
    plan: _Plan, victim: CrashableWorker, ledger: Ledger, handlers: dict[str, Handler], folder: Path
) -> tuple[CrashKit, RunHandle]:
    """One run on a database of its own, driven to its end."""
    if plan.setup is not None:
        plan.setup()
    config = _fresh(plan.dsn, folder)
    inner = CrashKit(config, victim, ledger)
    kit = SyncCrashKit(inner)
    try:
        kit.serve(plan.serve, *handlers.values())
        args, kwargs = plan.given
        run = kit.trigger(plan.handler, *args, **kwargs)
        if plan.drive is None:
            kit.drain(skip_time=True)
        else:
            plan.drive(kit, run)
        kit.survey()
        return inner, run
    finally:
        _portal.run(_forgotten(inner))


async def _forgotten(kit: AsyncKit) -> None:
    if kit.config.backend == "postgres":
        await inspection.drop_schema((await kit.open()).database, kit.config.schema)
    await kit.close()


def _wrong(plan: _Plan, kit: CrashKit, run: RunHandle, effects: Effects, expected: _Expected) -> str:
    if kit.broken:
        return kit.broken
    if differs := _Outcome.of(run, kit).differs_from(expected.outcome, plan.compare):
        return differs
    return _miscounted(kit, run, effects, expected.effects) or _checked(plan, run, effects)


def _of_any_run(name: str) -> str:
    """A name of the ledger without its branch, and without the number of a child: spawning has no fixed order.

    Branches that share a queue or a lock divide the work by the order in which their steps end. That order is
    recorded, so it is the same in every pass of a run. Two runs differ in it, and both are right.
    """
    return anywhere(re.sub(r"^([^/]+)/\d+/", r"\1/", name))


def _usual(expected: Effects) -> Effects:
    """How often each body began at most, wherever it was asked for."""
    usual: Effects = Counter()
    for name, count in expected.items():
        usual[_of_any_run(name)] = max(usual[_of_any_run(name)], count)
    return usual


def _miscounted(kit: CrashKit, run: RunHandle, effects: Effects, expected: Effects) -> str:
    """A body may run once more for each crash, and not at all when it was on record."""
    usual = _usual(expected)
    for name, count in sorted(effects.items()):
        most = usual[_of_any_run(name)] + run.crashes
        if count > most:
            return f"the body of step {name!r} ran {count} times; {most} at most after {run.crashes} crash"
    for name, count in sorted(kit.on_record.items()):
        # An error on record is tried again when the run is.
        if effects[name] > max(count, usual[_of_any_run(name)]):
            return f"the body of step {name!r} ran again although it was on record"
    missing = Counter(map(_of_any_run, expected)) - Counter(map(_of_any_run, effects))
    return f"the body of step {min(missing)!r} did not run as often as without a crash" if missing else ""


def _checked(plan: _Plan, run: RunHandle, effects: Effects) -> str:
    """What the user's own check says."""
    if plan.check is None:
        return ""
    try:
        said = plan.check(run, effects)
    except AssertionError as error:
        return f"the check failed: {str(error) or 'an assert without a message'}"
    return "the check said no" if said is False else ""


def _fresh(dsn: str | None, folder: Path) -> Config:
    """A database that nobody has used, so that each run has the same id."""
    name = f"crash_{secrets.token_hex(6)}"
    if dsn is not None and Config(dsn).backend == "postgres":
        return Config(dsn, schema=name, pool_size=4, audit="full")
    scheme = "sqlite" if dsn is None else Config(dsn).backend
    return Config(f"{scheme}:///{folder / name}.db", schema="public", audit="full")


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="pgqrs-crash-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _told(report: Report) -> str:
    first, *others = report.failures
    lines = [
        f"{report.workflow} does not survive {first.where}: {first.why}",
        f"repeat it with: {_repeat(first.case)}",
    ]
    lines += [f"nor {trial.where}: {trial.why.splitlines()[0]}" for trial in others]
    return "\n".join([*lines, "", str(report)])


def _repeat(case: Case) -> str:
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if not test:
        return f"crash_everywhere(..., only={str(case)!r})"
    return f"{VARIABLE}={str(case)!r} python -m pytest {test!r}"
