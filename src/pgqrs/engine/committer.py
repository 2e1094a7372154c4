"""Group commit: checkpoints and outcomes of many runs in one transaction."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pgqrs.db import settling
from pgqrs.db.driver import Driver
from pgqrs.db.hints import OUTBOX
from pgqrs.db.writes import RunFence, Write
from pgqrs.engine.branches import outside
from pgqrs.errors import ConnectionFailed, LeaseLost

# Beyond this the first waiter of a batch waits for the last; it also bounds one statement's parameters.
MOST_PER_COMMIT = 500


@dataclass(slots=True)
class _Item:
    write: Write
    done: asyncio.Future[None]


class Committer:
    """While one transaction is under way the next gathers: idle there is no delay, busy the batches grow."""

    def __init__(self, db: Driver) -> None:
        self._db = db
        self._gathered: list[_Item] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, write: Write) -> None:
        """Returns when it is durable; LeaseLost when the run is somebody else's by now."""
        item = _Item(write, asyncio.get_running_loop().create_future())
        self._gathered.append(item)
        if self._task is None or self._task.done():
            # Outside: it serves every run, and must not end with the handler that happened to come first.
            self._task = outside(self._run())
        await item.done

    async def _run(self) -> None:
        while self._gathered:
            # One write per run and transaction: a run's second write must see what its first one did.
            batch: list[_Item] = []
            rest: list[_Item] = []
            runs: set[int] = set()
            for item in self._gathered:
                run_id = item.write.fence[0]
                if run_id in runs or len(batch) >= MOST_PER_COMMIT:
                    rest.append(item)
                else:
                    runs.add(run_id)
                    batch.append(item)
            self._gathered = rest
            await self._commit(batch)

    async def _commit(self, batch: list[_Item]) -> None:
        try:
            held = await settling.commit(self._db, [item.write for item in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait
            if len(batch) == 1 or isinstance(error, ConnectionFailed):
                for item in batch:
                    _settle(item, error)
                return
            # One by one, so that a poison row hurts only itself.
            for item in batch:
                await self._commit([item])
            return
        for item in batch:
            _settle(item, None if item.write.fence in held else _lost(item.write.fence))
        if self._db.journal.published or any(item.write.emissions for item in batch):
            self._db.hints.announce([OUTBOX])


def _settle(item: _Item, error: BaseException | None) -> None:
    if item.done.done():
        return
    if error is None:
        item.done.set_result(None)
    else:
        item.done.set_exception(error)


def _lost(fence: RunFence) -> LeaseLost:
    run_id, _, token = fence
    return LeaseLost(f"run {run_id} is not held under token {token} any more; nothing was recorded")
