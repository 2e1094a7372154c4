"""Is all well with a store? Each thing that is looked at gives findings: how it is, why that matters, what to do.

this file           the package, the tables, and what is in them: work without a worker, unread dead letters
doctor_server.py    a PostgreSQL server
doctor_file.py      the file of SQLite or Turso
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from pgqrs import distribution
from pgqrs.api.doctor import file, server
from pgqrs.api.operations.metrics import LIVE_LEASES
from pgqrs.api.retention import retention
from pgqrs.db.tables import workflows
from pgqrs.db.upkeep import diagnostics, unreadable_rows
from pgqrs.errors import PgqrsError, SchemaMismatch, SchemaNotInstalled
from pgqrs.reports import DoctorFinding, DoctorReport, Level, QueueDepth, StoreStats
from pgqrs.text.durations import format_duration
from pgqrs.text.shell import command, quoted
from pgqrs.types import ENDED, WorkerInfo, WorkerStatus

if TYPE_CHECKING:
    from pgqrs.api.operations.admin import Admin

# Work that has waited for less may just have come.
_PATIENCE_SECONDS = 60.0
# An event that waits for longer waits for a dispatcher that does not come, or for a receiver that is away.
_OUTBOX_SECONDS = 600.0
# Beyond this a store without retention gets slower to back up, to look through and to clean.
_MANY_RUNS = 10_000
_MANY_BYTES = 1024**3
# Names in one sentence.
_MOST_NAMED = 5


async def examine(admin: Admin, *, verify: bool) -> DoctorReport:
    """All findings. Quick, whatever the size of the store, unless it is to `verify` what is in it."""
    findings = installation()
    for checks in (_tables, _database, _contents):
        try:
            findings += [finding async for finding in checks(admin)]
        except PgqrsError as error:
            findings.append(DoctorFinding("database", Level.BAD, error.problem, fix=error.hint))
        if any(each.code in ("database", "schema") and each.level is Level.BAD for each in findings):
            # Nothing else can be asked, or be believed.
            return DoctorReport(tuple(findings))
    findings += await _unreadable(admin, whole=verify)
    if verify:
        findings += [finding async for finding in _invariants(admin)]
    return DoctorReport(tuple(findings))


def installation() -> list[DoctorFinding]:
    """What another distribution does to the package in this environment; nothing, when all is well."""
    found = distribution.conflict()
    if found is None:
        return []
    level = Level.WARN if found.is_former else Level.BAD
    return [DoctorFinding("package", level, found.what, found.why, found.fix)]


async def _tables(admin: Admin) -> AsyncIterator[DoctorFinding]:
    try:
        await admin.verify()
    except SchemaNotInstalled as error:
        yield DoctorFinding("schema", Level.BAD, str(error).partition(";")[0], fix="pgqrs install")
    except SchemaMismatch as error:
        fix = "pgqrs install" if 0 < error.found < error.expected else None
        yield DoctorFinding("schema", Level.BAD, str(error), fix=fix)
    else:
        yield DoctorFinding("schema", Level.OK, f"the tables are whole, at version {await admin.version()}")


async def _database(admin: Admin) -> AsyncIterator[DoctorFinding]:
    store = admin.store
    look = server.look if store.config.backend == "postgres" else file.look
    async for finding in look(store):
        yield finding
    found = await diagnostics.old_tables(await store.ready())
    if found:
        yield DoctorFinding(
            "old_tables",
            Level.WARN,
            f"{' and '.join(found)} of the former layout {'is' if len(found) == 1 else 'are'} still there",
            "nothing reads them",
            "await pgqrs.admin(store).import_v1(), then remove them",
        )


async def _contents(admin: Admin) -> AsyncIterator[DoctorFinding]:
    stats = await admin.stats()
    workers = await admin.workers()
    live_within = LIVE_LEASES * admin.store.config.lease_seconds
    ready = [each for each in workers if each.status is WorkerStatus.READY]
    alive = [each for each in ready if each.heartbeat_age_seconds <= live_within]
    yield await _workers(admin, alive, [each for each in ready if each not in alive])
    yield await _unserved(admin, stats, alive)
    yield await _without_code(admin, stats, alive)
    yield _paused(stats)
    yield _dead_letters(stats)
    yield await _outbox(admin)
    for finding in await _schedules(admin, stats):
        yield finding
    yield await _retention(admin, stats)


async def _workers(admin: Admin, alive: Sequence[WorkerInfo], silent: Sequence[WorkerInfo]) -> DoctorFinding:
    if not silent:
        return DoctorFinding("workers", Level.OK, f"{len(alive)} worker(s) alive, none silent")
    kept = [each.keep for each in await retention(admin.store).policies() if each.what == "workers"]
    removed = (
        f"retention removes silent workers after {format_duration(kept[0].total_seconds())} (an hour at least)"
        if kept
        else "no retention policy removes silent workers"
    )
    ids = _some([str(each.worker_id) for each in silent])
    noun = "worker" if len(silent) == 1 else "workers"
    return DoctorFinding(
        "workers",
        Level.WARN,
        f"{len(silent)} {noun} disappeared without shutting down, silent for three leases: {ids}",
        f"they were killed, or cannot reach the database; what they held comes back with its lease; {removed}",
        _fix_for(silent, is_removed=bool(kept)),
    )


def _fix_for(silent: Sequence[WorkerInfo], *, is_removed: bool) -> str | None:
    if holders := [each.worker_id for each in silent if each.leased]:
        return command("worker release", *holders)
    # Signs them off. A process that is still there after all ends, and has to be started again.
    if reachable := [each.worker_id for each in silent if each.can_be_told_to_stop]:
        return command("worker stop", *reachable)
    return None if is_removed else 'await pgqrs.retention(store).keep("workers", days=1)'


async def _unserved(admin: Admin, stats: StoreStats, alive: Sequence[WorkerInfo]) -> DoctorFinding:
    """Work that is due, and nobody there to do it."""
    waiting = [each for each in stats.queues if each.ready and not each.paused and _is_old(each)]
    known = {each.name for each in await workflows.list_all(await admin.store.ready())}
    left = [each for each in waiting if not any(_serves(worker, each.queue, known) for worker in alive)]
    if not left:
        return DoctorFinding("unserved", Level.OK, "somebody is there for everything that is due")
    first = left[0]
    return DoctorFinding(
        "unserved",
        Level.BAD,
        f"work is due and no live worker takes it: {_some([f'{each.queue} ({each.ready:,})' for each in left])}",
        f"the oldest waits for {format_duration(first.oldest_ready_age_seconds or 0)}",
        command("worker run APP") if first.queue in known else f"start a consumer of queue {quoted(first.queue)}",
    )


def _is_old(depth: QueueDepth) -> bool:
    return (depth.oldest_ready_age_seconds or 0) >= _PATIENCE_SECONDS


def _serves(worker: WorkerInfo, queue: str, known: set[str]) -> bool:
    # The queue of a workflow has its name.
    return worker.queue == queue or (queue in known and workflows.serves(worker.info, queue))


async def _without_code(admin: Admin, stats: StoreStats, alive: Sequence[WorkerInfo]) -> DoctorFinding:
    """Runs that workers take by their prefix, and cannot execute."""
    del admin
    found = []
    for live in stats.live:
        takers = [each for each in alive if workflows.serves(each.info, live.workflow)]
        waits = live.pending.count + live.running.count + live.paused.count
        if takers and waits and not any(live.workflow in each.info.get("handlers", ()) for each in takers):
            found.append(live.workflow)
    if not found:
        return DoctorFinding("handlers", Level.OK, "every live worker has code for what it takes")
    return DoctorFinding(
        "handlers",
        Level.BAD,
        f"workers take runs of {_some(found)} by their prefix and have no code for them",
        "after no_handler_grace_seconds such a run ends in ERROR",
        command("worker run APP"),
    )


def _paused(stats: StoreStats) -> DoctorFinding:
    held = [each for each in stats.queues if each.paused and each.ready + each.scheduled]
    if not held:
        return DoctorFinding("paused_queues", Level.OK, "no queue with work in it is paused")
    return DoctorFinding(
        "paused_queues",
        Level.WARN,
        f"paused, with work in them: {_some([each.queue for each in held])}",
        "nothing is taken from them until they are resumed",
        command("queue resume", held[0].queue),
    )


def _dead_letters(stats: StoreStats) -> DoctorFinding:
    dead = [each for each in stats.queues if each.dead]
    if not dead:
        return DoctorFinding("dead_letters", Level.OK, "no dead letters")
    return DoctorFinding(
        "dead_letters",
        Level.WARN,
        f"messages that were tried too often: {_some([f'{each.queue} ({each.dead:,})' for each in dead])}",
        "nobody takes them again by itself",
        command("queue dead", dead[0].queue),
    )


async def _outbox(admin: Admin) -> DoctorFinding:
    counts = await admin.outbox.counts()
    age = counts.oldest_pending_age_seconds or 0
    if counts.pending and age > _OUTBOX_SECONDS:
        return DoctorFinding(
            "outbox",
            Level.BAD,
            f"{counts.pending:,} event(s) wait to be published, the oldest for {format_duration(age)}",
            "receivers fail" if counts.failing else "no dispatcher is running",
            "pgqrs outbox list" if counts.failing else "pgqrs outbox dispatch APP",
        )
    if counts.dead:
        why = "their receivers refused them too often"
        return DoctorFinding("outbox", Level.WARN, f"{counts.dead:,} event(s) are dead", why, "pgqrs outbox dead")
    return DoctorFinding("outbox", Level.OK, f"{counts.pending:,} event(s) wait to be published")


async def _schedules(admin: Admin, stats: StoreStats) -> list[DoctorFinding]:
    late_after = _PATIENCE_SECONDS + 10 * admin.store.config.poll_interval_seconds
    troubled = await diagnostics.schedules_in_trouble(await admin.store.ready())
    broken = [each for each in troubled if each.last_error is not None]
    late = [each for each in troubled if each.last_error is None and (each.late_seconds or 0) > late_after]
    found = []
    if broken:
        first = broken[0]
        found.append(
            DoctorFinding(
                "schedules",
                Level.BAD,
                f"the last look at these schedules failed: {_some([each.name for each in broken])}",
                first.last_error,
                command("schedule get", first.name),
            )
        )
    if late:
        found.append(
            DoctorFinding(
                "schedules",
                Level.BAD,
                f"overdue, and nobody looks: {_some([each.name for each in late])}",
                "workers look after schedules, unless PGQRS_MAINTENANCE is 0 for all of them",
                "pgqrs worker run APP",
            )
        )
    return found or [DoctorFinding("schedules", Level.OK, f"{stats.schedules.total} schedule(s), none late")]


async def _retention(admin: Admin, stats: StoreStats) -> DoctorFinding:
    policies = await retention(admin.store).policies()
    ended = sum(stats.runs[status].count for status in ENDED if status in stats.runs)
    big = ended >= _MANY_RUNS or (stats.database_bytes or 0) >= _MANY_BYTES
    if policies:
        return DoctorFinding("retention", Level.OK, f"{len(policies)} retention policies are set")
    if not big:
        return DoctorFinding("retention", Level.OK, "no retention policy, and little to delete")
    return DoctorFinding(
        "retention",
        Level.WARN,
        f"{ended:,} or more runs have ended, and no policy says how long they are kept",
        "what is never deleted makes backups, upgrades and searches slower",
        "pgqrs prune --recommended",
    )


async def _unreadable(admin: Admin, *, whole: bool) -> list[DoctorFinding]:
    """Rows that were written past the library; the newest of each table, unless all are to be verified."""
    found = await unreadable_rows.unreadable(await admin.store.ready(), whole=whole)
    if not found:
        looked_at = "every row" if whole else f"the newest {unreadable_rows.NEWEST:,} rows of each table"
        return [DoctorFinding("unreadable", Level.OK, f"{looked_at} can be read")]
    return [
        DoctorFinding(
            "unreadable",
            Level.BAD,
            f"these cannot be read: {_some([str(each) for each in columns])}",
            "they were written past pgqrs, by hand or by a client with SQL; they are shown as unreadable, and runs "
            "with such a row may end in ERROR or never begin",
            f"in SQL, and look again: {columns[0].fix}",
        )
        for columns in _by_table(found)
    ]


def _by_table(found: Sequence[unreadable_rows.Unreadable]) -> list[list[unreadable_rows.Unreadable]]:
    tables: dict[str, list[unreadable_rows.Unreadable]] = {}
    for each in found:
        tables.setdefault(each.table, []).append(each)
    return list(tables.values())


async def _invariants(admin: Admin) -> AsyncIterator[DoctorFinding]:
    report = await admin.check_invariants()
    for violation in report:
        why = "see docs/reference/invariants.md; the rows that it names are the evidence"
        yield DoctorFinding("invariants", Level.BAD, str(violation), why, command("explain", violation.code))
    if not report:
        yield DoctorFinding("invariants", Level.OK, f"all that can be judged holds ({len(report.unjudged)} cannot)")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
