"""A deadline of asyncio's around something that is being recorded: refused, as a replay could not repeat it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgqrs.engine.replay.branch_tasks import BranchTask
from pgqrs.engine.replay.branches import BranchPlace
from pgqrs.engine.replay.refusals import interrupted

if TYPE_CHECKING:
    from pgqrs.engine.replay.run_pass import RunPass


@contextmanager
def uninterrupted(run_pass: RunPass, place: BranchPlace) -> Iterator[None]:
    """Refuses a deadline of asyncio's around something that is being written: a replay could not repeat it."""
    try:
        yield
    except asyncio.CancelledError:
        if not was_interrupted(run_pass):
            raise
    else:
        return
    raise interrupted(place)


def was_interrupted(run_pass: RunPass) -> bool:
    """True when the handler itself, by a deadline of asyncio's, has cancelled what it was waiting for."""
    task = asyncio.current_task()
    is_branch = isinstance(task, BranchTask) and not task.timed_out and not run_pass.branches.is_single
    if run_pass.is_unwinding or is_branch:
        # By another branch: a TaskGroup cancels the handler, too, when one of its tasks has failed.
        return False
    return task is not None and task.cancelling() > 0
