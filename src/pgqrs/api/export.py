"""A run as a document: what it was given, what is on record of it, how it ended; for people, and for replay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pgqrs.db import looking
from pgqrs.db.tables import runs

if TYPE_CHECKING:
    from pgqrs.api.store import Store

FORMAT = 1


async def export_run(store: Store, run_id: int) -> dict[str, Any]:
    """Plain data that JSON holds; values stand as they are stored, tags included."""
    db = await store.ready()
    run = await runs.get(db, run_id)
    return {
        "pgqrs": FORMAT,
        "run_id": run.run_id,
        "workflow": run.workflow,
        "status": str(run.status),
        "input": _parsed(run.input),
        "output": _parsed(run.output),
        "error": run.last_error,
        "waiting_for": run.waiting_for,
        "attempt": run.attempt,
        "steps": [
            {
                "step_id": step.step_id,
                "ordinal": step.ordinal,
                "status": str(step.status),
                "input": _parsed(step.input),
                "output": _parsed(step.output),
                "error": _parsed(step.error),
                "attempts": step.attempts,
            }
            for step in await runs.steps(db, run_id)
        ],
        "signals": [
            {"name": signal.name, "payload": _parsed(signal.payload), "consumed": signal.consumed_at is not None}
            for signal in await looking.signals(db, run_id)
        ],
    }


def _parsed(text: str | None) -> Any:
    return None if text is None else json.loads(text)
