"""The kit of a run that is crashed: a worker that is to be struck drains it first, and another one from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pgqrs.api.operations.admin import admin
from pgqrs.config import Config
from pgqrs.db.views import inspection
from pgqrs.testing.crash_workers import CrashableWorker
from pgqrs.testing.kit import AsyncKit
from pgqrs.testing.step_hooks import BodyCall, Ledger
from pgqrs.testing.sync_kit import Kit
from pgqrs.types import StepStatus


class CrashKit(AsyncKit):
    """A kit whose drains are done by a victim until that is struck, and from then on by a worker of its own."""

    def __init__(self, config: Config, victim: CrashableWorker, ledger: Ledger) -> None:
        super().__init__(config)
        # One run at a time: what goes into one commit would else be chance, and no boundary the same twice.
        self.concurrency = 1
        self._victim = victim
        self._ledger = ledger
        self.crashes: int = 0
        # At the time of the crash: how often the bodies of those steps that were on record had begun.
        self.on_record: dict[str, int] = {}
        self.emitted: tuple[str, ...] = ()
        self.run_counts: dict[str, int] = {}
        self.broken: str = ""

    def body(self, step: BodyCall) -> Callable[..., Any]:
        # The run that is under test is the first of its database; the steps of its children carry their run's name.
        self._ledger.write(step.step_id if step.run_id == 1 else f"{step.workflow}/{step.run_id}/{step.step_id}")
        return super().body(step)

    async def _drain_once(self) -> None:
        if self.crashes:
            await super()._drain_once()
            return
        struck = await self._victim.drain(self)
        if struck:
            self.crashes += 1
            await self._note_what_is_recorded()
            for handle in self._handles:
                handle.crashes += 1
            self.clock.advance(self._longest_lease() + 1)
            await super()._drain_once()
            await self._wake()
        await self.refresh()

    async def _wake(self) -> None:
        """One that was only stalled is told by every write that the run is not its own any more."""
        run = self._handles[0]
        before = (run.row, run.steps, run.events)
        await self._victim.wake()
        await self.refresh()
        if before != (run.row, run.steps, run.events):
            self.broken = "a worker whose lease was out has changed the run of another"

    async def _note_what_is_recorded(self) -> None:
        await self.refresh()
        begun = self._ledger.read()
        done = (
            step.step_id for step in self._handles[0].steps if step.status in (StepStatus.SUCCESS, StepStatus.ERROR)
        )
        self.on_record = {step_id: begun[step_id] for step_id in done if step_id in begun}

    async def survey(self) -> None:
        """What the run has left behind."""
        await self.refresh()
        db = await (await self.open()).ready()
        events = await inspection.emitted(db)
        self.emitted = tuple(sorted(each.event_type for each in events if each.run_id == self._handles[0].run_id))
        self.run_counts = await inspection.runs_by_workflow(db)
        violations = await admin(await self.open()).check_invariants()
        if violations:
            self.broken = f"an invariant of the database is broken: {violations}"

    def _longest_lease(self) -> float:
        own = (handler.options.lease_seconds or 0 for handler in self._handlers.values())
        return max(self.config.lease_seconds, *own)


class SyncCrashKit(Kit):
    """The same for code without an event loop."""

    def __init__(self, kit: CrashKit) -> None:
        self._kit = kit

    if TYPE_CHECKING:

        def survey(self) -> None: ...
