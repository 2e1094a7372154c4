"""What may be done to a run as it is now: the same answer for buttons, commands and HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgqrs.api.workflow import workflow
from pgqrs.db.tables import runs
from pgqrs.errors import ConfigError
from pgqrs.types import RunStatus

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# As drawn at the head of db/lifecycle.py; a test walks every status and every action and compares.
_ALLOWED = {
    RunStatus.PENDING: ("pause", "resume", "signal", "restart", "reset", "cancel", "delete"),
    RunStatus.RUNNING: ("pause", "resume", "signal", "restart", "reset", "cancel", "delete"),
    RunStatus.PAUSED: ("resume", "pause", "signal", "restart", "reset", "cancel", "delete"),
    RunStatus.SUCCESS: ("reset", "delete"),
    RunStatus.ERROR: ("restart", "reset", "delete"),
    RunStatus.CANCELLED: ("restart", "reset", "cancel", "delete"),
}
_WHEN_DELETED = ("restore", "delete", "cancel")
# Allowed, but without effect: a cancelled run cancelled once more, a running one resumed.
_POINTLESS = {
    RunStatus.PENDING: {"resume", "restart"},
    RunStatus.RUNNING: {"resume"},
    RunStatus.PAUSED: {"pause"},
    RunStatus.CANCELLED: {"cancel"},
}
ACTIONS = ("resume", "signal", "pause", "restart", "reset", "cancel", "delete", "restore")


def allowed_actions(status: RunStatus, *, deleted: bool = False) -> tuple[str, ...]:
    """What makes sense for a run in that status, the likeliest first."""
    if deleted:
        return ("restore",)
    return tuple(each for each in _ALLOWED[status] if each not in _POINTLESS.get(status, ()))


async def act(store: Store, run_id: int, action: str, **given: Any) -> None:
    """Does it, whatever workflow the run is of; `given` is what the verb of `pgqrs.workflow(name)` takes."""
    if action not in ACTIONS:
        raise ConfigError(f"no action {action!r}; there are {', '.join(ACTIONS)}")
    name = await runs.workflow_of(await store.ready(), run_id)
    await getattr(workflow(name), action)(run_id, store, **given)
