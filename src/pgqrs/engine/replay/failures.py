"""Which steps made a handler fail: those whose errors left it, and not those whose errors it caught."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgqrs.db.runs.records import StepRecord
from pgqrs.engine.recorded_errors import Program, raised_again, record_of
from pgqrs.engine.replay.branches import Branch, current_branch, handled_here
from pgqrs.errors import StepFailed
from pgqrs.serialization import object_in
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
    beside: Sequence[BaseException] = ()


class Failures:
    """The steps that failed in one pass, and what the handler did about it."""

    __slots__ = ("_program", "compensations", "steps")

    def __init__(self, program: Program) -> None:
        self._program = program
        self.steps: list[FailedStep] = []
        self.compensations: Compensations = Compensations(around=handled_here())

    def error_text(self, error: BaseException) -> str:
        return record_of(error, program=self._program)

    def failure_of(
        self, record: StepRecord, *, is_final: bool = False, branch: Branch | None = None
    ) -> BaseException:
        """The recorded error of a step, as an object; remembered in case it leaves the handler."""
        error = raised_again(record.error or "{}", program=self._program, step_id=record.step_id)
        self.steps.append(FailedStep(record, error, branch or current_branch.get(), is_final))
        return error

    def mark_last(self, *, is_final: bool) -> None:
        """Of the step that failed last: whether the run's retry leaves it as it is."""
        self.steps[-1].is_final = is_final

    def raised(self, error: BaseException) -> BaseException:
        """The handler gets this error of a step now."""
        for step in self.steps:
            if step.error is error:
                step.is_raised = True
        return error

    def failed_together(self, errors: Sequence[BaseException]) -> None:
        """One of these errors is about to be raised in the place of all of them."""
        given = {id(error) for error in errors}
        for step in self.steps:
            if id(step.error) in given:
                step.beside = errors

    def culprits(self, error: BaseException) -> list[FailedStep]:
        """The failed steps that `error`, which has left the handler, came from."""
        return culprits(self.steps, error)

    def compensated_by(self, error: BaseException) -> list[str]:
        """The steps by which the handler made up for `error`, which has left it all the same."""
        return self.compensations.of(error, self.steps)

    def close(self) -> None:
        self.steps.clear()
        self.compensations.clear()


def culprits(failed: Sequence[FailedStep], error: BaseException) -> list[FailedStep]:
    """The failed steps that `error`, which has left the handler, came from.

    With them those that failed beside them: `gather` and `ctx.map` raise the first error alone, and no part of the
    handler has seen the others.
    """
    return _Uncaught(failed, error).steps


def reopened(steps: Iterable[FailedStep]) -> tuple[StepRecord, ...]:
    """Their records as the next attempt shall find them: to be run again."""
    return tuple(
        step.record._replace(status=StepStatus.PENDING, output=None, is_again=True)
        for step in steps
        if not step.is_final
    )


def raised_as(failed: Iterable[FailedStep], error: BaseException) -> tuple[str, str] | None:
    """The module and the name of the class that a step raised, where the handler got a stand-in for it."""
    if not isinstance(error, StepFailed):
        return None
    for step in failed:
        if step.error is error:
            known = object_in(step.record.error)
            return str(known.get("module")), str(known.get("qualname"))
    return None


class Compensations:
    """The steps that a handler asked for while it was handling an error, and that error."""

    def __init__(self, around: BaseException | None) -> None:
        # What the code that runs the worker is handling itself: no error of the handler's.
        self._around = around
        self._noted: list[tuple[str, BaseException]] = []

    def note(self, step_id: str) -> None:
        error = handled_here()
        if error is not None and error is not self._around:
            self._noted.append((step_id, error))

    def of(self, error: BaseException, failed: Sequence[FailedStep]) -> list[str]:
        """What the handler did about `error`, which has left it all the same: a refund, say."""
        if not self._noted:
            return []
        by_error = _by_error(failed)
        uncaught = _Uncaught(failed, error).errors
        left = {id(link) for each in uncaught for link in _links(by_error, each)} - {id(self._around)}
        return [
            step_id for step_id, handled in self._noted if any(id(link) in left for link in _links(by_error, handled))
        ]

    def clear(self) -> None:
        self._noted.clear()


class _Uncaught:
    """The error that has left the handler, and every error beside it that no part of the handler has seen."""

    def __init__(self, failed: Sequence[FailedStep], error: BaseException) -> None:
        self._by_error = _by_error(failed)
        # By what would have raised them: a call of `gather`, or the branch that began theirs.
        self._unseen: defaultdict[int, list[BaseException]] = defaultdict(list)
        self._sources_by_branch: dict[Branch, set[int]] = {}
        for step in failed:
            self._look_for_unseen(step)
        self.errors: list[BaseException] = [error]
        found: set[int] = set()
        # The list grows on the way.
        for each in self.errors:
            for step in self._sources(each):
                if id(step) not in found:
                    found.add(id(step))
                    self._add_those_beside(step)
        self.steps: list[FailedStep] = [step for step in failed if id(step) in found]

    def _look_for_unseen(self, step: FailedStep) -> None:
        if not step.is_raised:
            self._keep_unseen(step.error, step.branch)
            return
        for branch in self._ended_by(step):
            if branch.error is None or branch.is_collected:
                continue
            if branch.gathered_in is not None:
                self._unseen[id(branch.gathered_in)].append(branch.error)
            is_missed = branch.parent is not None and branch.parent.missed is branch.error
            if is_missed or (branch.gathered_in is None and not branch.is_heard()):
                self._keep_unseen(branch.error, branch)

    def _keep_unseen(self, error: BaseException, branch: Branch | None) -> None:
        """Under the branch that would have seen it; where that was cancelled, also under the one around it."""
        while branch is not None and branch.parent is not None:
            self._unseen[id(branch.parent)].append(error)
            branch = branch.parent
            if branch.task is None or not branch.task.cancelled():
                return

    def _add_those_beside(self, step: FailedStep) -> None:
        self.errors += step.beside
        for branch in self._ended_by(step):
            self.errors += self._unseen.pop(id(branch.gathered_in), ())
            self.errors += self._unseen.pop(id(branch.parent), ())

    def _ended_by(self, step: FailedStep) -> Iterator[Branch]:
        """The branch of the step, and those around it that ended with its error; but not the handler itself."""
        branch = step.branch
        while branch is not None and branch.parent is not None:
            yield branch
            if branch not in self._sources_by_branch:
                error = branch.error
                self._sources_by_branch[branch] = set() if error is None else {id(e) for e in self._sources(error)}
            if id(step) not in self._sources_by_branch[branch]:
                return
            branch = branch.parent

    def _sources(self, error: BaseException) -> Iterator[FailedStep]:
        for link in _links(self._by_error, error):
            if (step := self._by_error.get(id(link))) is not None:
                yield step


def _by_error(failed: Sequence[FailedStep]) -> dict[int, FailedStep]:
    # `except*` takes a group apart: each of its parts stands for the step that raised it.
    return {id(part): step for step in failed for part in _parts(step.error)}


def _links(by_error: Mapping[int, FailedStep], error: BaseException) -> Iterator[BaseException]:
    """The error, its parts, and what it was raised from or while handling, as far as the errors of steps."""
    seen: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if id(link) in by_error:
            # What it was raised in the place of, the handler had caught.
            continue
        if isinstance(link, BaseExceptionGroup):
            links += link.exceptions
        # Both: `raise Failed from e.__cause__` names one error in the block that handles another.
        links += (link.__cause__, link.__context__)


def _parts(error: BaseException) -> Iterator[BaseException]:
    yield error
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _parts(part)
