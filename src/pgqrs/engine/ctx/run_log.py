"""`ctx.log`: the logger of a run, which adds where it is and keeps quiet about what an earlier pass has said."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from pgqrs.engine.replay.branches import current_body
from pgqrs.engine.replay.run_pass import RunPass


class RunLog(logging.LoggerAdapter[logging.Logger]):
    """The logger `pgqrs.run` with `run_id`, `workflow` and `attempt`; in a step also `step` and `step_attempt`.

    What is logged between steps is said when it is first passed, not on a replay. What a step logs is said each time
    that it is executed, which a replay does not do. A worker that dies between a line and the next checkpoint leaves
    no record of having said it: then the line comes once more.
    """

    def __init__(self, run_pass: RunPass) -> None:
        claim = run_pass.claim
        names = {"run_id": claim.run_id, "workflow": run_pass.handler.name, "attempt": claim.lease.attempts}
        super().__init__(logging.getLogger("pgqrs.run"), names)
        self._run_pass = run_pass

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - as logging spells it
        return self.logger.isEnabledFor(level) and not self._run_pass.is_replaying()

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        body = current_body.get()
        step = {} if body is None else {"step": body[0].step_id, "step_attempt": body[1]}
        # What the caller adds stays; the logger of the standard library would drop it.
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {}), **step}
        return msg, kwargs
