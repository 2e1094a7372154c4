"""The states of a branch, and which of them may follow which.

    RUNNING    its own code decides what it does next: it runs, or it waits for something that the engine did not give
    PARKED     the engine owes it a result: it moves when that is given, or when it is cancelled
    WAITING    in a wait of the context, which only a later pass ends
    ENDED      its task or thread has ended

              +--> PARKED --+
    RUNNING --|             |--> RUNNING --> ENDED
              +--> WAITING -+

A run may be put to rest when no branch is PARKED and none that is RUNNING can move by itself: `task_states.py` finds
out what these wait for.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import ClassVar


class BranchState(Enum):
    RUNNING = "running"
    PARKED = "parked"
    WAITING = "waiting"
    ENDED = "ended"

    # By identity, as Enum compares: its own hash is a Python function, which takes longer than all of `may_follow`.
    __hash__: ClassVar[Callable[[BranchState], int]] = object.__hash__


# Out of PARKED and WAITING the way leads through RUNNING. Only a handler that makes tasks past the event loop's
# factory, with `asyncio.Task(...)`, has two of them in one branch: one may wait, or end, while the other is parked.
_NEXT = {
    BranchState.RUNNING: frozenset({BranchState.PARKED, BranchState.WAITING, BranchState.ENDED}),
    BranchState.PARKED: frozenset({BranchState.RUNNING, BranchState.WAITING, BranchState.ENDED}),
    BranchState.WAITING: frozenset({BranchState.RUNNING, BranchState.ENDED}),
    BranchState.ENDED: frozenset[BranchState](),
}


def may_follow(after: BranchState, before: BranchState) -> bool:
    """True when a branch may become `after` where it was `before`."""
    return after in _NEXT[before]
