"""Workers that are to die: in this process, where their tasks are cut off, or in a child that really is killed."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import os
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from pgqrs import faults
from pgqrs.api.connect import Connecting
from pgqrs.errors import ConfigError
from pgqrs.faults import Point
from pgqrs.testing.crash_point import Boundary, CrashInjector, Mode, current_fate
from pgqrs.testing.kit import AsyncKit
from pgqrs.testing.step_hooks import BodyCall, Killed

# A child that takes longer than this hangs; it ends itself then.
_LONGEST_SECONDS = 120
# So often the loop turns before a killed worker's calls fail: until then its handlers have been cancelled.
_TURNS = 10


class CrashableWorker(Protocol):
    """Drains in the place of a kit's worker, and is struck on the way if it passes its boundary."""

    @property
    def seen(self) -> list[Boundary]:
        """The boundaries that it has passed."""
        ...

    async def drain(self, kit: AsyncKit) -> bool:
        """True when it was struck."""
        ...

    async def wake(self) -> None:
        """One that was only stalled goes on, and finishes what it thinks is its own."""
        ...


class Watched:
    """What a victim's handlers ask: whether they are dead; else it is the kit's to say."""

    def __init__(self, kit: AsyncKit, fate: CrashInjector) -> None:
        self._kit = kit
        self._fate = fate

    @property
    def is_dead(self) -> bool:
        return self._fate.is_dead

    def body(self, step: BodyCall) -> Callable[..., Any]:
        if self._fate.is_struck or self._fate.is_dead:
            raise Killed
        return self._kit.body(step)

    async def met(self, workflow: str) -> None:
        await self._kit.met(workflow)


class InProcess:
    """A worker with a store of its own. Struck, its tasks are cut off and nothing is handed back."""

    def __init__(self, mode: Mode, at: Boundary | None) -> None:
        self._mode = mode
        self._fate = CrashInjector(at)
        self._asleep: Callable[[], Any] | None = None

    @property
    def seen(self) -> list[Boundary]:
        return self._fate.seen

    async def drain(self, kit: AsyncKit) -> bool:
        fate = self._fate
        leaving = False
        # A worker that signs off has done its work.
        fate.is_looking_away = lambda: kit.is_preparing or (leaving and not fate.is_dead)
        store = await Connecting(kit.config, install=False, clock=kit.clock)
        worker = await kit.hire(store, Watched(kit, fate), "victim")
        marked = contextvars.copy_context()
        marked.run(current_fate.set, fate)
        loop = asyncio.get_running_loop()
        injected = faults.injected(fate)
        injected.__enter__()

        async def sign_off() -> None:
            nonlocal leaving
            leaving = True
            try:
                await loop.create_task(worker.close(), context=marked)
            finally:
                injected.__exit__(None, None, None)
                await store.close()

        async def killed() -> None:
            handlers = worker._loop._slots.running  # noqa: SLF001 - no verb of a worker is as rude as this
            worker._loop._executor.hand_back()  # noqa: SLF001 - a cancellation is ours, not the handler's
            for task in [*handlers, work]:
                task.cancel()
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            with _quiet():
                fate.bury()
                await asyncio.gather(work, return_exceptions=True)
                await sign_off()

        async def woken() -> None:
            fate.wake()
            await asyncio.gather(work, return_exceptions=True)
            await sign_off()

        work = loop.create_task(worker.run_until_idle(), context=marked)
        striking = loop.create_task(fate.struck.wait())
        await asyncio.wait({work, striking}, return_when=asyncio.FIRST_COMPLETED)
        striking.cancel()
        if not fate.is_struck:
            await sign_off()
            await work
            return False
        if self._mode == "kill":
            await killed()
        else:
            await fate.at_rest.wait()
            self._asleep = woken
        return True

    async def wake(self) -> None:
        woken, self._asleep = self._asleep, None
        if woken is not None:
            await woken()


@contextmanager
def _quiet() -> Iterator[None]:
    """What a dead worker complains of is no news."""

    def is_news(_record: logging.LogRecord) -> bool:
        fate = current_fate.get()
        return fate is None or not fate.is_dead

    loggers = [logging.getLogger(name) for name in ("pgqrs.worker", "pgqrs.run")]
    for each in loggers:
        each.addFilter(is_news)
    try:
        yield
    finally:
        for each in loggers:
            each.removeFilter(is_news)


class Forked:
    """A child process for each drain, killed by SIGKILL or stopped by SIGSTOP at the boundary."""

    def __init__(self, mode: Mode, at: Boundary | None, folder: Path) -> None:
        if not hasattr(os, "fork"):
            raise ConfigError("real=True needs fork, which this system does not have", hint="leave it out")
        self.seen: list[Boundary] = []
        self._signal = signal.SIGKILL if mode == "kill" else signal.SIGSTOP
        self._at = at
        self._counted = folder / "counted.json"
        self._counted.unlink(missing_ok=True)
        self._stopped: int | None = None

    async def drain(self, kit: AsyncKit) -> bool:
        # No connection and no thread of ours may be half way through something when the process is doubled.
        await kit.disconnect()
        with warnings.catch_warnings():
            # Python warns of forks beside other threads. The child starts a loop and a store of its own.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            _be_the_child(self._worked(kit))
        _, status = await asyncio.to_thread(os.waitpid, child, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            self._stopped = child
            self._at = None
            return True
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self._at = None
            return True
        _check(status)
        return False

    async def wake(self) -> None:
        if self._stopped is None:
            return
        child, self._stopped = self._stopped, None
        os.kill(child, signal.SIGCONT)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        _check(status)

    async def _worked(self, kit: AsyncKit) -> None:
        """In the child."""
        fate = CrashInjector(self._at, strike=lambda: os.kill(os.getpid(), self._signal))
        fate.is_looking_away = lambda: kit.is_preparing
        if self._counted.exists():
            known = json.loads(self._counted.read_text(encoding="utf-8"))
            fate.counts = Counter({Point(phase, name): number for phase, name, number in known})
        current_fate.set(fate)
        async with Connecting(kit.config, install=False, clock=kit.clock) as store:
            kit.is_preparing = True
            worker = await kit.hire(store, Watched(kit, fate), "victim")
            kit.is_preparing = False
            with faults.injected(fate):
                await worker.run_until_idle()
            await worker.close()
        counted = [[point.phase, point.name, number] for point, number in fate.counts.items()]
        self._counted.write_text(json.dumps(counted), encoding="utf-8")


def _be_the_child(work: Any) -> None:
    """Never comes back: whatever the parent had open is the parent's to close."""
    code = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_LONGEST_SECONDS)
        asyncio.run(work)
        code = 0
    except BaseException:  # noqa: BLE001 - nobody else is there to tell it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _check(status: int) -> None:
    if status != 0:
        code = os.waitstatus_to_exitcode(status)
        raise AssertionError(f"the worker's process ended with {code}; what it said is on its standard error")
