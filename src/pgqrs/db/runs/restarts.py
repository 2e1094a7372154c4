"""Healing: which recorded steps made a run fail, so that a restart reopens these and nothing else.

A run that ends in ERROR records, in `error["steps"]`, the steps whose error left its handler. A restart deletes these
records, and the next pass executes the steps again. Everything else stays: results, errors that the handler caught,
sleeps with their wake-up time. Older versions recorded no such list. Of their runs a restart reopens everything that
had not succeeded, except waits, and the failed results of children that have been restarted since.

`map` raises the first failure among its children. The other failures of the same `map` were not caught either, so
they are reopened as well once their children have been restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pgqrs.db.database import Database
from pgqrs.db.queries import load
from pgqrs.errors import InvalidTransition, SerializationError
from pgqrs.serialization import decode, object_in
from pgqrs.text.shell import command
from pgqrs.text.step_ids import child_of, is_spawn
from pgqrs.types import RunStatus, StepStatus

_SQL = load(__package__, "restarts")

# Ends that no step is to blame for: every worker was lost, or none had code for the run.
_BLAMELESS = frozenset({"worker_lost", "no_handler_registered"})
# How older versions recorded the failure of a child: as a value.
_FAILED_VALUES = ('["ERROR"', '["CANCELLED"')
_ENDED_BADLY = (RunStatus.ERROR, RunStatus.CANCELLED)


class EndedRun(NamedTuple):
    """A run, locked until the transaction ends."""

    run_id: int
    status: RunStatus
    error: str | None
    last_error: str | None


class ChildState(NamedTuple):
    """A child of a run that is healed, as it is now."""

    status: RunStatus
    deleted_at: datetime | None

    @property
    def has_failed(self) -> bool:
        return self.status in _ENDED_BADLY or self.deleted_at is not None


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded step, as far as it tells what made its run fail."""

    step_id: str
    # It failed, or was to be retried. A step that waits has not failed.
    is_open: bool
    # It has asked for something, and has no answer: it waits, or is to be tried again.
    is_unanswered: bool
    # The child whose result it is, and whether that is a failure.
    child: int | None
    is_failed_result: bool
    # The children that it started together.
    spawned: frozenset[int]

    @classmethod
    def of(cls, step_id: str, status: StepStatus, output: str | None) -> Recorded:
        """`output` may be cut short, except that of a `spawn` step."""
        child = child_of(step_id)
        done = status is StepStatus.SUCCESS
        failed = status is StepStatus.ERROR or (done and (output or "").startswith(_FAILED_VALUES))
        return cls(
            step_id,
            is_open=status not in (StepStatus.SUCCESS, StepStatus.PAUSED),
            is_unanswered=status not in (StepStatus.SUCCESS, StepStatus.ERROR),
            child=child,
            is_failed_result=child is not None and failed,
            spawned=_spawned(output) if done and is_spawn(step_id) else frozenset(),
        )


@dataclass(frozen=True, slots=True)
class Blame:
    """What made one run fail."""

    # Records that every restart deletes.
    steps: frozenset[str] = frozenset()
    # Failures that are reopened once their child is no longer failed: records, by child.
    results: Mapping[int, frozenset[str]] = field(default_factory=dict)
    # Children whose failure ended the run, and those of them that no longer exist.
    guilty: frozenset[int] = frozenset()
    gone: frozenset[int] = frozenset()
    # Children that the run has asked for and has no answer from; and those whose answer is recorded.
    awaited: frozenset[int] = frozenset()
    answered: frozenset[int] = frozenset()

    def reopened(self, recovered: Iterable[int]) -> frozenset[str]:
        """The records to delete when these children are no longer failed."""
        return self.steps.union(*(self.results[child] for child in recovered if child in self.results))


def culprits_in(error: str | None, last_error: str | None) -> frozenset[str] | None:
    """The steps that the record of a failed run blames; None when an older version wrote it, which did not say."""
    if last_error in _BLAMELESS:
        return frozenset()
    named = object_in(error).get("steps")
    return frozenset(each for each in named if isinstance(each, str)) if isinstance(named, list) else None


def compensations_in(error: str | None) -> list[str]:
    """The steps with which the handler of a failed run made up for its error, such as a refund."""
    named = object_in(error).get("compensated_by")
    return [each for each in named if isinstance(each, str)] if isinstance(named, list) else []


def refuse_compensated(run: EndedRun) -> None:
    """Raises InvalidTransition when the handler of this run has made up for the error that ended it."""
    if run.status is RunStatus.ERROR and (done := compensations_in(run.error)):
        again, only = command("run reset", run.run_id), command("run restart", run.run_id)
        raise InvalidTransition(
            f"run {run.run_id} ended in ERROR after its workflow had run {', '.join(map(repr, done))} because of the "
            "error, and the step that failed could succeed now",
            hint=f"to begin again: {again}; to run only the failed step again: {only}",
        )


def blames_children(error: str | None, last_error: str | None) -> bool:
    """True when the record of a failed run says that it failed because of a child."""
    named = culprits_in(error, last_error)
    if named is None:
        return object_in(error).get("type") in ("ExecutionFailed", "RunCancelled")
    return any(map(_is_result, named))


def blame(run: EndedRun, steps: Sequence[Recorded], children: Mapping[int, ChildState]) -> Blame:
    """What is to blame for the end of the run; `children` are those of its own that its steps name."""
    answered = _children(step.child for step in steps if not step.is_unanswered)
    if run.status is not RunStatus.ERROR:
        # Cancelled, or its worker crashed: no step is to blame.
        return Blame(answered=answered)
    failed = {step.step_id: step.child for step in steps if step.is_failed_result and step.child in children}
    awaited = _children(step.child for step in steps if step.is_unanswered and step.child in children)
    named = culprits_in(run.error, run.last_error)
    if named is None:
        opened = frozenset(step.step_id for step in steps if step.is_open and step.step_id not in failed)
        guilty = _children(failed.values())
        return Blame(opened, _by_child(failed), guilty, awaited=awaited, answered=answered)
    mine = [step for step in steps if step.step_id in named and (step.is_open or step.step_id in failed)]
    opened = frozenset(step.step_id for step in mine)
    guilty = _children(step.child for step in mine if step.step_id in failed)
    started = [step.spawned for step in steps if step.spawned]
    gone = _children(step.child for step in mine if step.is_failed_result) - guilty
    gone &= frozenset[int]().union(*started)
    together = frozenset[int]().union(*(each for each in started if each & guilty)) - guilty
    siblings = {step_id: child for step_id, child in failed.items() if child in together and step_id not in opened}
    return Blame(opened, _by_child(siblings), guilty, gone, awaited, answered)


async def reopened_by_restart(db: Database, run: EndedRun) -> list[str]:
    """The records that a restart of this run alone deletes. Its children stay what they are."""
    _, found, children = (await _surveyed(db, [run]))[0]
    recovered = [each for each in found.results if not children[each].has_failed]
    return sorted(found.reopened(recovered))


async def plan_of_retry(db: Database, run: EndedRun) -> dict[int, list[str]]:
    """The runs to restart so that this one can succeed: itself, the children that it failed because of, and theirs.

    With them come the failed children that the run has no answer from: it would fail because of these next. Each run
    comes with the records that it loses, a parent before its children. All of them are locked.
    """
    plan: dict[int, list[str]] = {}
    level = [run]
    while level:
        wanted: set[int] = set()
        failed = await _failed_children(db, level)
        for each, found, children in await _surveyed(db, level):
            retried, recovered = _retried(each, found, children)
            if found.guilty or found.awaited or each.status is RunStatus.CANCELLED:
                retried |= failed[each.run_id] - found.answered
            wanted |= retried
            plan[each.run_id] = sorted(found.reopened(recovered | retried))
        if len(plan) == 1 and not wanted and not any(map(_is_result, plan[run.run_id])):
            raise InvalidTransition(
                f"run {run.run_id} did not fail because of a child",
                hint=f"to restart the run alone: {command('run restart', run.run_id)}",
            )
        # One that another call restarts first only needs its result reopened. One that is its own ancestor, as only a
        # row that was changed by hand can be, is planned already.
        level = [each for each in await locked(db, wanted - plan.keys()) if each.status in _ENDED_BADLY]
    return plan


async def locked(db: Database, run_ids: Iterable[int]) -> list[EndedRun]:
    """Those of the given that are there and not deleted."""
    wanted = sorted(run_ids)
    if not wanted:
        return []
    rows = await db.fetch(_SQL["lock_runs"], run_ids=wanted)
    return [EndedRun(run_id, RunStatus(status), *texts) for run_id, status, *texts in rows]


async def reopen(db: Database, plan: Mapping[int, Sequence[str]]) -> None:
    """Deletes the records that the plan names.

    The handler may have done what was recorded after them because of these failures, as a branch has that a failing
    sibling cancelled. Those steps keep their results and lose their places: a replay may ask for others there.
    """
    given = [(run_id, step_id) for run_id, steps in plan.items() for step_id in steps]
    if not given:
        return
    first = await db.fetch(_SQL["first_of_given"], given=given)
    await db.execute(_SQL["delete_given_steps"], given=given)
    if first:
        await db.execute(_SQL["lose_places_behind"], given=[(run_id, number) for run_id, number in first])


def _retried(run: EndedRun, found: Blame, children: Mapping[int, ChildState]) -> tuple[set[int], set[int]]:
    """The children to restart, and those that only need their result reopened."""
    for child in sorted(found.gone):
        raise InvalidTransition(
            f"run {run.run_id} failed because of its child {child}, which no longer exists",
            hint=f"to start the run from scratch: {command('run reset', run.run_id)}",
        )
    for child in sorted(found.guilty):
        if children[child].deleted_at is not None:
            raise InvalidTransition(
                f"run {run.run_id} failed because of its child {child}, which is deleted",
                hint=f"restore it first: {command('run restore', child)}",
            )
    asked = found.guilty | found.results.keys() | found.awaited
    live = {child for child in asked if children[child].deleted_at is None}
    retried = {child for child in live if children[child].has_failed}
    return retried, live - retried


async def _surveyed(db: Database, runs: Sequence[EndedRun]) -> list[tuple[EndedRun, Blame, dict[int, ChildState]]]:
    """Each run with what is to blame for its end, and its children that its steps name."""
    steps: dict[int, list[Recorded]] = {run.run_id: [] for run in runs}
    for run_id, step_id, status, output in await db.fetch(_SQL["telling_steps"], run_ids=list(steps)):
        steps[run_id].append(Recorded.of(step_id, StepStatus(status), output))
    named = {step.child for each in steps.values() for step in each if step.child is not None}
    children: dict[int, dict[int, ChildState]] = {run.run_id: {} for run in runs}
    rows = await db.fetch(_SQL["children_given"], run_ids=sorted(named)) if named else []
    for run_id, parent_run_id, status, deleted_at in rows:
        if parent_run_id in children:
            children[parent_run_id][run_id] = ChildState(RunStatus(status), deleted_at)
    return [(run, blame(run, steps[run.run_id], children[run.run_id]), children[run.run_id]) for run in runs]


async def _failed_children(db: Database, runs: Sequence[EndedRun]) -> dict[int, set[int]]:
    """By run, its children that failed or were cancelled."""
    found: dict[int, set[int]] = {run.run_id: set() for run in runs}
    for run_id, parent_run_id in await db.fetch(_SQL["failed_children"], run_ids=list(found)):
        found[parent_run_id].add(run_id)
    return found


def _spawned(output: str | None) -> frozenset[int]:
    try:
        found = decode(output or "null")
    except SerializationError:
        return frozenset()
    return frozenset(each for each in found if isinstance(each, int)) if isinstance(found, list) else frozenset()


def _children(found: Iterable[int | None]) -> frozenset[int]:
    return frozenset(child for child in found if child is not None)


def _by_child(records: Mapping[str, int | None]) -> dict[int, frozenset[str]]:
    found: dict[int, set[str]] = {}
    for step_id, child in records.items():
        if child is not None:
            found.setdefault(child, set()).add(step_id)
    return {child: frozenset(steps) for child, steps in found.items()}


def _is_result(step_id: str) -> bool:
    return child_of(step_id) is not None
