"""Group commit: checkpoints and outcomes of many runs in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence

from pgqrs.db.driver import Driver
from pgqrs.db.hints import OUTBOX
from pgqrs.db.runs import settlement
from pgqrs.db.runs.records import Ended, RunFence, RunWrite
from pgqrs.engine.instrumentation import hooks
from pgqrs.engine.replay.task_factory import outside
from pgqrs.error_copies import copy_of
from pgqrs.errors import ConnectionFailed, LeaseLost
from pgqrs.types import RunStatus

# Beyond this the first waiter of a batch waits for the last; it also bounds one statement's parameters.
MOST_PER_COMMIT = 500
# From here on a batch takes at most half of the writers that are about: then the handlers of one half run while the
# other half is being written. Otherwise all of them would wait for the database, and the database for all of them.
_WORTH_HALVING = 32


# A plain tuple, as one is made for each step.
_Item = tuple[RunWrite, asyncio.Future[None]]


class Committer:
    """While one transaction is under way the next gathers: idle there is no delay, busy the batches grow."""

    def __init__(self, db: Driver, *, served: Callable[[], Sequence[int]] = tuple) -> None:
        self._db = db
        # The queues in which a parent, or a dead letter, may have become due by what is committed here.
        self._served = served
        # Asked once: on older Pythons asking for the loop asks the operating system for the process's id each time.
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._meter = hooks.meter
        self._gathered: list[_Item] = []
        self._task: asyncio.Task[None] | None = None

    def write(self, write: RunWrite) -> asyncio.Future[None]:
        """Done when it is durable; LeaseLost when the run is somebody else's by now."""
        done: asyncio.Future[None] = self.loop.create_future()
        # First: a task that starts eagerly looks at once.
        self._gathered.append((write, done))
        if self._task is None or self._task.done():
            # Outside: it serves every run, and must not end with the handler that happened to come first.
            self._task = outside(self._run())
        return done

    async def drain(self) -> None:
        """Returns when nothing is on its way: whoever waited for it may have been cancelled meanwhile."""
        while self._task is not None and not self._task.done():
            await asyncio.shield(self._task)

    async def _run(self) -> None:
        before = 0
        while self._gathered:
            about = before + len(self._gathered)
            half = about if about <= _WORTH_HALVING else (about + 1) // 2
            batch = self._next(min(half, MOST_PER_COMMIT))
            before = len(batch)
            await self._commit(batch)

    def _next(self, most: int) -> list[_Item]:
        """What goes together: of one run, what does not follow its end, nor record a step twice."""
        batch = self._gathered[:most]
        if len({write.fence for write, _ in batch}) == len(batch):
            self._gathered = self._gathered[most:]
            return batch
        batch = []
        rest: list[_Item] = []
        first: dict[int, RunWrite] = {}
        # Of the few runs that have several writes here: the steps in them.
        steps: dict[int, set[str]] = {}
        closed: set[int] = set()
        for item in self._gathered:
            write, _ = item
            run_id = write.fence[0]
            earlier = first.setdefault(run_id, write)
            fits = len(batch) < most and run_id not in closed
            if fits and earlier is not write:
                known = steps.setdefault(run_id, {step.step_id for step in earlier.steps})
                mine = {step.step_id for step in write.steps}
                fits = not known & mine
                known |= mine
            if fits:
                batch.append(item)
            else:
                rest.append(item)
            if not fits or write.end is not None:
                closed.add(run_id)
        self._gathered = rest
        return batch

    async def _commit(self, batch: list[_Item]) -> None:
        try:
            held = await settlement.commit(self._db, [write for write, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait
            if len(batch) == 1 or isinstance(error, ConnectionFailed):
                for item in batch:
                    _fail(item, error if len(batch) == 1 else copy_of(error))
                return
            # One by one, so that a poison row hurts only itself.
            for item in batch:
                await self._commit([item])
            return
        self._tell(batch, held)
        if self._meter is not None:
            self._meter.committed([write for write, _ in batch if write.fence in held])

    def _tell(self, batch: list[_Item], held: Container[RunFence]) -> None:
        telling = []
        for item in batch:
            write, done = item
            if write.fence not in held:
                _fail(item, _lost(write.fence))
                continue
            if not done.done():
                done.set_result(None)
            if write.end is not None or write.emissions:
                telling.append(write)
        if telling or self._db.audit_policy.published:
            self._announce(telling)

    def _announce(self, writes: Sequence[RunWrite]) -> None:
        """To those who wait for a run's end, for its children's, or for what is to be published."""
        ended = [write for write in writes if isinstance(write.end, Ended)]
        topics = [-write.fence[0] for write in ended]
        if any(write.has_parent or (write.end and write.end.status is RunStatus.ERROR) for write in ended):
            topics += self._served()
        if self._db.audit_policy.published or any(write.emissions for write in writes):
            topics.append(OUTBOX)
        if topics:
            self._db.hints.announce(topics)


def _fail(item: _Item, error: BaseException) -> None:
    _, done = item
    if not done.done():
        done.set_exception(error)


def _lost(fence: RunFence) -> LeaseLost:
    run_id, _, token = fence
    return LeaseLost(f"run {run_id} is not held under token {token} any more; nothing was recorded")
