"""Finding runs, and doing something to all that are found."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pgqrs.api.arguments import check_texts, checked_batch, checked_run_id, checked_whole
from pgqrs.api.cursors import from_cursor, to_cursor
from pgqrs.db.database import WHOLE
from pgqrs.db.driver import Driver
from pgqrs.db.hints import OUTBOX
from pgqrs.db.runs import history, transitions
from pgqrs.db.tables import runs, workflows
from pgqrs.db.tables.runs import RunRow
from pgqrs.db.views import search
from pgqrs.errors import ConfigError, ConnectionFailed, InvalidTransition, NotFound, PgqrsError
from pgqrs.filters import RunFilter
from pgqrs.reports import BulkReason, BulkResult, CappedCount, FailureGroup
from pgqrs.serialization import readable
from pgqrs.types import ENDED, Event, RunStatus, RunSummary, Step

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# Counting stops here: nobody needs to know whether it is 800,000 or 900,000, and finding out takes that long.
MOST_COUNTED = 10_000
# Failures that are grouped at once.
MOST_FAILURES = 10_000
# Runs that a bulk verb looks up at once.
BULK_BATCH = 500
# How many ids and reasons a bulk verb tells.
SHOWN_IDS = 20
SHOWN_REASONS = 100
# What a bulk verb takes when the filter names no status: what it makes sense for.
_CANCELLED_FROM = search.LIVE
_RESTARTED_FROM = (RunStatus.ERROR, RunStatus.CANCELLED)
_DELETED_FROM = ENDED

# Anything that says which runs: a filter, its text, or nothing.
Filter = RunFilter | str | None
# Told how many more are done, whenever some are.
OnProgress = Callable[[int], None] | None


class SummaryPage(list[RunSummary]):
    """A page of runs, newest first; `next_cursor` leads on, None after the last."""

    next_cursor: str | None = None


class FailureList(list[FailureGroup]):
    """Groups of failures, the most frequent first; `capped` when only the newest failures were looked at."""

    capped: bool = False


class SearchVerbs:
    """The part of Admin that finds runs."""

    _store: Store

    async def runs(
        self,
        filter: Filter = None,  # noqa: A002 - the word for it
        *,
        limit: int = 50,
        cursor: str | None = None,
        **fields: Any,
    ) -> SummaryPage:
        """The runs of a filter (a RunFilter, its text, or its fields), newest first; `page.next_cursor` leads on."""
        return await page_of(self._store, wanted_by(filter, fields), limit=limit, cursor=cursor)

    async def count_runs(self, filter: Filter = None, **fields: Any) -> CappedCount:  # noqa: A002
        """How many there are, counted up to 10,000."""
        return await _counted(await self._store.ready(), wanted_by(filter, fields))

    async def failures(self, *, since: datetime | timedelta = timedelta(hours=24), limit: int = 100) -> FailureList:
        """Runs that ended in ERROR since then, grouped by workflow and error signature, the largest groups first."""
        # Checked as the filter's times are.
        moment = RunFilter(created_after=since).created_after
        if moment is None:
            raise ConfigError("since must be a datetime or a timedelta, not None")
        most = checked_batch("limit", limit)
        groups, capped = await search.failures(await self._store.ready(), moment, most=MOST_FAILURES, limit=most)
        found = FailureList(groups)
        found.capped = capped
        return found

    async def steps(self, run_id: int) -> list[Step]:
        """The recorded steps of a run, in the order in which they were recorded."""
        return await steps_of(self._store, run_id)

    async def events(self, run_id: int, *, limit: int = 100, after: int = 0) -> list[Event]:
        """What happened to a run, oldest first; the last one's `event_id` as `after` pages on."""
        return await events_of(self._store, run_id, limit=limit, after=after)

    # -- bulk verbs --------------------------------------------------------------------------------------

    async def cancel_runs(
        self,
        filter: Filter = None,  # noqa: A002
        *,
        reason: str | None = None,
        actor: str | None = None,
        dry_run: bool = True,
        everything: bool = False,
        on_progress: OnProgress = None,
        **fields: Any,
    ) -> BulkResult:
        """Cancels the runs of a filter, each in its own transaction. Without a status: those that have not ended.

        `dry_run=True`, the default, only says how many there are. An empty filter needs `everything=True`.
        `on_progress` is told of each run that is done with.
        """

        async def cancel(db: Driver, run_id: int) -> None:
            cancelled = await transitions.cancel(db, run_id, reason=reason, actor=actor)
            db.hints.announce([*(-each for each in cancelled), OUTBOX])

        check_texts(reason=reason, actor=actor)
        wanted = _bulk_filter("cancel_runs", filter, fields, _CANCELLED_FROM, everything=everything)
        return await self._bulk("cancel", wanted, cancel, dry_run=dry_run, on_progress=on_progress)

    async def restart_runs(
        self,
        filter: Filter = None,  # noqa: A002
        *,
        actor: str | None = None,
        dry_run: bool = True,
        everything: bool = False,
        on_progress: OnProgress = None,
        **fields: Any,
    ) -> BulkResult:
        """Restart the runs of a filter where they stopped. Without a status: those in ERROR or CANCELLED.

        Each heals as `workflow(name).restart` does. Children come before their parents, which then wait for them.
        Runs that compensated are skipped.
        """

        async def restart(db: Driver, run_id: int) -> None:
            request = uuid.uuid4().hex
            await transitions.restart(db, run_id, actor=actor, request=request, unless_compensated=True)
            db.hints.announce([-run_id, OUTBOX])

        check_texts(actor=actor)
        wanted = _bulk_filter("restart_runs", filter, fields, _RESTARTED_FROM, everything=everything)
        result = await self._bulk("restart", wanted, restart, dry_run=dry_run, on_progress=on_progress)
        if result.done:
            db = await self._store.ready()
            db.hints.announce([*(each.queue_id for each in await workflows.list_all(db)), OUTBOX])
        return result

    async def delete_runs(
        self,
        filter: Filter = None,  # noqa: A002
        *,
        reason: str | None = None,
        actor: str | None = None,
        dry_run: bool = True,
        everything: bool = False,
        on_progress: OnProgress = None,
        **fields: Any,
    ) -> BulkResult:
        """Marks the runs of a filter as deleted. Without a status: those that have ended."""

        async def delete(db: Driver, run_id: int) -> None:
            await transitions.delete(db, run_id, reason=reason, actor=actor)
            db.hints.announce([-run_id, OUTBOX])

        check_texts(reason=reason, actor=actor)
        wanted = _bulk_filter("delete_runs", filter, fields, _DELETED_FROM, everything=everything)
        return await self._bulk("delete", wanted, delete, dry_run=dry_run, on_progress=on_progress)

    async def _bulk(
        self,
        verb: str,
        wanted: RunFilter,
        act: Callable[[Driver, int], Awaitable[None]],
        *,
        dry_run: bool,
        on_progress: OnProgress,
    ) -> BulkResult:
        db = await self._store.ready()
        # What comes from now on is not meant: whoever called has not seen it.
        before = await search.newest_run_id(db) + 1
        prepared = await search.prepared(db, wanted)
        first = await search.run_ids(db, prepared, limit=MOST_COUNTED + 1, before=before)
        matched = CappedCount(min(len(first), MOST_COUNTED), len(first) > MOST_COUNTED)
        shown = tuple(first[:SHOWN_IDS])
        if dry_run:
            return BulkResult(verb, dry_run=True, matched=matched, run_ids=shown)
        done = 0
        tally = {"skipped": 0, "failed": 0}
        reasons: list[BulkReason] = []
        while batch := await search.run_ids(db, prepared, limit=BULK_BATCH, before=before):
            for run_id in batch:
                try:
                    await act(db, run_id)
                    done += 1
                except ConnectionFailed:
                    # Those to come would fail alike. What was done is done whole: a second call goes on from here.
                    raise
                except PgqrsError as error:
                    outcome = _outcome(error)
                    tally[outcome] += 1
                    reasons += [BulkReason(run_id, outcome, str(error))] * (len(reasons) < SHOWN_REASONS)
                if on_progress is not None:
                    on_progress(1)
            before = batch[-1]
        return BulkResult(
            verb, dry_run=False, matched=matched, run_ids=shown, done=done, **tally, reasons=tuple(reasons)
        )


async def rows_of(
    store: Store, wanted: RunFilter, *, limit: int, cursor: str | None
) -> tuple[list[RunRow], str | None]:
    """A page of runs with everything about them, and where the next begins."""
    db = await store.ready()
    before = search.NEWEST if cursor is None else from_cursor(cursor, 1)[0]
    prepared = await search.prepared(db, wanted)
    read = await search.run_ids(db, prepared, limit=checked_batch("limit", limit) + 1, before=before)
    found, last = search.split(read, limit)
    rows = await runs.several(db, found) if found else []
    return rows, None if last is None else to_cursor(last)


async def page_of(
    store: Store, wanted: RunFilter, *, limit: int, cursor: str | None, cut: int = WHOLE
) -> SummaryPage:
    """A page of runs and where the next begins; of texts only the first `cut` characters."""
    before = search.NEWEST if cursor is None else from_cursor(cursor, 1)[0]
    most = checked_batch("limit", limit)
    found, last = await search.page(await store.ready(), wanted, limit=most, before=before, cut=cut)
    page = SummaryPage(found)
    page.next_cursor = None if last is None else to_cursor(last)
    return page


async def steps_of(store: Store, run_id: int) -> list[Step]:
    db = await store.ready()
    rows = await runs.steps(db, checked_run_id(run_id))
    if not rows:
        await runs.get(db, run_id)
    return [
        Step(
            step_id=row.step_id,
            ordinal=row.ordinal,
            status=row.status,
            input=readable(row.input),
            output=readable(row.output),
            error=readable(row.error),
            attempts=row.attempts,
            started_at=row.started_at,
            completed_at=row.completed_at,
        )
        for row in rows
    ]


async def events_of(store: Store, run_id: int, *, limit: int = 100, after: int = 0) -> list[Event]:
    db = await store.ready()
    rows = await history.events(
        db,
        checked_run_id(run_id),
        limit=checked_batch("limit", limit),
        after=checked_whole("after", after, least=0, most=2**63 - 1),
    )
    if not rows:
        await runs.get(db, run_id)
    return [
        Event(row.event_id, row.run_id, row.event_type, readable(row.data), row.actor, row.created_at) for row in rows
    ]


def wanted_by(given: Filter, fields: dict[str, Any]) -> RunFilter:
    """The filter, with the fields that were named beside it."""
    wanted = RunFilter.parse(given) if isinstance(given, str) else given or RunFilter()
    if not isinstance(wanted, RunFilter):
        raise ConfigError(f"a filter is a RunFilter or its text, not {given!r}")
    known = RunFilter.__dataclass_fields__
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise ConfigError(f"runs cannot be filtered by {unknown[0]!r}", hint=f"known are {', '.join(known)}")
    return wanted.with_changes(**fields) if fields else wanted


def _bulk_filter(
    verb: str, given: Filter, fields: dict[str, Any], statuses: Sequence[RunStatus], *, everything: bool
) -> RunFilter:
    wanted = wanted_by(given, fields)
    if wanted.is_empty and not everything:
        raise ConfigError(f"{verb} without a filter would take every run", hint="name some, or say everything=True")
    return wanted if wanted.statuses else wanted.with_changes(status=statuses)


async def _counted(db: Driver, wanted: RunFilter) -> CappedCount:
    number = await search.count(db, wanted, most=MOST_COUNTED + 1)
    return CappedCount(min(number, MOST_COUNTED), number > MOST_COUNTED)


def _outcome(error: PgqrsError) -> str:
    return "skipped" if isinstance(error, InvalidTransition | NotFound) else "failed"
