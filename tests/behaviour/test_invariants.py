"""The checker finds what was broken by hand, names exactly that, and finds nothing where all is well."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

import pgqrs
from pgqrs.db.database import Kind
from pgqrs.db.queries import Query
from pgqrs.db.upkeep import invariants
from rig import lives
from rig.crimes import CRIMES
from rig.invariants import check_invariants

# What the databases check by themselves: a crime against it needs other means.
THEIR_OWN = {"integrity", "references", "unfinished_indexes"}
# Turso lets nobody make an orphan where there is a foreign key, not even until the end of the transaction.
REFUSED_BY_TURSO = {"steps_without_run", "signals_without_run", "runs_without_parent", "runs_without_workflow"}


class _Undone(Exception):
    """Takes back what a crime did."""

    def __init__(self, report):
        self.report = report


async def after(store, *statements):
    """What the checker says after the statements, which are taken back."""

    async def commit_a_crime(db):
        for text in statements:
            changed = await db.execute(Query("crime", text))
            assert changed or not text.lstrip().startswith(("update", "insert", "delete")), (
                f"nothing to break: {text}"
            )
        raise _Undone(await invariants.check(db))

    with pytest.raises(_Undone) as undone:
        await store.database.perform(commit_a_crime, kind=Kind.UNIT, idempotent=False)
    return undone.value.report


def without_references(config):
    """The databases would not let orphans be made."""
    if config.backend != "postgres":
        return ("pragma defer_foreign_keys = on",)
    return (
        "alter table pgqrs_signals drop constraint pgqrs_signals_run_id_fkey",
        "alter table pgqrs_workflow_runs drop constraint pgqrs_workflow_runs_parent_run_id_fkey",
        "alter table pgqrs_workflow_runs drop constraint pgqrs_workflow_runs_workflow_id_fkey",
    )


async def test_nothing_is_broken_where_everything_has_happened_and_each_crime_is_named(store, clock, config):
    await lives.live(store, clock)

    report = await pgqrs.admin(store).check_invariants()
    assert report == [], str(report)
    assert {each.code for each in report.unjudged} <= {"I7", "I13", "I15"}

    assert set(CRIMES) == {each.query for each in invariants.QUESTIONS} - THEIR_OWN
    passed_over = THEIR_OWN | (REFUSED_BY_TURSO if config.backend == "turso" else set())
    for question in invariants.QUESTIONS:
        if question.query not in passed_over:
            prepared = without_references(config) if question.code == "I15" else ()
            report = await after(store, *prepared, *CRIMES[question.query])
            assert {each.code for each in report} == {question.code}, f"{question.query}: {report}"
            assert question.fact in [each.fact for each in report], f"{question.query}: {report}"


async def test_a_run_that_waits_for_several_things_is_awake_when_one_has_come(store, run):
    """The wait is one of several that `waiting_for` names, in whatever place."""

    async def handler(ctx, params):
        return await asyncio.gather(*(ctx.wait_for(name) for name in ("stop", "go", "going")))

    waiting = await run(handler)
    signal = """insert into pgqrs_signals (run_id, name, payload, created_at)
        select run_id, '{}', cast('1' as {{json}}), paused_at from pgqrs_workflow_runs"""
    reports = {name: await after(store, signal.format(name)) for name in ("stop", "go", "going", "other")}

    awake = "a run that waits for a signal which has come is awake"
    found = {name: [(each.fact, each.what) for each in report] for name, report in reports.items()}
    expected = [(awake, (f"run {waiting.run_id}",))]
    assert found == {"stop": expected, "go": expected, "going": expected, "other": []}


async def test_a_parent_of_several_children_that_have_all_ended_is_awake(store, run):
    await store.create_workflow("child")

    async def handler(ctx, params):
        return await ctx.map("child", [1, 2])

    parent = await run(handler)
    child = "(select {}(run_id) from pgqrs_workflow_runs where parent_run_id is not null)"
    end = (
        "delete from pgqrs_messages where run_id = {}",
        "update pgqrs_workflow_runs set status = 'CANCELLED', completed_at = updated_at where run_id = {}",
    )
    first = [each.format(child.format("min")) for each in end]
    both = [*first, *(each.format(child.format("max")) for each in end)]

    assert await after(store, *first) == []
    assert [(each.fact, each.what) for each in await after(store, *both)] == [
        ("a parent whose children have all ended is awake", (f"run {parent.run_id}",))
    ]
    either = "update pgqrs_workflow_runs set waiting_for = 'any of ' || waiting_for where parent_run_id is null"
    assert [each.what for each in await after(store, either, *first)] == [(f"run {parent.run_id}",)]


@pytest.mark.backends("sqlite")
@pytest.mark.breaks("I15")
async def test_an_index_that_lacks_a_row_is_named(store, config):
    await store.create_queue("tasks")
    await store.close()
    # SQLite itself would not leave a row out: the index is hidden while the row is written.
    hidden = "where name = 'pgqrs_messages_ready'"
    with closing(sqlite3.connect(config.path)) as file, file:
        file.execute("pragma writable_schema = on")
        row = file.execute(f"select * from sqlite_schema {hidden}").fetchone()
        file.execute(f"delete from sqlite_schema {hidden}")
    with closing(sqlite3.connect(config.path)) as file, file:
        file.execute("pragma writable_schema = on")
        file.execute(
            "insert into pgqrs_messages (queue_id, payload, visible_after, enqueued_at, max_attempts)"
            " values (1, '1', 0, 0, 3)"
        )
        file.execute("insert into sqlite_schema values (?, ?, ?, ?, ?)", row)

    async with pgqrs.connect_with(config) as reopened:
        [violation] = await pgqrs.admin(reopened).check_invariants()

    assert (violation.code, violation.fact) == ("I15", "the file is sound")
    assert "missing from index pgqrs_messages_ready" in str(violation)


@pytest.mark.backends("postgres")
async def test_an_index_that_was_never_finished_is_named(store, config):
    report = await after(
        store,
        f"""update pg_catalog.pg_index set indisvalid = false
            where indexrelid = '"{config.schema}".pgqrs_messages_ready'::regclass""",
    )

    assert [(each.code, each.what) for each in report] == [("I15", ("index pgqrs_messages_ready",))]


@pytest.mark.backends("postgres")
async def test_indexes_are_compared_with_their_tables_where_amcheck_is_installed(store):
    without = await pgqrs.admin(store).check_invariants()
    with_it = await after(store, "create extension amcheck schema pg_catalog")

    assert "I15" in {each.code for each in without.unjudged}
    assert with_it == []
    assert {each.code for each in with_it.unjudged} == {"I7", "I13"}


async def test_without_history_the_checker_says_what_it_cannot_judge(config, clock):
    async with pgqrs.connect_with(config.with_changes(audit="none"), install=True, clock=clock) as store:
        await lives.live(store, clock)
        report = await pgqrs.admin(store).check_invariants()

    assert report == []
    assert {"I2", "I14"} <= {each.code for each in report.unjudged}


async def test_a_violation_says_what_is_broken_and_how_much_of_it(store):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue_many([None] * 1_010)

    report = await after(store, "update pgqrs_messages set lease_token = -1")

    assert [(each.code, len(each.what), str(each.count)) for each in report] == [("I5", 20, "1,000+")]
    assert str(report).startswith(
        "I5: not true that a lease token grows with each lease, as attempts do (1,000+): message "
    )
    assert str(report).endswith(", ...")


async def test_runs_that_retention_has_removed_leave_nothing_broken_behind(store, clock):
    await lives.live(store, clock)
    clock.advance(days=400)
    kept = pgqrs.retention(store)
    for what in ("runs", "deleted_runs", "archived_messages", "events", "outbox", "workers", "schedule_slots"):
        await kept.keep(what, days=1)
    report = await kept.apply(gently=False)

    assert report.total > 20
    assert await pgqrs.admin(store).check_invariants() == []


@pytest.mark.breaks("I1")
async def test_the_look_after_each_test_finds_what_the_test_has_broken(store, config):
    await store.create_workflow("orphaned")
    run = await pgqrs.workflow("orphaned").trigger(None).execute(store)
    await check_invariants(config)
    await store.database.execute(Query("crime", "delete from pgqrs_messages"))

    with pytest.raises(AssertionError, match=f"I1.*run {run}"):
        await check_invariants(config)
