"""Signals of the operating system: how a process that serves is told to stop."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar

# By name: not every system has SIGHUP, and this module must be importable there.
STOP = ("SIGTERM", "SIGINT", "SIGHUP")
# What a shell says of a process that SIGTERM has ended.
TERMINATED = 143


@contextmanager
def on_signals(act: Callable[[], object], *names: str, if_possible: bool = False) -> Iterator[None]:
    """Call `act` on the running loop at each of these signals, while the block lasts.

    Several blocks may last at the same time: all of them hear of each signal. When the last one ends, the process has
    the handlers back that it had before the first.

    Only the main thread hears of signals; in another one this raises RuntimeError, or does nothing `if_possible`.
    """
    loop = asyncio.get_running_loop()
    is_deaf = if_possible and threading.current_thread() is not threading.main_thread()
    caught = [] if is_deaf else [signal.Signals[name] for name in names]
    with ExitStack() as stack:
        for each in caught:
            stack.enter_context(_Listeners.of(loop, each).with_one_more(act))
        yield


class _Listeners:
    """All that is called at one signal. A loop itself knows one handler for each, and forgets it for the next."""

    _known: ClassVar[dict[tuple[asyncio.AbstractEventLoop, signal.Signals], _Listeners]] = {}

    def __init__(self, loop: asyncio.AbstractEventLoop, which: signal.Signals) -> None:
        self._loop = loop
        self._signal = which
        self._acts: list[Callable[[], object]] = []
        self._before = self._ours = signal.getsignal(which)
        # No public function of a loop tells its handlers. A loop without this attribute, such as uvloop's, does not
        # get back what the application gave it.
        self._before_in_loop: asyncio.Handle | None = getattr(loop, "_signal_handlers", {}).get(which)

    @classmethod
    def of(cls, loop: asyncio.AbstractEventLoop, which: signal.Signals) -> _Listeners:
        return cls._known.get((loop, which)) or cls(loop, which)

    @contextmanager
    def with_one_more(self, act: Callable[[], object]) -> Iterator[None]:
        # Also when there are others: another handler may have been put in the place of ours since the first.
        self._loop.add_signal_handler(self._signal, self._call)
        self._ours = signal.getsignal(self._signal)
        self._known[self._loop, self._signal] = self
        self._acts.append(act)
        try:
            yield
        finally:
            self._acts.remove(act)
            if not self._acts:
                del self._known[self._loop, self._signal]
                self._restore()

    def _call(self) -> None:
        for act in tuple(self._acts):
            act()

    def _restore(self) -> None:
        now = signal.getsignal(self._signal)
        self._loop.remove_signal_handler(self._signal)
        if now != self._ours:
            # Of a server that was started meanwhile, for example: it is not ours to take away.
            signal.signal(self._signal, now)
        elif self._before_in_loop is not None:
            self._loop.add_signal_handler(self._signal, self._before_in_loop._run)  # noqa: SLF001 - as the loop does
        elif self._before is not None:
            signal.signal(self._signal, self._before)


def run_until_signalled(work: Coroutine[Any, Any, int]) -> int:
    """Run a command in a loop of its own and return its exit code.

    SIGTERM and SIGHUP cancel it, as asyncio does at Ctrl-C, so that it leaves nothing behind.
    """

    async def cancelled_by_signals() -> int:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio.run makes one
        with on_signals(task.cancel, "SIGTERM", "SIGHUP"):
            return await work

    try:
        return asyncio.run(cancelled_by_signals())
    except asyncio.CancelledError:
        return TERMINATED
