"""Finding runs: what drives the search is chosen by what the filter says, the rest is looked at row by row.

    the filter names              the search reads
    ----------------------------  -----------------------------------------------------------------
    an idempotency key            the one run that has it
    a parent                      its children
    attributes                    the rarer one's entries
    an error signature            its entries
    only deleted runs             those
    a time (completed, or since)  what ended in that window and what has not ended, if that is little
    workflows                     a range per workflow and status
    text of the last error        the runs that have one
    statuses, waiting_for         a range per status
    nothing of these              all runs, newest first

Every one is an index range, walked from its newest run on and left when the page is full.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from pgqrs.clock import EPOCH
from pgqrs.db.database import WHOLE, Database, Kind, store_call
from pgqrs.db.queries import load
from pgqrs.db.tables import workflows
from pgqrs.db.tables.runs import progress_in
from pgqrs.filters import Moment, RunFilter
from pgqrs.reports import FailureGroup
from pgqrs.text.wildcards import matches
from pgqrs.types import ENDED, RunStatus, RunSummary

_SQL = load(__package__, "search")

NEWEST = 2**62
LIVE = tuple(status for status in RunStatus if status not in ENDED)
# What ended in a window is sorted by run: up to here in about 10 ms.
SMALL_WINDOW = 10_000
# Each workflow of a pattern is a statement of its own; for more of them one walk over the newest runs is cheaper.
MOST_WORKFLOWS = 20
# Of the error that stands for a group; workers record no longer ones.
MOST_ERROR = 2_000
# A group of failures over time, in so many parts of the window.
FAILURE_BUCKETS = 24
# A run that was created after a moment has ended after it, too, but for what two clocks (a failover) may differ.
CLOCK_SLACK = timedelta(hours=1)
_ALWAYS = (EPOCH, datetime(2999, 1, 1, tzinfo=UTC))
_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_TO_LOWER = str.maketrans(_UPPER, _LOWER)


@dataclass(frozen=True, slots=True)
class Search:
    """A filter with everything looked up that it needs: names as ids, times as times."""

    filter: RunFilter
    # None: any workflow.
    workflow_ids: tuple[int, ...] | None
    every_workflow: tuple[int, ...]
    created: tuple[datetime | None, datetime | None]
    completed: tuple[datetime | None, datetime | None]

    @property
    def statuses(self) -> tuple[RunStatus, ...]:
        if self.filter.statuses:
            return self.filter.statuses
        # Only a paused run waits for something.
        return tuple(RunStatus) if self.filter.waiting_for is None else (RunStatus.PAUSED,)

    def params(self) -> dict[str, Any]:
        """What the texts' common part is bound to."""
        wanted = self.filter
        text = wanted.last_error_contains
        return {
            "statuses": _listed(self.statuses),
            "ever": _ALWAYS[0],
            "any_workflow": int(self.workflow_ids is None),
            "workflow_ids": self.workflow_ids or (),
            "deleted": None if wanted.deleted is None else int(wanted.deleted),
            "created_after": self.created[0],
            "created_before": self.created[1],
            "completed_after": self.completed[0],
            "completed_before": self.completed[1],
            "error_signature": wanted.error_signature,
            "parent_run_id": wanted.parent_run_id,
            "idempotency_key": wanted.idempotency_key,
            "worker_id": wanted.worker_id,
            "waiting_for": wanted.waiting_for,
            "text": None if text is None else text.translate(_TO_LOWER),
            "any_attributes": int(not wanted.attributes),
            "attributes": list(wanted.attributes.items()),
        }


# A text and what it takes beyond the common part.
Drive = tuple[str, dict[str, Any]]
_BY_DELETION: Drive = ("by_deletion", {})


@store_call(Kind.READ, idempotent=True)
async def prepared(db: Database, wanted: RunFilter) -> Search:
    """Raises WorkflowNotFound for a workflow that is named in full and does not exist."""
    return await _prepared(db, wanted)


@store_call(Kind.READ, idempotent=True)
async def run_ids(db: Database, search: Search, *, limit: int, before: int = NEWEST) -> list[int]:
    """The newest `limit` runs older than `before`."""
    return await _run_ids(db, search, limit=limit, before=before)


@store_call(Kind.READ, idempotent=True)
async def page(
    db: Database, wanted: RunFilter, *, limit: int, before: int, cut: int = WHOLE
) -> tuple[list[RunSummary], int | None]:
    """The runs, their texts cut, and the id before which the next page begins, if there is one."""
    search = await _prepared(db, wanted)
    found, last = split(await _run_ids(db, search, limit=limit + 1, before=before), limit)
    return await _summaries(db, search, found, cut=cut), last


def split(found: list[int], limit: int) -> tuple[list[int], int | None]:
    """A page of what was read, one more than the page holds, and the id before which the next begins."""
    return found[:limit], found[limit - 1] if len(found) > limit else None


@store_call(Kind.READ, idempotent=True)
async def count(db: Database, wanted: RunFilter, *, most: int) -> int:
    """How many there are, or `most` when there are at least as many."""
    search = await _prepared(db, wanted)
    found: set[int] = set()
    for drive in await _drives(db, search):
        if len(found) < most:
            found.update(await _driven(db, search, drive, limit=most, before=NEWEST))
    return min(len(found), most)


@store_call(Kind.READ, idempotent=True)
async def newest_run_id(db: Database) -> int:
    return int((await db.fetch(_SQL["newest_run_id"]))[0][0] or 0)


class FailureBucket(NamedTuple):
    """The failures of one workflow with one signature, in one part of the window."""

    workflow_id: int
    error_signature: str | None
    bucket: float
    failed_runs: int
    first_at: datetime
    last_at: datetime
    newest_run: int


@store_call(Kind.READ, idempotent=True)
async def failures(db: Database, since: Moment, *, most: int, limit: int) -> tuple[list[FailureGroup], bool]:
    """ERROR runs that ended since then, the largest groups; True when only the newest `most` of them were grouped."""
    names = {each.workflow_id: each.name for each in await workflows.list_all(db)}
    now: datetime = (await db.fetch(_SQL["clock"]))[0][0]
    ended_from = now - since if isinstance(since, timedelta) else since
    window = {
        "ended_of": list(names),
        "ended_as": str(RunStatus.ERROR),
        "ended_from": ended_from,
        "ended_to": _ALWAYS[1],
    }
    counted = await db.fetch(_SQL["count_ended"], **window, most=most + 1)
    name = "failures_in_window" if counted[0][0] <= most else "newest_failures"
    # Nothing has failed in the future: then a bucket of any width will do.
    width = max((now - ended_from).total_seconds() / FAILURE_BUCKETS, 1.0)
    rows = await db.fetch(
        _SQL[name], ended_of=list(names), ended_from=ended_from, before=NEWEST, most=most, width=width
    )
    buckets = [FailureBucket(*row) for row in rows]
    capped = name == "newest_failures" and sum(each.failed_runs for each in buckets) >= most
    groups = _groups([each for each in buckets if each.workflow_id in names], names)
    groups = sorted(groups, key=lambda group: (-group.count, -group.example_run_id))[:limit]
    examples = await _summaries(db, None, [group.example_run_id for group in groups], cut=MOST_ERROR)
    texts = {each.run_id: each.last_error for each in examples}
    return [dataclasses.replace(group, last_error=texts.get(group.example_run_id)) for group in groups], capped


def _groups(failed: Sequence[FailureBucket], names: dict[int, str]) -> list[FailureGroup]:
    """The buckets of each workflow and signature put together."""
    found: dict[tuple[int, str | None], list[FailureBucket]] = {}
    for each in failed:
        found.setdefault((each.workflow_id, each.error_signature), []).append(each)
    groups = []
    for (workflow_id, signature), buckets in found.items():
        over_time = [0] * FAILURE_BUCKETS
        for each in buckets:
            over_time[min(max(int(each.bucket), 0), FAILURE_BUCKETS - 1)] += each.failed_runs
        groups.append(
            FailureGroup(
                workflow=names[workflow_id],
                error_signature=signature,
                count=sum(over_time),
                first_at=min(each.first_at for each in buckets),
                last_at=max(each.last_at for each in buckets),
                example_run_id=max(each.newest_run for each in buckets),
                last_error=None,
                over_time=tuple(over_time),
            )
        )
    return groups


# -- choosing --------------------------------------------------------------------------------------------


async def _prepared(db: Database, wanted: RunFilter) -> Search:
    every = await workflows.list_all(db)
    chosen: tuple[int, ...] | None = None
    if wanted.workflow is not None and "*" not in wanted.workflow:
        chosen = ((await workflows.get(db, wanted.workflow)).workflow_id,)
    elif wanted.workflow is not None:
        matching = tuple(each.workflow_id for each in every if matches(wanted.workflow, each.name))
        chosen = None if len(matching) == len(every) else matching
    return Search(
        filter=wanted,
        workflow_ids=chosen,
        every_workflow=tuple(each.workflow_id for each in every),
        created=(await _moment(db, wanted.created_after), await _moment(db, wanted.created_before)),
        completed=(await _moment(db, wanted.completed_after), await _moment(db, wanted.completed_before)),
    )


async def _moment(db: Database, given: Moment | None) -> Any:
    if isinstance(given, timedelta):
        return (await db.fetch(_SQL["clock"]))[0][0] - given
    return given


async def _run_ids(db: Database, search: Search, *, limit: int, before: int) -> list[int]:
    found = [await _driven(db, search, drive, limit=limit, before=before) for drive in await _drives(db, search)]
    # A run that ends between two of the texts may be in both.
    merged = dict.fromkeys(heapq.merge(*found, reverse=True))
    return list(merged)[:limit]


async def _driven(db: Database, search: Search, drive: Drive, *, limit: int, before: int) -> list[int]:
    name, own = drive
    rows = await db.fetch(_SQL[name], **{**search.params(), "before": before, "most": limit, **own})
    return [row[0] for row in rows]


async def _drives(db: Database, search: Search) -> list[Drive]:
    wanted = search.filter
    if search.workflow_ids == ():
        return []
    if wanted.idempotency_key is not None and wanted.deleted is not True:
        # Deleted runs gave up their keys: they are looked for by themselves.
        return [("by_key", {}), *([_BY_DELETION] if wanted.deleted is None else ())]
    if wanted.attributes and wanted.parent_run_id is None:
        return [("by_attribute", await _rarest(db, wanted))]
    for name, drives in (
        ("by_parent", wanted.parent_run_id is not None),
        ("by_signature", wanted.error_signature is not None),
        ("by_deletion", wanted.deleted is True),
    ):
        if drives:
            return [(name, {})]
    window = await _window(db, search)
    return _walks(search, search.statuses) if window is None else window


async def _rarest(db: Database, wanted: RunFilter) -> dict[str, str]:
    named = [{"name": name, "value": value} for name, value in wanted.attributes.items()]
    if len(named) == 1:
        return named[0]
    counts = [int((await db.fetch(_SQL["count_attribute"], **each, most=1_000))[0][0]) for each in named]
    return named[counts.index(min(counts))]


async def _window(db: Database, search: Search) -> list[Drive] | None:
    """By what ended in the window the filter speaks of; None when it speaks of none, or of a large one."""
    ended_after, ended_before = search.completed
    created_after = search.created[0]
    if ended_after is None and ended_before is None and created_after is None:
        return None
    if created_after is not None:
        ended_after = max(ended_after or _ALWAYS[0], created_after - CLOCK_SLACK)
    window = {
        "ended_of": search.every_workflow if search.workflow_ids is None else search.workflow_ids,
        "ended_from": ended_after or _ALWAYS[0],
        "ended_to": ended_before or _ALWAYS[1],
    }
    drives: list[Drive] = []
    total = 0
    for status in search.statuses:
        if status in ENDED:
            drives.append(("by_end", {**window, "ended_as": str(status)}))
            rows = await db.fetch(_SQL["count_ended"], **drives[-1][1], most=SMALL_WINDOW + 1)
            total += int(rows[0][0])
        if total > SMALL_WINDOW:
            return None
    live = [] if search.completed != (None, None) else [status for status in search.statuses if status in LIVE]
    return drives + (_walks(search, live) if live else [])


def _walks(search: Search, statuses: Sequence[RunStatus]) -> list[Drive]:
    listed = {"statuses": _listed(statuses)}
    ids = search.workflow_ids
    if ids is not None and len(ids) <= MOST_WORKFLOWS:
        return [("by_workflow", {"workflow_id": each, **listed}) for each in ids]
    # Those that have not ended are few beside all that ever failed.
    if search.filter.last_error_contains is not None and any(each in ENDED for each in statuses):
        return [("by_error", listed)]
    if len(statuses) == len(RunStatus):
        return [("newest", {})]
    return [("by_status", listed)]


def _listed(statuses: Sequence[RunStatus]) -> str:
    return f",{','.join(statuses)},"


async def _summaries(db: Database, search: Search | None, ids: Sequence[int], *, cut: int) -> list[RunSummary]:
    rows = await db.fetch(_SQL["summaries"], run_ids=ids, cut=cut) if ids else []
    found = [
        RunSummary(*(run_id, workflow, RunStatus(status), *rest, progress_in(headers)))
        for run_id, workflow, status, *rest, headers in rows
    ]
    # Between the two statements a run may have moved on.
    return [each for each in found if search is None or each.status in search.statuses]
