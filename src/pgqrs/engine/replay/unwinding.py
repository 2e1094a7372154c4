"""The engine's own control flow inside a handler: private, and no `Exception`, so that no handler's `except` sees it.

EngineSignal
├── Suspend     the run waits, perhaps for days: unwind the handler and give up the lease
└── Halt        this pass is over, without asking the handler: `error` says why
                  LeaseLost        the run was cancelled, or another worker holds it: nothing is recorded
                  NonDeterminism   the code asks for other steps than the recorded ones: the run is parked
                  anything else    a record could not be written: the run is retried, or ends in ERROR

What a handler or a step raises is never one of these, whatever its class: a user's LeaseLost is a user's error.
"""

from __future__ import annotations

import asyncio

from pgqrs.errors import PgqrsError


class EngineSignal(BaseException):
    """Unwinds a handler. A handler that stops it with a bare `except` gets another one at its next call."""


class Suspend(EngineSignal):
    """The run waits: unwind, and give up the lease."""


class Halt(EngineSignal, asyncio.CancelledError):
    """This pass is over. To the handler it is a cancellation, which it may clean up after, as in any task."""

    def __init__(self, error: PgqrsError) -> None:
        super().__init__(str(error))
        self.error = error
