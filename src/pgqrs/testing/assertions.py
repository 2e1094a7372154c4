"""Assertions whose failures read well: what was expected, what is on record, how the run came there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgqrs.api.store import Store
from pgqrs.api.workflow import Workflow
from pgqrs.db.tables import queues
from pgqrs.db.views import inspection
from pgqrs.errors import ConfigError
from pgqrs.serialization import decode
from pgqrs.testing.handle import RunHandle, shown
from pgqrs.types import RunStatus

_MOST_RUNS = 1_000
_MOST_LISTED = 20
ANYTHING: Any = object()


def matches(expected: Any, value: Any) -> bool:
    """Equal; or a function that says yes; or a mapping of which the value has all."""
    if expected is ANYTHING:
        return True
    if callable(expected):
        return bool(expected(value))
    if isinstance(expected, Mapping) and isinstance(value, Mapping):
        return all(name in value and matches(part, value[name]) for name, part in expected.items())
    return bool(expected == value)


async def enqueued(store: Store, *, queue: str | None, workflow: str | None, matching: Any, times: int) -> None:
    __tracebackhide__ = True
    if (queue is None) == (workflow is None):
        raise ConfigError("assert_enqueued looks either into a queue or for runs of a workflow: name one of them")
    if queue is not None:
        db = await store.ready()
        found = await inspection.live_messages(db, (await queues.get(db, queue)).queue_id)
        seen = [decode(each.payload) for each in found]
        where = f"in queue {queue!r}"
    else:
        page = await Workflow(str(workflow)).runs(store, limit=_MOST_RUNS, status=RunStatus.PENDING)
        seen = [run.input for run in reversed(page)]
        where = f"as runs of {workflow!r} that have not begun"
    _compare(seen, matching, times, where=where)


def steps(run: RunHandle, expected: list[str]) -> None:
    __tracebackhide__ = True
    if run.step_ids == expected:
        return
    at = next((n for n, pair in enumerate(zip(run.step_ids, expected, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        at = min(len(run.step_ids), len(expected))
    there, wanted = run.step_ids[at : at + 1], expected[at : at + 1]
    raise AssertionError(
        f"run {run.run_id} has other steps on record than expected; the first difference is at {at}: "
        f"{there[0] if there else 'nothing'!r} instead of {wanted[0] if wanted else 'nothing'!r}\n"
        f"  expected  {expected}\n  on record {run.step_ids}\n{run.timeline()}"
    )


async def emitted(store: Store, event_type: str, *, matching: Any, run: RunHandle | None, times: int) -> None:
    __tracebackhide__ = True
    found = [
        each for each in await inspection.emitted(await store.ready()) if run is None or each.run_id == run.run_id
    ]
    seen = [decode(each.payload) for each in found if each.event_type == event_type]
    others = sorted({each.event_type for each in found} - {event_type})
    also = f"; there are events of type {', '.join(others)}" if others else "; the outbox holds no other type"
    after = f"\n{run.timeline()}" if run is not None else ""
    _compare(seen, matching, times, where=f"as events {event_type!r} in the outbox", after=also + after)


def _compare(seen: list[Any], matching: Any, times: int, *, where: str, after: str = "") -> None:
    __tracebackhide__ = True
    count = sum(matches(matching, each) for each in seen)
    if count == times:
        return
    asked = "anything" if matching is ANYTHING else shown(matching)
    listed = "".join(f"\n  {shown(each)}" for each in seen[:_MOST_LISTED]) or "\n  nothing"
    more = f"\n  and {len(seen) - _MOST_LISTED} more" if len(seen) > _MOST_LISTED else ""
    raise AssertionError(f"expected {times} of {asked} {where}, found {count}; there is{listed}{more}{after}")
