"""Which steps made a handler fail: those whose errors left it, and not those whose errors it caught."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pgqrs.db.writes import StepRecord
from pgqrs.engine.branches import Branch
from pgqrs.types import StepStatus


@dataclass(slots=True)
class FailedStep:
    """A step that failed in this pass, and the error that its caller saw."""

    record: StepRecord
    error: BaseException
    branch: Branch | None = None
    # True when the step has its own retry policy, which has given up: the run's retry does not run it again.
    is_final: bool = False
    # True when the handler got the error: not when it was cancelled while the error was being recorded.
    is_raised: bool = False
    # The errors of one call that raised the first of them, this one among them.
    beside: object = None


def culprits(failed: Sequence[FailedStep], error: BaseException) -> list[FailedStep]:
    """The failed steps that `error`, which has left the handler, came from.

    With them those that failed beside them: `gather` and `ctx.map` raise the first error alone, and no part of the
    handler has seen the others.
    """
    sources = list(_sources(failed, error))
    found = {id(step) for step in sources}
    parents = {_parent(step) for step in sources if _parent(step) is not None}
    calls = {id(step.beside) for step in sources if step.beside is not None}
    return [
        step
        for step in failed
        if id(step) in found or id(step.beside) in calls or (_is_unseen(step) and _parent(step) in parents)
    ]


def reopened(steps: Iterable[FailedStep]) -> tuple[StepRecord, ...]:
    """Their records as the next attempt shall find them: to be run again."""
    return tuple(
        step.record._replace(status=StepStatus.PENDING, output=None, is_again=True)
        for step in steps
        if not step.is_final
    )


def _sources(failed: Sequence[FailedStep], error: BaseException) -> Iterator[FailedStep]:
    # `except*` takes a group apart: each of its parts stands for the step that raised it.
    by_error = {id(part): step for step in failed for part in _parts(step.error)}
    seen: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        if (step := by_error.get(id(link))) is not None:
            # What it was raised in the place of, the handler had caught.
            yield step
        elif isinstance(link, BaseExceptionGroup):
            links += link.exceptions
        else:
            links.append(link.__cause__ if link.__cause__ is not None else link.__context__)


def _parts(error: BaseException) -> Iterator[BaseException]:
    yield error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _parts(part)


def _parent(step: FailedStep) -> Branch | None:
    return None if step.branch is None else step.branch.parent


def _is_unseen(step: FailedStep) -> bool:
    """True when its error reached no part of the handler, or ended a branch that is not the handler itself."""
    branch = step.branch
    return branch is not None and branch.parent is not None and (not step.is_raised or branch.error is step.error)
