"""What a program of the matrix sees: the store, the clock, the ledger, and commands that are given once."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pgqrs
from pgqrs.types import ENDED
from proof.crash.clock import SharedClock
from proof.crash.ledger import Ledger

LEASE_SECONDS = 300.0
# Past the lease, and past any backoff: what is due some time is due after one of these.
ROUND_SECONDS = 3700.0
ROUNDS = 12


class Stuck(Exception):
    """However far time went on, it did not come to its end."""


class Over(Exception):
    """Others have taken over meanwhile: there is nothing left to do for a process that was stalled."""


class World:
    """One process's view. The same program runs in the one that is struck and in those that recover."""

    def __init__(self, store: pgqrs.Store, clock: SharedClock, ledger: Ledger, handlers: Mapping[str, Any]) -> None:
        self.store = store
        self.clock = clock
        self.ledger = ledger
        # True while the harness itself looks: no faults then.
        self.looking = False
        # The command that is being given: what it does is a client's doing, and needs no lease.
        self.giving = ""
        self._handlers = handlers
        self._worker: pgqrs.Worker | None = None
        self.prefixes: list[str] | None = None

    # -- effects -----------------------------------------------------------------------------------------

    def effect(self, what: str, *, key: str = "") -> None:
        """Something that cannot be taken back."""
        self.ledger.write("effect", what=what, key=key, at=self.clock.now().timestamp())

    def times(self, what: str) -> int:
        return sum(line["what"] == what for line in self.ledger.lines("effect"))

    def saw(self, what: str, value: Any, *, key: str) -> None:
        """Something that a handler observes, in whatever pass."""
        self.ledger.write("saw", what=what, value=value, key=key)

    # -- commands ----------------------------------------------------------------------------------------

    async def once(self, name: str, give: Callable[[], Awaitable[Any]]) -> Any:
        """A command that is given until it is acknowledged, and never again after that."""
        lines = self.ledger.lines()
        for line in lines:
            if line["kind"] == "acknowledged" and line["name"] == name:
                return line["answer"]
        before = any(line["kind"] == "given" and line["name"] == name for line in lines)
        self.ledger.write("given", name=name)
        self.giving = name
        try:
            answer = await give()
        except pgqrs.InvalidTransition:
            # It was carried out the first time, although nobody heard of it.
            if not before:
                raise
            answer = None
        finally:
            self.giving = ""
        self.ledger.write("acknowledged", name=name, answer=answer)
        self._check_over()
        return answer

    async def trigger(self, workflow: str, params: Any = None, **options: Any) -> int:
        """With a key: given twice, it is one run."""
        name = f"trigger {workflow}"

        async def give() -> int:
            new = pgqrs.workflow(workflow).trigger(params, idempotency_key=name, **options)
            made: int = await new.execute(self.store)
            return made

        run_id: int = await self.once(name, give)
        return run_id

    # -- working -----------------------------------------------------------------------------------------

    async def worker(self) -> pgqrs.Worker:
        if self._worker is None:
            made = pgqrs.worker("worker", prefixes=self.prefixes).workflows(self._handlers)
            self._worker = await made.create(self.store)
        return self._worker

    async def work_until(
        self, is_done: Callable[[], Awaitable[bool]], *, work: Callable[[], Awaitable[Any]] | None = None
    ) -> None:
        """Does what is due, and lets time pass until it is done."""
        for _ in range(ROUNDS):
            if work is None:
                await (await self.worker()).run_until_idle()
            else:
                await work()
            self._check_over()
            with self.unseen():
                if await is_done():
                    return
            self.clock.advance(ROUND_SECONDS)
        raise Stuck(f"not done after {ROUNDS} rounds")

    async def work_until_ended(self, workflow: str, run_id: int) -> None:
        async def has_ended() -> bool:
            return (await self.run(workflow, run_id)).status in ENDED

        await self.work_until(has_ended)

    async def work_until_at_rest(self, workflow: str, run_id: int) -> None:
        """Ended, or waiting for somebody's word."""

        async def rests() -> bool:
            return (await self.run(workflow, run_id)).status in (*ENDED, pgqrs.RunStatus.PAUSED)

        await self.work_until(rests)

    async def run(self, workflow: str, run_id: int) -> Any:
        return await pgqrs.workflow(workflow).get_run(run_id, self.store)

    def _check_over(self) -> None:
        if any(line["who"] == os.getpid() for line in self.ledger.lines("woken")):
            raise Over

    @contextmanager
    def unseen(self) -> Iterator[None]:
        self.looking = True
        try:
            yield
        finally:
            self.looking = False

    async def close(self) -> None:
        if self._worker is not None:
            await self._worker.close()
