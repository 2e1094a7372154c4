"""Counting in the database: a second connection, in a thread, looks every 20 ms whether all is done.

The only place that knows what of our tables tells so.
"""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import psycopg

from benchmarks.scenarios.place import Place
from pgqrs import Config

EVERY_SECONDS = 0.02
# Nothing finishes that late: something is wrong, and it is better said than waited for.
PATIENCE_SECONDS = 600.0

# What is live stands in this table, and what is done leaves it: nothing to count, however much is left.
LEFT = "select count(*) from (select 1 from pgqrs_messages limit 1) as one"
MESSAGES = "select count(*) from pgqrs_messages"
ARCHIVED = "select count(*) from pgqrs_archived_messages"
SUCCEEDED = "select count(*) from pgqrs_workflow_runs where status = 'SUCCESS'"
# Read from the index of what has ended, beside any number of runs that have not.
ENDED = """
select count(*) from pgqrs_workflow_runs
where workflow_id = (select min(workflow_id) from pgqrs_workflows) and status = 'SUCCESS' and completed_at is not null
"""
AWAKE = """
select count(*) from (select 1 from pgqrs_workflow_runs where status in ('PENDING', 'RUNNING') limit 1) as one
"""


class Look:
    """One question, asked over a connection of its own."""

    def __init__(self, place: Place, question: str) -> None:
        self._place = place
        self.question = question
        self._stopped = threading.Event()
        # What the last look said: a little more than was waited for, where the work goes on.
        self.answer = 0

    def count(self) -> int:
        """The answer now."""
        with self._connection() as ask:
            return ask()

    async def seconds(
        self, work: Coroutine[Any, Any, Any], *, until: int, stop: Callable[[], None] | None = None
    ) -> float:
        """How long the work takes until the answer is that number or beyond it, coming from the other side.

        The work may be a worker that never ends by itself: it is stopped, or cancelled, when the answer is there.
        """
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        looking = asyncio.create_task(
            asyncio.to_thread(self._wait, lambda: loop.call_soon_threadsafe(ready.set), until)
        )
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait([looking, waiting], return_when=asyncio.FIRST_COMPLETED)
        started = time.perf_counter()
        working = asyncio.create_task(work)
        working.add_done_callback(self._on_end)
        try:
            return await looking - started
        finally:
            if stop is not None:
                stop()
            elif not working.done():
                working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working

    def _on_end(self, working: asyncio.Task[Any]) -> None:
        # Work that has failed will never be done.
        if not working.cancelled() and working.exception() is not None:
            self._stopped.set()

    def _wait(self, begin: Callable[[], Any], until: int) -> float:
        with self._connection() as ask:
            rises = ask() < until
            begin()
            deadline = time.perf_counter() + PATIENCE_SECONDS
            while not self._stopped.wait(EVERY_SECONDS):
                self.answer = answer = ask()
                seen = time.perf_counter()
                if answer >= until if rises else answer <= until:
                    return seen
                if seen > deadline:
                    raise TimeoutError(f"{answer} after {PATIENCE_SECONDS:.0f} s, {until} wanted: {self.question}")
        return time.perf_counter()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        if self._place.backend == "sqlite":
            path = Config(self._place.dsn, schema=self._place.schema).path
            with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
                yield lambda: connection.execute(self.question).fetchone()[0]
            return
        # Statistics are stale or none: no look may read a whole table.
        options = f"-c search_path={self._place.schema} -c enable_seqscan=off"
        with psycopg.connect(self._place.dsn, autocommit=True, options=options) as connection:
            yield lambda: connection.execute(self.question, prepare=True).fetchone()[0]


def expect(place: Place, question: str, wanted: int) -> None:
    """Raises unless the database says that number: what was not done was not measured."""
    found = Look(place, question).count()
    if found != wanted:
        raise RuntimeError(f"the database says {found}, not {wanted}: {' '.join(question.split())}")
