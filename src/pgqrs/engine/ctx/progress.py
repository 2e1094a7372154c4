"""How far a run is, for people: nothing depends on it, and only the newest counts."""

from __future__ import annotations

import logging
from contextlib import suppress

from pgqrs.db.runs import claims
from pgqrs.engine.replay.branches import current_branch
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.stack_room import check_stack_room
from pgqrs.engine.replay.task_factory import outside
from pgqrs.engine.replay.unwinding import EngineSignal
from pgqrs.errors import ConnectionFailed

log: logging.Logger = logging.getLogger("pgqrs.run")


class Progress:
    """Writes it down, for callers that can await and for those that cannot."""

    def __init__(self, run_pass: RunPass) -> None:
        self._run_pass = run_pass
        self._next: str | None = None
        self._is_showing = False

    async def show(self, text: str) -> None:
        """Returns when it is shown; in one of several branches, before that. A replay does not show it again."""
        run_pass = self._run_pass
        check_stack_room()
        run_pass.check_usable()
        if run_pass.is_replaying():
            return
        if run_pass.branches.has_several and current_branch.get() is not None:
            # A replay waits for nothing here, so the first pass must not either: another branch could move meanwhile.
            self.show_soon(text)
            return
        await self._write(text)

    async def _write(self, text: str) -> None:
        run_pass = self._run_pass
        run_pass.lease.check_alive()
        try:
            await outside(claims.show_progress(run_pass.db, run_pass.claim.fence, text=text))
        except ConnectionFailed as error:
            # Nothing depends on it, so nothing waits for the database either.
            log.warning("run %d: its progress was not shown: %s", run_pass.claim.run_id, error)

    def show_soon(self, text: str) -> None:
        """From any thread, also from one that the database waits for: it is shown before the pass ends."""
        self._run_pass.check_usable()
        self._next = text
        self._run_pass.call_soon(self._begin)

    def _begin(self) -> None:
        # One after the other: two at the same time could end in the other order.
        if self._next is None or self._is_showing:
            return
        with suppress(EngineSignal):
            self._run_pass.in_flight.begin()
            self._is_showing = True
            self._run_pass.in_flight.begun(outside(self._show_all()))

    async def _show_all(self) -> None:
        try:
            while (text := self._next) is not None:
                self._next = None
                with suppress(EngineSignal):
                    await self._write(text)
        finally:
            self._is_showing = False
