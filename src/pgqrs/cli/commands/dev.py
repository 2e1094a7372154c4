"""`pgqrs dev`: an application while it is written. Its worker is a process of its own, started anew on every save."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgqrs.api.connect import connect_with
from pgqrs.cli.console import Console
from pgqrs.cli.load_app import named
from pgqrs.cli.output import lines
from pgqrs.cli.run_feed import RunFeed
from pgqrs.cli.state import configured
from pgqrs.cli.subprocesses import Dashboard, Process, environment_of
from pgqrs.config import Config
from pgqrs.errors import ConfigError, ConnectionFailed
from pgqrs.process_signals import run_until_signalled

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# Between two looks at files and runs. Below what people notice, and a few reads of small things.
_LOOK_SECONDS = 0.25


def run(app: str | None, *, port: int | None, install: bool, concurrency: int) -> int:
    """Until Ctrl-C; the exit code."""
    where = named(app)
    config = _usable(configured())
    if where.endswith(".py") and not Path(where).is_file():
        raise ConfigError(
            f"there is no file {where!r}", hint="`pgqrs dev` takes a file with workflows in it, or a module"
        )
    return run_until_signalled(_develop(config, where, port=port, install=install, concurrency=concurrency))


def _usable(config: Config) -> Config:
    if config.backend == "turso":
        raise ConfigError(
            "Turso lets one process at a time use a file, and `pgqrs dev` is several",
            hint="use sqlite:///file.db here, or `pgqrs worker run`",
        )
    if config.backend == "sqlite" and config.path == ":memory:":
        raise ConfigError(
            "a database in memory is one process's alone", hint="`pgqrs dev` needs a file: sqlite:///pgqrs.db"
        )
    return config


async def _develop(config: Config, where: str, *, port: int | None, install: bool, concurrency: int) -> int:
    teller = Console()
    is_new = _is_missing(config)
    async with connect_with(config, install=install) as store:
        # Raises SchemaNotInstalled, which names the way out, before anything is started.
        await store.ready()
        teller.say("database", config.safe_dsn + (" (made just now)" if is_new else ""))
        if config.backend == "postgres":
            teller.say("schema", f"{config.schema}{', its tables are there now' if install else ''}")
        await _Session(store, where, teller, concurrency).run(port)
    return 0


def _is_missing(config: Config) -> bool:
    return config.backend == "sqlite" and not Path(config.path).exists()


class _Session:
    def __init__(self, store: Store, where: str, teller: Console, concurrency: int) -> None:
        self._store = store
        self._where = where
        self._teller = teller
        self._words = ("worker-of", where, "--concurrency", str(concurrency))
        self._narrator = RunFeed(store)
        self._files = Files([where] if where.endswith(".py") else [])
        self._worker: Process | None = None
        self._loading: asyncio.Task[None] | None = None
        self._next: Process | None = None

    async def run(self, port: int | None) -> None:
        await self._narrator.begin()
        dashboard: Dashboard | str = "left away"
        try:
            self._reload()
            if port is not None:
                dashboard = await Dashboard.start(self._store.config, port, output=None)
            self._teller.say("dashboard", dashboard if isinstance(dashboard, str) else dashboard.url)
            self._teller.say("", "save a file and its worker is started anew; Ctrl-C stops")
            while True:
                await self._turn()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            await self._stop(dashboard)

    async def _turn(self) -> None:
        if self._files.have_changed():
            self._reload()
        if self._loading is not None and self._loading.done():
            self._loading.result()
            self._loading = None
        if self._worker is not None and not self._worker.is_alive:
            self._worker = None
            self._teller.tell("the worker has ended by itself; save a file to start it anew")
        try:
            for line in await self._narrator.look():
                self._teller.tell(line)
        except ConnectionFailed as error:
            self._teller.tell(f"the database is away: {error}")

    def _reload(self) -> None:
        """In a task of its own: what is being imported may take long, and may be saved once more meanwhile."""
        if self._loading is not None:
            self._loading.cancel()
        if self._next is not None:
            self._next.kill()
        self._next = Process.start(*self._words, environment=environment_of(self._store.config))
        self._loading = asyncio.create_task(self._load(self._next))

    async def _load(self, process: Process) -> None:
        """The new worker first, then the old one goes: what cannot be loaded takes nothing away."""
        told = await process.told()
        self._files.watch(told.get("files", ()))
        if "worker_id" not in told:
            self._tell_failure(told)
            await process.stop()
            return
        before, self._worker, self._next = self._worker, process, None
        if before is not None:
            # What it holds is handed back at once, and goes on from its last completed step.
            await before.stop()
        names = ", ".join(told["workflows"])
        if before is None:
            self._teller.say("worker", f"started (pid {process.pid}), serving {names}")
        else:
            self._teller.tell(f"reloaded: worker {process.pid} in place of {before.pid}, serving {names}")

    def _tell_failure(self, told: dict[str, Any]) -> None:
        self._teller.show(lines(f"  {told.get('failed') or f'{self._where} ended while it was loaded'}", "  "))
        goes_on = f"worker {self._worker.pid} goes on with the code before it" if self._worker else "no worker yet"
        self._teller.tell(f"{self._where} cannot be loaded; {goes_on}; save to try again")

    async def _stop(self, dashboard: Dashboard | str) -> None:
        if self._loading is not None:
            self._loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(each.stop() for each in (self._worker, self._next) if each is not None))
        if isinstance(dashboard, Dashboard):
            await dashboard.stop()


class Files:
    """Files that are watched, by their times: no watcher to install, and the same on every file system."""

    def __init__(self, files: Iterable[str]) -> None:
        self._files = {Path(each).resolve() for each in files}
        self._known = self._look()
        self._pending: dict[Path, tuple[int, int]] | None = None

    def watch(self, files: Iterable[str]) -> None:
        """These as well, from now on; what changed of the others is not lost."""
        before = self._look()
        added = {Path(each) for each in files} - self._files
        self._files |= added
        # With a new file come its folder and its neighbours.
        self._known |= {file: state for file, state in self._look().items() if file in added or file not in before}

    def have_changed(self) -> bool:
        """True once for each save: when what was found differs from before, and has stood still for one look."""
        now = self._look()
        if now == self._known:
            self._pending = None
            return False
        if now != self._pending:
            # An editor may be at work: it writes beside, moves away, moves back.
            self._pending = now
            return False
        self._known, self._pending = now, None
        return True

    def _look(self) -> dict[Path, tuple[int, int]]:
        found: dict[Path, tuple[int, int]] = {}
        for file in self._files:
            with contextlib.suppress(OSError):
                state = file.stat()
                found[file] = (state.st_mtime_ns, state.st_size)
        for folder in {file.parent for file in self._files} or {Path.cwd()}:
            # A new neighbour may be what an import has missed.
            with contextlib.suppress(OSError):
                found |= {file: (0, 0) for file in folder.glob("*.py") if file not in found}
        return found
