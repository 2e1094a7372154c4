"""What happens to runs, told as it happens: lines such as `run 1  order   reserve ok   charge failed: TimeoutError`.

Told from the database, not by the worker: what is said here is on record, and would be there after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgqrs.api.operations.why import is_parked
from pgqrs.cli.output import safe
from pgqrs.db.tables import runs as table
from pgqrs.db.tables.runs import BriefStep, RunRow
from pgqrs.db.views import run_facts
from pgqrs.text.durations import format_duration
from pgqrs.text.shell import command
from pgqrs.text.step_ids import child_of, event_of, is_sleep, signal_of
from pgqrs.types import ENDED, RunStatus, StepStatus

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# More runs than that cannot be read while they go by; the others are counted.
_MOST_FOLLOWED = 100
_MOST_NEW = 50
_WIDTH = 90


@dataclass(frozen=True, slots=True)
class SeenRun:
    """A run and its steps, as they were when we looked."""

    run: RunRow
    steps: Sequence[BriefStep]

    @property
    def recorded(self) -> int:
        """How many of its steps a replay would not run again."""
        return sum(step.status is StepStatus.SUCCESS for step in self.steps)


class RunFeed:
    """Follows the runs of a store; `look` gives a line for each that has moved."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._newest = 0
        self.seen: dict[int, SeenRun] = {}

    async def begin(self) -> None:
        """From here on: what is under way is followed, what has ended is not told."""
        from pgqrs.api.operations.admin import admin

        newest = await admin(self._store).runs(limit=1)
        self._newest = newest[0].run_id if newest else 0
        live = await admin(self._store).runs(status=["pending", "running", "paused"], limit=_MOST_FOLLOWED)
        self.seen = await self._read([run.run_id for run in live])

    async def look(self) -> list[str]:
        """What has happened since the last look."""
        fresh, untold = await self._fresh()
        # One that was restarted is not new; what it had done before is not told again.
        self.seen |= await self._read(
            [run_id for run_id in await self._running() if run_id not in {*self.seen, *fresh}]
        )
        now = await self._read([*self.seen, *fresh])
        lines = []
        for run_id in sorted(now):
            before, after = self.seen.get(run_id), now[run_id]
            parts = changes(before, after)
            if parts:
                parts = await self._with_times(after, parts)
                lines.append(line(after.run, parts))
        if untold:
            lines.append(f"... and {untold:,} more runs; `pgqrs run list` shows them")
        self.seen = {run_id: each for run_id, each in now.items() if each.run.status not in ENDED}
        return lines

    async def _fresh(self) -> tuple[list[int], int]:
        """Runs that were triggered since, oldest first, and how many more there were than can be followed."""
        from pgqrs.api.operations.admin import admin

        page = await admin(self._store).runs(limit=_MOST_NEW)
        found = sorted(run.run_id for run in page if run.run_id > self._newest)
        if not found:
            return [], 0
        room = max(0, _MOST_FOLLOWED - len(self.seen))
        # Ids are given out in order, with gaps at most: an estimate that is exact nearly always.
        untold = max(0, found[-1] - self._newest - len(found)) if len(found) == _MOST_NEW else 0
        self._newest = found[-1]
        return found[:room], untold + len(found[room:])

    async def _running(self) -> list[int]:
        from pgqrs.api.operations.admin import admin

        room = max(1, _MOST_FOLLOWED - len(self.seen))
        return [run.run_id for run in await admin(self._store).runs(status="running", limit=room)]

    async def _read(self, run_ids: Sequence[int]) -> dict[int, SeenRun]:
        if not run_ids:
            return {}
        db = await self._store.ready()
        rows = await table.several(db, list(run_ids))
        steps = await table.steps_in_brief(db, list(run_ids))
        return {row.run_id: SeenRun(row, steps[row.run_id]) for row in rows}

    async def _with_times(self, after: SeenRun, parts: Sequence[str]) -> list[str]:
        """`retry` with how long it is until then, which the run's message knows."""
        if not any(part.endswith(", retry") for part in parts):
            return list(parts)
        facts = await run_facts.facts(await self._store.ready(), after.run.run_id)
        left = facts.visible_in_seconds or 0.0
        ending = f" in {format_duration(round(left) or round(left, 1))}" if left > 0 else ""
        return [f"{part}{ending}" if part.endswith(", retry") else part for part in parts]


def line(run: RunRow, parts: Iterable[str]) -> str:
    """One run, and what has become of it."""
    return f"run {run.run_id}  {run.workflow}   " + "   ".join(parts)


def changes(before: SeenRun | None, after: SeenRun) -> list[str]:
    """What happened between two looks, in words; nothing when nothing did."""
    known = {} if before is None else {step.step_id: step for step in before.steps}
    parts = [_taken_over(before, after)] if before is not None else []
    parts += [_step(step, after.run) for step in after.steps if step != known.get(step.step_id)]
    if before is None or _state(before.run) != _state(after.run):
        parts.append(_status(after.run, parts, is_new=before is None))
    # Once for all the children that it waits for.
    return [part for part in dict.fromkeys(parts) if part]


def _state(run: RunRow) -> tuple[object, ...]:
    return run.status, run.last_error, is_parked(run)


def _taken_over(before: SeenRun, after: SeenRun) -> str:
    """Another worker goes on with it: after a crash, or a reload."""
    was, now = before.run.worker_id, after.run.worker_id
    if was is None or now is None or was == now or before.run.started_at is None:
        return ""
    return f"resumed by worker {now}, {_steps(before.recorded)} replayed from the database"


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _step(step: BriefStep, run: RunRow) -> str:
    name = safe(step.step_id)
    match step.status:
        case StepStatus.SUCCESS:
            again = f" (attempt {step.attempts})" if step.attempts > 1 else ""
            return f"{done}{again}" if (done := _done(name)) else ""
        case StepStatus.ERROR:
            return f"{name} failed: {_error(step.error)}"
        case StepStatus.PENDING if step.error is not None:
            return f"{name} failed: {_kind(step.error)}, retry"
        case StepStatus.PAUSED:
            return _waits(name, run)
    return ""


def _done(step_id: str) -> str:
    if (signal := signal_of(step_id)) is not None:
        return f"got {signal}"
    if (event := event_of(step_id)) is not None:
        return f"emitted {event}"
    if is_sleep(step_id):
        return "slept"
    # The child's own line says that it ended.
    return "" if child_of(step_id) is not None else f"{step_id} ok"


def _waits(name: str, run: RunRow) -> str:
    signal = signal_of(name)
    if signal is not None:
        return f"waiting for {signal}"
    if child_of(name) is not None:
        return "waiting for its children"
    # "sleep until 2030-01-31 12:00:00" reads well as it is.
    return safe(run.waiting_for or f"waiting: {name}")


def _status(run: RunRow, told: Sequence[str], *, is_new: bool) -> str:
    match run.status:
        case RunStatus.SUCCESS:
            output = "" if run.output in (None, "null") else f": {_short(run.output or '')}"
            return f"done{output}"
        case RunStatus.ERROR:
            # A step that has just failed has said why.
            said = any(" failed: " in part for part in told)
            return "FAILED" if said else f"FAILED: {_short(run.last_error or 'no error on record')}"
        case RunStatus.CANCELLED:
            return "cancelled"
        case RunStatus.PAUSED if is_parked(run):
            return f"PARKED: its code asks for other steps than are recorded; see {command('run why', run.run_id)}"
        case RunStatus.PENDING if not any(told):
            return f"failed: {_short(run.last_error)}, retry" if run.last_error else "triggered" if is_new else ""
    return ""


def _error(text: str | None) -> str:
    found = _parsed(text)
    message = found.get("message", "")
    return _short(f"{found.get('type', 'error')}: {message}" if message else str(found.get("type", "error")))


def _kind(text: str | None) -> str:
    return safe(str(_parsed(text).get("type", "error")))


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _short(text: str) -> str:
    flat = safe(" ".join(text.split()))
    return flat if len(flat) <= _WIDTH else f"{flat[: _WIDTH - 3]}..."
