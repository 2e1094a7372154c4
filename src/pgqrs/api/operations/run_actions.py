"""What may be done to a run as it is now: the same answer for buttons, commands and HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgqrs.api.workflow import workflow
from pgqrs.db.runs.restarts import blames_children
from pgqrs.db.tables import runs
from pgqrs.db.tables.runs import RunRow
from pgqrs.db.views import run_facts
from pgqrs.errors import ConfigError, InvalidTransition
from pgqrs.text.step_ids import is_answered_by_people, signal_of
from pgqrs.types import RunStatus, RunSummary, StepStatus

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# As drawn at the head of db/runs/transitions.py; a test walks every status and every action and compares.
_ALLOWED = {
    RunStatus.PENDING: ("pause", "resume", "signal", "reset", "cancel", "delete"),
    # `restart`, too, once the lease of its worker has expired: the status does not tell.
    RunStatus.RUNNING: ("pause", "resume", "signal", "reset", "cancel", "delete"),
    RunStatus.PAUSED: ("resume", "pause", "signal", "reset", "cancel", "delete"),
    RunStatus.SUCCESS: ("reset", "delete"),
    RunStatus.ERROR: ("restart", "reset", "delete"),
    RunStatus.CANCELLED: ("restart", "reset", "cancel", "delete"),
}
_WHEN_DELETED = ("restore", "delete", "cancel")
# Allowed, but without effect: a cancelled run cancelled once more, a running one resumed.
_POINTLESS = {
    RunStatus.PENDING: {"resume"},
    RunStatus.RUNNING: {"resume"},
    RunStatus.PAUSED: {"pause"},
    RunStatus.CANCELLED: {"cancel"},
}
RETRY_CHILDREN = "retry-children"
ACTIONS = ("resume", "signal", "pause", "restart", RETRY_CHILDREN, "reset", "cancel", "delete", "restore")


def allowed_actions(
    status: RunStatus, *, deleted: bool = False, error: str | None = None, last_error: str | None = None
) -> tuple[str, ...]:
    """Return what makes sense for a run in that status, the likeliest first.

    `retry-children` is among them when `error`, the stored text, says that the run failed because of a child.
    """
    if deleted:
        return ("restore",)
    found = tuple(each for each in _ALLOWED[status] if each not in _POINTLESS.get(status, ()))
    if status is RunStatus.ERROR and blames_children(error, last_error):
        return (RETRY_CHILDREN, *found)
    return found


def actions_of(run: RunRow | RunSummary) -> tuple[str, ...]:
    """Return what may be done to a run. A list does not read errors: there `retry-children` is never named."""
    error = run.error if isinstance(run, RunRow) else None
    return allowed_actions(run.status, deleted=run.deleted_at is not None, error=error, last_error=run.last_error)


async def act(store: Store, run_id: int, action: str, **given: Any) -> None:
    """Does it, whatever workflow the run is of; `given` is what the verb of `pgqrs.workflow(name)` takes."""
    if action not in ACTIONS:
        raise ConfigError(f"no action {action!r}", hint=f"there are {', '.join(ACTIONS)}")
    name = await runs.workflow_of(await store.ready(), run_id)
    await getattr(workflow(name), action.replace("-", "_"))(run_id, store, **given)


async def answer_wait(store: Store, run_id: int, answer: Any, *, actor: str | None = None) -> None:
    """Gives a run what it waits for: a signal, or what its paused step returns."""
    facts = await run_facts.facts(await store.ready(), run_id)
    paused = [step.step_id for step in facts.steps if step.status is StepStatus.PAUSED]
    # Beside a deadline, as in ctx.first(ctx.sleep(60), ctx.wait_for("approval")), the answer is not the sleep's.
    waits = sorted(paused, key=lambda step_id: not is_answered_by_people(step_id))
    if not waits:
        raise InvalidTransition(f"run {run_id} is {facts.status} and waits for nobody's answer")
    signal = signal_of(waits[0])
    if signal is not None:
        await act(store, run_id, "signal", name=signal, payload=answer, actor=actor)
    else:
        await act(store, run_id, "resume", step=waits[0], data=answer, actor=actor)
