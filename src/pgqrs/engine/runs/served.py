"""What a worker serves: workflows by name, or all whose names begin with its prefixes, also those that come later."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.tables import workflows
from pgqrs.db.tables.messages import Source
from pgqrs.db.tables.workflows import WorkflowRow
from pgqrs.engine.definitions.handlers import Handler


class ServedWorkflows:
    """The queues that a worker leases from, and the handler of each. Prefixes are compared literally."""

    def __init__(
        self,
        db: Driver,
        config: Config,
        *,
        handlers: Mapping[str, Handler],
        found: Iterable[WorkflowRow],
        prefixes: Sequence[str],
    ) -> None:
        self.prefixes: tuple[str, ...] = tuple(prefixes)
        self.handlers: dict[str, Handler] = dict(handlers)
        self._db = db
        self._config = config
        self._workflows = {each.workflow_id: each for each in found}

    @property
    def queue_ids(self) -> list[int]:
        return [each.queue_id for each in self._workflows.values()]

    def add(self, handlers: Mapping[str, Handler], found: Iterable[WorkflowRow]) -> None:
        self.handlers |= handlers
        self._workflows |= {each.workflow_id: each for each in found}

    async def refresh(self) -> bool:
        """Looks for workflows with our prefixes; True when there are others than before."""
        if not self.prefixes:
            return False
        found = {each.workflow_id: each for each in await workflows.with_prefixes(self._db, self.prefixes)}
        changed = found.keys() != self._workflows.keys()
        self._workflows = found
        return changed

    def name(self, workflow_id: int) -> str:
        return self._workflows[workflow_id].name

    def handler(self, workflow_id: int) -> Handler | None:
        """None when code for a workflow with our prefix is not here."""
        return self.handlers.get(self.name(workflow_id))

    def sources(self, running: Counter[int]) -> list[Source]:
        """Where to lease from, and how much of each, given how many runs of each workflow are running here."""
        found = [self._source(each, running[each.workflow_id]) for each in self._workflows.values()]
        # In another order each time: at equal priority no queue waits for ever behind another's backlog.
        random.shuffle(found)
        return [source for source in found if source.most > 0]

    def _source(self, workflow: WorkflowRow, running: int) -> Source:
        handler = self.handlers.get(workflow.name)
        seconds = handler.options.lease_seconds if handler else None
        seconds = self._config.lease_seconds if seconds is None else seconds
        limit = handler.options.concurrency if handler else None
        return (
            Source(workflow.queue_id, seconds)
            if limit is None
            else Source(workflow.queue_id, seconds, limit - running)
        )
