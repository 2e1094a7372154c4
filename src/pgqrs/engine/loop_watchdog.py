"""Notices when a handler blocks the event loop, and names the step: seen from another thread."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

from pgqrs.engine.instrumentation import Meter
from pgqrs.engine.replay.branches import StepCall

log: logging.Logger = logging.getLogger("pgqrs.worker")

# How long the loop may take for a sign of life. Heartbeats go on meanwhile, but everything else in the process waits.
LAG_SECONDS = 0.25


class LoopWatchdog:
    """Asks the loop that it was made on for a sign of life, each time somebody calls `look`.

    Handlers pay nothing for it: which step it is stands in the frames of the blocked thread.
    """

    def __init__(self, meter: Meter | None = None) -> None:
        self._meter = meter
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._asked = 0.0
        self._answered = True
        self._complained = False

    def look(self) -> None:
        """From another thread, every LAG_SECONDS. Complains once for each time that the loop is blocked."""
        if self._answered:
            self._answered = self._complained = False
            self._asked = time.monotonic()
            # A closed loop raises: nobody is left to block it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._answer)
        elif not self._complained:
            self._complained = True
            if who := _named(sys._current_frames().get(self._thread)):  # noqa: SLF001 - public, but for its name
                log.warning(
                    "%s has blocked the event loop for %.2f s or longer: every other run of this process waits; "
                    "use a plain function, which runs in a thread, or await",
                    who,
                    LAG_SECONDS,
                )

    def _answer(self) -> None:
        if self._meter is not None:
            self._meter.loop_lagged(time.monotonic() - self._asked)
        self._answered = True


def _named(frame: FrameType | None) -> str | None:
    """The step, or else the handler, that this thread is in.

    Only async ones: a plain one runs in a thread of its own, and what goes on here for it is the engine's work.
    """
    while frame is not None:
        # Only there: the locals of users' functions are none of our business.
        if frame.f_code.co_name == "run_body" and isinstance(call := frame.f_locals.get("call"), StepCall):
            shape = frame.f_locals.get("shape")
            is_async = shape is None or shape.is_async
            who = f"step {call.place.step_id!r} of run {frame.f_locals['run_pass'].claim.run_id}"
            return who if is_async else None
        if frame.f_code.co_name == "_run" and (run_pass := frame.f_locals.get("run_pass")) is not None:
            return f"the handler of run {run_pass.claim.run_id}" if run_pass.handler.is_async else None
        frame = frame.f_back
    return None
