"""What a handler must not do, and what it is told when it does: each error names the way out."""

from __future__ import annotations

from pgqrs.engine.replay.branches import current_body
from pgqrs.errors import InvalidTransition, NonDeterminism, NotAllowedInStep, PermanentError
from pgqrs.text.shell import command


def refuse_in_body(verb: str) -> None:
    """Raises NotAllowedInStep in the body of a step."""
    body = current_body.get()
    if body is not None:
        raise NotAllowedInStep(
            f"{verb!r} was called inside the body of step {body[0].step_id!r}, and a step is recorded as a whole "
            "when it ends",
            hint="call it in the workflow itself, before or after the step",
        )


def left_generator(name: str) -> PermanentError:
    return PermanentError(
        f"{name!r} was called by an async generator that the workflow left before its end, and Python "
        "closes it at no certain time: write `async with contextlib.aclosing(...)` around it"
    )


def unordered_task(name: str) -> PermanentError:
    return PermanentError(
        f"{name!r} was called in a task that asyncio.as_completed made in no certain order: give "
        "as_completed a list in the place of a set"
    )


def unordered_threads(name: str) -> PermanentError:
    return PermanentError(
        f"{name!r} was called again in a thread of the workflow's own, and threads come in no order: "
        "give each step a name of its own, or use ctx.gather"
    )


def outlasted(step_id: str) -> PermanentError:
    """The error of a run whose handler puts a deadline of asyncio's around a verb, and whose time is up."""
    return PermanentError(
        f"a deadline of asyncio's (asyncio.timeout, wait_for or wait) or cancel() of the handler's own task ended "
        f"{step_id!r}, which a replay could not repeat",
        hint="use ctx.step(..., timeout=...), ctx.wait_for(..., timeout=...) or ctx.first(..., ctx.sleep(...))",
    )


def diverged(run_id: int, what: str) -> NonDeterminism:
    """The code and the record do not fit."""
    return NonDeterminism(
        f"run {run_id} {what}: its code has changed since, or does not do the same in every pass "
        "(time, chance, sets, globals, the order in which steps end). If it has changed, deploy the code "
        f"that the run began with, then `{command('run resume', run_id)}`. If not, find the cause with "
        f"`pgqrs lint` or pgqrs.testing.assert_deterministic, fix it, then `{command('run reset', run_id)}`"
    )


def ended_pass(run_id: int) -> InvalidTransition:
    return InvalidTransition(
        f"run {run_id} has ended this pass, and its context cannot be used any more",
        hint="await the tasks and join the threads that use it before the workflow returns",
    )
