"""A deadline of asyncio's that ends a verb: refused, as a replay could not repeat it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgqrs.engine.replay.branch_tasks import BranchTask
from pgqrs.engine.replay.branches import Branch
from pgqrs.engine.replay.refusals import outlasted
from pgqrs.engine.replay.task_states import Pending, awaitable, pending

if TYPE_CHECKING:
    from pgqrs.engine.replay.run_pass import RunPass


@contextmanager
def uninterrupted(run_pass: RunPass, step_id: str) -> Iterator[None]:
    """Refuses a deadline of asyncio's that ends a verb: a replay could not repeat it.

    The pass is over then, and the run ends in ERROR. As an error of the verb it would be the handler's in this pass
    alone: by the next one the verb may have been recorded.
    """
    try:
        yield
    except asyncio.CancelledError:
        if not was_interrupted(run_pass):
            raise
    else:
        return
    raise run_pass.lease.halt(outlasted(step_id))


def was_interrupted(run_pass: RunPass, *, is_undisturbed: bool = False) -> bool:
    """True when the handler itself, by a deadline of asyncio's, has cancelled what it was waiting for.

    `is_undisturbed` when there was no other branch that could have cancelled it.
    """
    task = asyncio.current_task()
    if run_pass.is_unwinding or task is None:
        return False
    # Else by another branch: a TaskGroup cancels the handler, too, when one of its tasks has failed.
    is_own = is_undisturbed or (task.timed_out if isinstance(task, BranchTask) else run_pass.branches.is_single)
    return is_own and task.cancelling() > 0


def outwaited(run_pass: RunPass) -> None:
    """The time of an `asyncio.wait` for a branch is up."""
    if not run_pass.is_unwinding and not run_pass.is_done:
        run_pass.shutdown.refuse(outlasted("asyncio.wait"))


def timed_out(run_pass: RunPass, branch: Branch) -> None:
    """A deadline is about to cancel this branch, which may be waiting for one that asked for something durable."""
    if run_pass.is_unwinding or run_pass.is_done:
        return
    live = run_pass.branches.live
    others = any(each.may_have_asked() for each in live if each is not branch)
    if others and pending(branch, awaitable(live)) is Pending.OTHERS:
        run_pass.shutdown.refuse(outlasted("asyncio.timeout"))
