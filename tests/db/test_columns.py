"""Rows are read by place: the columns of each statement are the fields that they are read into, in the same order."""

import dataclasses
import re
import sqlite3

import pytest

from pgqrs.db.dialect import Dialect
from pgqrs.db.runs import claims, restarts, settlement
from pgqrs.db.runs.records import STEP_COLUMNS, StepRecord
from pgqrs.db.tables import messages, queues, runs, workflows
from pgqrs.db.tables.messages import Lease
from pgqrs.db.views import run_details, run_facts, search
from pgqrs.types import RunSummary

pytestmark = pytest.mark.backends("sqlite", "postgres")


def fields_of(kind, *, until=None, **named):
    """The fields of a tuple or a dataclass up to one of them; `named` are those whose column is called otherwise."""
    names = list(getattr(kind, "_fields", None) or [each.name for each in dataclasses.fields(kind)])
    names = names[: len(names) if until is None else names.index(until) + 1]
    return [named.get(name, name) for name in names]


LEASED = fields_of(Lease, until="lease_token")
RUN = fields_of(runs.RunRow, workflow="name", progress="headers")
COLUMNS = {
    "start_runs": (claims, list(claims.START_COLUMNS)),
    "lease_run": (claims, LEASED),
    "lease_due_runs": (claims, LEASED),
    "take_messages": (messages, LEASED),
    "get_run": (runs, RUN),
    "get_runs": (runs, RUN),
    "list_steps": (runs, fields_of(runs.StepRow)),
    "steps_of_runs": (runs, ["run_id", *fields_of(runs.RecordedStep)]),
    "steps_in_brief": (runs, ["run_id", *fields_of(runs.BriefStep)]),
    "lock_runs": (restarts, fields_of(restarts.EndedRun)),
    "timeline": (run_details, fields_of(run_details.TimedStep)),
    "facts_of_run": (
        run_facts,
        fields_of(
            run_facts.RunFacts,
            until=run_facts.RUN_COLUMNS[-1],
            workflow="name",
            queue="name",
            queue_paused_at="paused_at",
            holder="hostname",
        ),
    ),
    "steps_under_way": (run_facts, fields_of(run_facts.OpenStep)),
    "failures_in_window": (search, fields_of(search.FailureBucket)),
    "newest_failures": (search, fields_of(search.FailureBucket)),
    "summaries": (
        search,
        fields_of(RunSummary, workflow="name", attributes_text="attributes", progress_text="headers"),
    ),
    "list_queues": (queues, fields_of(queues.Queue)),
    "list_workflows": (workflows, fields_of(workflows.WorkflowRow, until="paused_at")),
}
ON_POSTGRES = {
    "claim_runs": (claims, list(claims.CLAIM_COLUMNS)),
    "lease_messages": (messages, fields_of(Lease, until="due_at", taken_from="leased_by")),
    "lease_limited_messages": (messages, fields_of(Lease, until="due_at", taken_from="leased_by")),
}


async def _columns(store, query):
    """What the database calls the statement's columns."""
    db = store.database
    if db.dialect.is_postgres:
        async with db._pool.acquire() as connection:
            prepared = await connection.prepare(query.compiled(db.dialect, "numbered").sql)
            return [column.name for column in prepared.get_attributes()]
    statement = query.compiled(Dialect("sqlite"), "named")
    connection = sqlite3.connect(store.config.path)
    try:
        cursor = connection.execute(statement.sql, {each.key: 0 for each in statement.parameters})
        return [column[0] for column in cursor.description]
    finally:
        connection.rollback()
        connection.close()


@pytest.mark.parametrize("name", COLUMNS)
async def test_the_columns_of_a_statement_are_the_fields_that_they_are_read_into(store, name):
    module, fields = COLUMNS[name]

    assert await _columns(store, module._SQL[name]) == fields


@pytest.mark.backends("postgres")
@pytest.mark.parametrize("name", ON_POSTGRES)
async def test_the_columns_of_a_statement_for_postgres_are_the_fields(store, name):
    module, fields = ON_POSTGRES[name]

    assert await _columns(store, module._SQL[name]) == fields


_GIVEN = re.compile(r"\{rows (?:given|steps): ([^}]*step_id text[^}]*sequence int)\}")


@pytest.mark.backends("sqlite")
def test_the_columns_that_record_steps_are_the_fields_of_a_step():
    texts = [text for query in settlement._SQL.values() for text in (query.text, query.postgres_text) if text]
    given = {match[1] for text in texts for match in _GIVEN.finditer(text)}
    columns = {tuple(each.split()[0] for each in listed.split(", ") if "id id" not in each and "token" not in each) for listed in given}  # fmt: skip

    assert columns == {StepRecord._fields[:STEP_COLUMNS]}
