"""What is recorded of a run by place: which step of which branch stands where, and which of it was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.replay.branches import Branch, BranchPlace
from pgqrs.text.step_ids import branch_of
from pgqrs.types import StepStatus


class Places:
    """The recorded steps of a run, and how far a pass has come in them."""

    def __init__(self, steps: dict[str, RecordedStep]) -> None:
        self._steps = steps
        # Asked for, or of an attempt that went another way.
        self._asked: set[str] = set()
        # Recorded after a result that is reopened now: a branch may have been there because of that result alone, as
        # one is that a failing sibling cancelled. They keep their results and lose their places.
        self._after_reopened = _after_reopened(steps)
        self._asked.update(self._after_reopened)
        # Those that have lost their places, in this pass or an earlier one.
        self._lost = {s.step_id for s in steps.values() if s.ordinal < 0}.union(self._after_reopened)
        self._by_place = {
            (branch_of(s.step_id), s.ordinal): s
            for s in steps.values()
            if s.ordinal >= 0 and s.step_id not in self._after_reopened
        }
        # By branch: the last recorded ordinal, and the number of the last branch of it that has a record.
        self._furthest: dict[str, int] = {}
        self._last_child: dict[str, int] = {}
        for path, ordinal in self._by_place:
            self._furthest[path] = max(ordinal, self._furthest.get(path, -1))
            self._note_branch(path)

    def _note_branch(self, path: str) -> None:
        while path:
            path, _, number = path.rpartition(".")
            self._last_child[path] = max(int(number), self._last_child.get(path, 0))

    def ask(self, place: BranchPlace, branch: Branch | None) -> RecordedStep | None:
        """Notes that the handler asks for a step; gives another one that is recorded in its place."""
        if not self._steps:
            return None
        self._asked.add(place.step_id)
        recorded = None if branch is None else self._by_place.get((branch.path, place.ordinal))
        return None if recorded is None or recorded.step_id == place.step_id else recorded

    def has_passed(self, branch: Branch) -> bool:
        """True while an earlier pass went beyond the place where the branch is now."""
        return self._furthest.get(branch.path, -1) >= branch.ordinal

    def has_lost(self, step_id: str) -> bool:
        """True when an attempt that went another way has recorded it: what is asked for now may be something else."""
        return step_id in self._lost

    def missing(self) -> RecordedStep | None:
        """A completed step of the handler's own branch that it has not asked for."""
        for step in self._steps.values():
            done = step.status is StepStatus.SUCCESS and step.ordinal >= 0 and not branch_of(step.step_id)
            if done and step.step_id not in self._asked:
                return step
        return None

    def leave_behind(self, branch: Branch) -> list[str]:
        """The branch does something that is not recorded: what is recorded behind it was another attempt's way.

        A step that failed and is run again, after a retry or a restart, may be followed by what the handler did about
        its failure. Those steps keep their results and lose their places; the record of places forgets them here.
        Before this is asked every branch must have replayed what it can.
        """
        lost, self._after_reopened = self._after_reopened, []
        return lost + self._left_by(branch)

    def _left_by(self, branch: Branch) -> list[str]:
        """What is recorded further on: of a run that failed before results had numbers (migration 6)."""
        chain = (branch, *branch.ancestors())
        if not any(self.has_passed(each) or self._last_child.get(each.path, 0) > each.children for each in chain):
            return []
        stale = [key for each in chain for key in self._behind(each)]
        left = [self._by_place.pop(key).step_id for key in stale]
        self._asked.update(left)
        self._lost.update(left)
        for each in chain:
            self._furthest[each.path] = min(self._furthest.get(each.path, -1), each.ordinal - 1)
            self._last_child[each.path] = min(self._last_child.get(each.path, 0), each.children)
        return left

    def _behind(self, branch: Branch) -> Iterator[tuple[str, int]]:
        prefix = f"{branch.path}." if branch.path else ""
        for path, ordinal in self._by_place:
            if path == branch.path:
                if ordinal >= branch.ordinal:
                    yield path, ordinal
            elif path.startswith(prefix) and int(path[len(prefix) :].partition(".")[0]) > branch.children:
                yield path, ordinal


def _after_reopened(steps: dict[str, RecordedStep]) -> list[str]:
    """What the handler did after the failure of a step that is to be run again; that step has its number until then.

    A wait that has not ended has no number: it may be one that a cancelled branch began in its `finally`.
    """
    reopened = [s.sequence for s in steps.values() if s.status is StepStatus.PENDING and s.sequence is not None]
    first = min(reopened, default=None)
    if first is None:
        return []
    return [s.step_id for s in steps.values() if s.ordinal >= 0 and _is_after(s, first)]


def _is_after(step: RecordedStep, number: int) -> bool:
    return step.status is StepStatus.PAUSED if step.sequence is None else step.sequence > number


# Of a run that has not recorded anything, which most passes begin with. Nothing is ever noted in it.
NOTHING_RECORDED = Places({})
