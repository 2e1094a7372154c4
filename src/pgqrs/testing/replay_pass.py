"""One pass over a handler against a record, without a database: recorded steps are answered, the rest ends it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, NoReturn

from pgqrs.clock import ManualClock
from pgqrs.config import Config
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.records import RunWrite
from pgqrs.db.tables.messages import Lease
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.engine.heartbeat import HeldLease
from pgqrs.engine.replay.task_factory import outside
from pgqrs.engine.replay.unwinding import EngineSignal, Suspend
from pgqrs.engine.runs.executor import Executor
from pgqrs.testing.step_hooks import DONE, BodyCall, Observed, StepRequest, watched

# So often the loop turns before a branch that went beyond its record ends the pass: by then the others have asked for
# all that is recorded of them.
_TURNS = 100


class Beyond(EngineSignal, asyncio.CancelledError):
    """The handler asked for something that is not recorded. No `except Exception` of its own stops it."""


class ReplayedPass(NamedTuple):
    """What a handler asked for, and how it came to its end."""

    asked: list[StepRequest]
    # True when it asked for more than is on record, or came to a wait.
    went_beyond: bool
    output: str | None = None
    error: BaseException | None = None
    # A recorded step that it should have asked for, and did not.
    missing: str | None = None


async def passed(
    handler: Handler, text: str | None, record: list[RecordedStep], *, run_id: int = 1, now: datetime | None = None
) -> ReplayedPass:
    """Runs the handler once. No body of a step runs, and nothing is written."""
    clock = ManualClock() if now is None else ManualClock(now)
    config = Config("sqlite://:memory:", schema="public")
    nowhere = _Nowhere(clock)
    seen = watched(handler, nowhere)
    claim = _claim(text, {step.step_id: step for step in record if step.status in DONE}, run_id, clock.now())
    held = HeldLease(0, 0, run_id, 3600.0, time.monotonic(), time.monotonic() + 3600)
    # The database, the committer and the heartbeat are all nowhere: whoever turns to them is beyond the record.
    anywhere: Any = nowhere
    executor = Executor(anywhere, config, anywhere, anywhere)
    run_pass = Observed(claim, seen, db=anywhere, config=config, committer=anywhere, held=held)
    # A task of its own, as in a worker: branches are counted from it.
    done: ReplayedPass = await outside(_run(executor, run_pass, nowhere))
    return done


async def _run(executor: Executor, run_pass: Observed, nowhere: _Nowhere) -> ReplayedPass:
    task = run_pass.task = asyncio.current_task()
    if run_pass.handler.is_async:
        run_pass.root.task = task
    output: str | None = None
    error: BaseException | None = None
    try:
        output = await executor._run(run_pass)  # noqa: SLF001 - the same steps as in a worker, without the recording
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as raised:  # noqa: BLE001 - a handler may raise anything
        error = raised
    run_pass.is_done = True
    if isinstance(error, asyncio.CancelledError) and task is not None and run_pass.lease.halted is not None:
        # The engine's own, and heard.
        task.uncancel()
    is_cut_off = isinstance(error, asyncio.CancelledError) and nowhere.was_asked
    went_beyond = run_pass.lease.halted is None and error is not None and (is_cut_off or _is_beyond(error))
    missing = run_pass.not_asked_for()
    failed = run_pass.lease.halted or error
    run_pass.shutdown.abandon()
    await run_pass.shutdown.wind_up()
    run_pass.close()
    return ReplayedPass(run_pass.asked, went_beyond, output, None if went_beyond else failed, missing)


def _is_beyond(error: BaseException) -> bool:
    """Return whether the handler asked for more than is recorded; a TaskGroup wraps what its branches raise."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_beyond, error.exceptions))
    return isinstance(error, Beyond | Suspend)


class _Nowhere:
    """Stands for everything outside of the handler."""

    is_dead = False

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.was_asked = False

    async def beyond(self, *_args: Any, **_options: Any) -> NoReturn:
        """End the pass, when all branches have come as far as they can."""
        self.was_asked = True
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        raise Beyond

    # As a database.
    perform = beyond

    def write(self, _write: RunWrite) -> asyncio.Future[None]:
        """As a committer."""
        return outside(self.beyond())

    def body(self, _step: BodyCall) -> Callable[..., Any]:
        """As the watcher of steps."""
        return self.beyond

    async def met(self, _workflow: str) -> None:
        """A child that is on record is not started again."""


def _claim(text: str | None, steps: dict[str, RecordedStep], run_id: int, now: datetime) -> Claim:
    lease = Lease(0, 0, "", run_id, 0, now, now, 1, 3, 1)
    return Claim(lease, run_id, now, 3600.0, steps, 0, text, 3, None, now, None)
