"""Metrics: how a workflow fares, and a whole store at a glance."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pgqrs.config import Config
from pgqrs.db.views import metrics
from pgqrs.reports import StoreStats, WorkflowMetrics
from pgqrs.text.durations import checked_seconds
from pgqrs.text.names import checked_name

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# A worker that gave no sign of life for this many leases is taken for dead.
LIVE_LEASES = 3


async def workflow_metrics(
    workflow: str, store: Store, *, window: timedelta | float = timedelta(hours=1)
) -> WorkflowMetrics:
    """Counts, success rate, durations and waits of a workflow's runs, and its queue; over the last `window`."""
    return await metrics.of_workflow(
        await store.ready(),
        checked_name("workflow", workflow),
        window=timedelta(seconds=checked_seconds(window, "window")),
        live_within=LIVE_LEASES * store.config.lease_seconds,
    )


class MetricsVerbs:
    """The part of Admin that gives numbers."""

    _store: Store

    async def workflow_metrics(
        self, workflow: str, *, window: timedelta | float = timedelta(hours=1)
    ) -> WorkflowMetrics:
        return await workflow_metrics(workflow, self._store, window=window)

    async def stats(self) -> StoreStats:
        """Runs, queues, workers, outbox and schedules of the whole store."""
        config = self._store.config
        found = await metrics.of_store(await self._store.ready(), live_within=LIVE_LEASES * config.lease_seconds)
        if config.backend != "postgres":
            found = dataclasses.replace(found, database_bytes=_bytes_of(config))
        return found


def _bytes_of(config: Config) -> int | None:
    """The file and what waits in its log; None for a database in memory."""
    if config.path == ":memory:":
        return None
    files = [Path(config.path), Path(f"{config.path}-wal")]
    return sum(file.stat().st_size for file in files if file.exists())
