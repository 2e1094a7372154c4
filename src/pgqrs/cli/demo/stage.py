"""Where the demo plays: a database in a temporary folder, a worker, perhaps the dashboard; all gone afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from html import escape
from pathlib import Path

from pgqrs.api.connect import connect_with
from pgqrs.api.operations.why import why
from pgqrs.api.store import Store
from pgqrs.cli.console import Console
from pgqrs.cli.demo import shop
from pgqrs.cli.run_feed import RunFeed
from pgqrs.cli.subprocesses import Dashboard, Process, dashboard_is_installed, environment_of, tail
from pgqrs.config import Config

# What a killed worker held comes back after this. Short, because people are watching.
LEASE_SECONDS = 2.0
# A demo that hangs is worse than one that fails. It takes some ten seconds.
PATIENCE_SECONDS = 90.0


class DemoFailed(Exception):
    """Something did not happen as it should."""


class Stage(Console):
    def __init__(self, folder: Path, *, kept: bool) -> None:
        super().__init__()
        self._folder = folder
        self._kept = kept
        self.file: Path = folder / "demo.db"
        self.ledger: Path = folder / "ledger"
        self._log = folder / "processes.log"
        # Whatever the environment says. Killing is the point here: a run may lose many workers before it is given up.
        self.config: Config = Config(
            f"sqlite:///{self.file}",
            schema="public",
            lease_seconds=LEASE_SECONDS,
            poll_interval_seconds=0.1,
            max_attempts=20,
            require_workers=False,
            maintenance=True,
            audit="normal",
            outbox="",
        )
        self.worker: Process | None = None
        self.dashboard: Dashboard | None = None

    @asynccontextmanager
    async def opened(self, *, port: int | None) -> AsyncIterator[Stage]:
        """With a database, a worker and a dashboard; whatever happens, no process stays behind."""
        async with AsyncExitStack() as stack:
            self.say(
                "database", "sqlite, " + (str(self.file) if self._kept else "a temporary file (--keep to keep it)")
            )
            self.store: Store = await stack.enter_async_context(connect_with(self.config))
            output = stack.enter_context(self._log.open("ab"))
            self._output = output
            if self._kept or (port is not None and dashboard_is_installed()):
                from pgqrs.cli.demo.seed_data import fill

                filled = await fill(self.store)
                self.say("history", f"{filled.runs} runs of the last hours, {filled.failed} of them failed")
            self.narrator: RunFeed = RunFeed(self.store)
            await self.narrator.begin()
            stack.push_async_callback(self._stop)
            try:
                async with asyncio.TaskGroup() as both:
                    working = both.create_task(self.start_worker())
                    serving = both.create_task(self._start_dashboard(port))
            except* DemoFailed as failed:
                raise DemoFailed(*failed.exceptions[0].args) from None
            self.say("worker", f"started (pid {self.pid}), {working.result()} workflows registered")
            self.say("dashboard", serving.result())
            self.begin()
            yield self

    async def _start_dashboard(self, port: int | None) -> str:
        if port is None:
            return "left away"
        found = await Dashboard.start(self.config, port, output=self._output)
        if isinstance(found, str):
            return found
        self.dashboard = found
        return found.url

    def link_to_dashboard(self) -> str:
        """The address of a page that leads to the dashboard.

        Not the dashboard's own: it has the token in it, and `ps` shows the arguments of a browser to every user.
        """
        link = self._folder / "dashboard.html"
        there = "" if self.dashboard is None else escape(self.dashboard.url, quote=True)
        link.touch(mode=0o600)
        link.write_text(f'<!doctype html><title>pgqrs</title><meta http-equiv="refresh" content="0; url={there}">')
        return link.as_uri()

    async def start_worker(self) -> int:
        """Returns how many workflows it serves, once it does."""
        environment = {**environment_of(self.config), shop.LEDGER: str(self.ledger)}
        self.worker = Process.start(
            "worker-of", shop.__name__, environment=environment, output=self._output, own_session=True
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            told = await self.worker.told()
        if "worker_id" not in told:
            raise DemoFailed(f"the worker did not start: {told.get('failed') or tail(self._log)}")
        return len(told["workflows"])

    @property
    def pid(self) -> int:
        return 0 if self.worker is None else self.worker.pid

    def kill_worker(self) -> int:
        """SIGKILL, at this very moment; returns whom."""
        killed = self.pid
        if self.worker is not None:
            self.worker.kill()
            self.worker = None
        return killed

    async def _stop(self) -> None:
        for process in (self.worker, self.dashboard):
            if process is not None:
                await process.stop()

    # -- telling -----------------------------------------------------------------------------------------

    async def narrate(self, *, untold: int | None = None) -> None:
        """What has happened since the last time; of one run it is not told, because somebody else does."""
        for line in await self.narrator.look():
            if not line.startswith(f"run {untold} "):
                self.tell(line)

    async def until(self, condition: Callable[[], Awaitable[bool]], *, untold: int | None = None) -> None:
        """Tells what happens until it is so; DemoFailed when it takes too long, or the worker ends by itself."""
        while True:
            is_so = await condition()
            await self.narrate(untold=untold)
            if is_so:
                return
            if self.worker is not None and not self.worker.is_alive:
                raise DemoFailed(f"the worker has ended by itself: {tail(self._log)}")
            if self.seconds > PATIENCE_SECONDS:
                raise DemoFailed(f"it should have ended within {PATIENCE_SECONDS:.0f} s")
            await asyncio.sleep(0.05)

    async def reason(self, run_id: int) -> str:
        return (await why(run_id, self.store)).sentence
