"""The clean-up of lost runs: a run whose worker was lost in every attempt ends in ERROR."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pgqrs.db.driver import Driver
from pgqrs.db.runs import claims
from pgqrs.db.tables import runs
from pgqrs.engine.instrumentation import hooks
from pgqrs.serialization import encode

log: logging.Logger = logging.getLogger("pgqrs.worker")

# How often a worker looks for lost runs. Far apart: it is a clean-up.
_EVERY_SECONDS = 1.0
_WORKER_LOST = {
    "error": encode({"type": "WorkerLost", "message": "its worker was lost in every attempt"}),
    "last_error": "worker_lost",
    "signature": "WorkerLost",
}


async def end_lost(db: Driver, queue_ids: Sequence[int]) -> list[int]:
    """End the lost runs of these queues, and tell those who wait for them; return their ids."""
    if not await claims.some_are_lost(db, queue_ids):
        return []
    ended = await claims.end_lost(db, queue_ids, **_WORKER_LOST)
    if ended:
        db.hints.announce([-run_id for run_id in ended])
    return ended


class LostRuns:
    """Ends the lost runs of one worker's queues, now and then."""

    def __init__(self, db: Driver) -> None:
        self._db = db
        self._looked = 0.0
        self._meter = hooks.meter

    async def end(self, queue_ids: Sequence[int]) -> None:
        """End them, unless this worker has looked for them just now."""
        if time.monotonic() - self._looked < _EVERY_SECONDS:
            return
        self._looked = time.monotonic()
        ended = await end_lost(self._db, queue_ids)
        if ended:
            log.warning("runs %s ended in ERROR: their workers were lost in every attempt", ended)
            if self._meter is not None:
                for row in await runs.several(self._db, ended):
                    self._meter.finished(row.workflow, row.status, None)
