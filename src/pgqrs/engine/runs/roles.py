"""The background roles of a worker: schedules, retention, new workflows. Every worker plays them, none leads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.hints import CATALOGUE
from pgqrs.engine.background import BackgroundLoop
from pgqrs.engine.janitor import Janitor
from pgqrs.engine.runs.served import ServedWorkflows
from pgqrs.engine.schedules.scheduler import Scheduler

# How often a worker that serves prefixes looks for new workflows when no hint tells it.
_REFRESH_SECONDS = 5.0


class WorkerRoles:
    """Begun with the worker, told to stop with it, and ended before it signs off."""

    def __init__(
        self,
        db: Driver,
        config: Config,
        *,
        service: ServedWorkflows,
        scheduler: Scheduler,
        on_new_workflows: Callable[[], None],
    ) -> None:
        self._service = service
        self._on_new_workflows = on_new_workflows
        self._tasks: list[asyncio.Task[None]] = []
        self._loops: list[BackgroundLoop] = []
        if service.prefixes:
            look = BackgroundLoop("catalogue", self._look_for_workflows, hints=db.hints, topics=[CATALOGUE])
            self._loops.append(look)
        if config.maintenance:
            self._loops += [scheduler.loop(), BackgroundLoop("janitor", Janitor(db, config).turn, hints=db.hints)]

    def start(self) -> None:
        self._tasks = [asyncio.create_task(each.run(), name=f"pgqrs-{each.name}") for each in self._loops]

    def stop(self) -> None:
        """Begin no further turn; those under way finish."""
        for each in self._loops:
            each.stop()

    async def ended(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def cancel(self) -> None:
        """End the turns that are under way, too."""
        for task in self._tasks:
            task.cancel()
        await self.ended()

    async def _look_for_workflows(self) -> float:
        if await self._service.refresh():
            self._on_new_workflows()
        return _REFRESH_SECONDS
