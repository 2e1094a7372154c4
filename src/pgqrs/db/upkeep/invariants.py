"""What must hold of any database at rest, asked of its tables: the rows that break it, in read-only questions.

    I1   what was acknowledged is there, and somebody will come to it      I9   the outbox: once, in each run's order
    I2   a run ends once, and nothing comes after it                       I10  one run for each idempotency key
    I3   a succeeded step has its result                                   I11  a slot fires once, and not too early
    I4   what a run says of itself agrees with how it stands               I12  after a cancel nothing new begins
    I5   lease tokens only grow                                            I14  a signal is read once, in order
    I6   one lease for each run, to one worker                             I15  no orphans, sound indexes
    I8   leases are counted, and never more than allowed

I7 (effects) and I13 (leaks) are outside of the tables. Each question is a transaction of its own: the checker holds
up nobody, and may be used while workers work. What time has to do with it is told by the times on record, never by
the present, so that a hand-set clock does not matter.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pgqrs.audit import EventType
from pgqrs.db.database import Database, Kind, Row, store_call
from pgqrs.db.queries import Query, load
from pgqrs.db.runs.transitions import PUT_AWAY_SECONDS
from pgqrs.errors import PgqrsError
from pgqrs.reports import CappedCount, InvariantReport, Unjudged, Violation

_SQL = load(__package__, "invariants")

_FIRST_TABLE = re.compile(r"^from (pgqrs_\w+)", re.MULTILINE)

# Enough to see what is wrong; the count says how much of it there is.
_MOST_SHOWN = 20
_MOST_COUNTED = 1_000

_RUN = "run {}"
_MESSAGE = "message {}"
_STEP = "step {1!r} of run {0}"
_SIGNAL = "signal {}"
_EVENT = "outbox event {}"
_SLOT = "slot {1} of schedule {0}"
_INDEX = "index {}"

_SOUND = "every index is what its table says"

_OUTSIDE = (
    Unjudged("I7", "effects happen outside of the database; count them where they happen"),
    Unjudged("I13", "connections, threads and tasks belong to processes, not to the database"),
)
# What PostgreSQL says of an index that is not what its table says, and of somebody who may not look.
_CORRUPTED = ("XX001", "XX002")
_NOT_ALLOWED = "42501"


class Invariant(NamedTuple):
    """A fact that must hold, the query that finds what breaks it, and how to name what it finds."""

    code: str
    fact: str
    query: str
    what: str
    # The history tells, where events of this kind are kept.
    needs: EventType | None = None
    on: Literal["postgres", "sqlite"] | None = None

    @property
    def table(self) -> str | None:
        """Where it begins to read: when nothing is there, nothing can be broken."""
        found = _FIRST_TABLE.search(_SQL[self.query].text)
        return found.group(1) if found else None


QUESTIONS = (
    Invariant("I1", "a run that has not ended has a message: somebody comes to it", "runs_without_message", _RUN),
    Invariant("I1", "the message of a run is in its workflow's queue", "messages_in_another_queue", _RUN),
    Invariant("I1", "a run that waits for a signal which has come is awake", "signals_that_woke_nobody", _RUN),
    Invariant("I1", "a parent whose children have all ended is awake", "children_that_woke_nobody", _RUN),
    Invariant(
        "I2", "after a run's end nothing happens but a restart", "events_after_the_end", _RUN, needs=EventType.FAILED
    ),
    Invariant("I2", "a run ended as its history says", "ends_of_another_kind", _RUN, needs=EventType.FAILED),
    Invariant("I2", "no step is recorded after its run has ended", "steps_after_the_end", _STEP),
    Invariant("I3", "a succeeded step has a result, no error, and a time", "steps_without_result", _STEP),
    Invariant("I3", "a failed step has an error and a time", "failed_steps_without_error", _STEP),
    Invariant("I4", "no two steps of a handler stand at the same place", "steps_at_one_place", _STEP),
    Invariant("I4", "an ended run was begun, and has what belongs to its end", "ends_without_result", _RUN),
    Invariant("I4", "a run that has not ended has no result", "results_without_end", _RUN),
    Invariant("I4", "a paused run says since when", "pauses_since_never", _RUN),
    Invariant("I4", "a run that has ended has no message", "messages_of_ended_runs", _RUN),
    Invariant("I5", "a lease token grows with each lease, as attempts do", "tokens_behind_attempts", _MESSAGE),
    Invariant("I5", "an archived message was leased", "archived_without_lease", _MESSAGE),
    Invariant("I6", "a run has no more than one message", "messages_of_one_run", _RUN),
    Invariant("I6", "a leased run is running, in the hands of the same worker", "leases_that_differ", _RUN),
    Invariant("I6", "no message is live and archived", "live_and_archived", _MESSAGE),
    Invariant("I8", "attempts lie between 0 and max_attempts", "attempts_out_of_bounds", _MESSAGE),
    Invariant("I8", "a run's attempts are counted, up to max_attempts", "run_attempts_out_of_bounds", _RUN),
    Invariant("I8", "a run and its message agree on attempts", "attempts_that_differ", _RUN),
    Invariant("I9", "no event is published and dead", "events_published_and_dead", _EVENT),
    Invariant("I9", "a dead event was tried, and says why it failed", "events_dead_untried", _EVENT),
    Invariant("I9", "the events of a run are taken in their order", "events_overtaken", _EVENT),
    Invariant("I9", "each event has an id of its own", "events_of_one_id", _EVENT),
    Invariant("I10", "an idempotency key belongs to one run", "runs_of_one_key", "key {!r}"),
    Invariant("I11", "a slot has fired when it has a run, and only then", "slots_and_runs", _SLOT),
    Invariant("I11", "a run belongs to one slot", "slots_of_one_run", _RUN),
    Invariant("I11", "no slot comes before its time", "slots_before_their_time", _SLOT),
    Invariant("I12", "no step is recorded after its run was cancelled", "steps_after_the_cancel", _STEP),
    Invariant("I12", "no child begins after its parent was cancelled", "children_after_the_cancel", _RUN),
    Invariant("I14", "signals of one name are read in their order", "signals_passed_over", _SIGNAL),
    Invariant(
        "I14", "a signal that was read is a step's result", "signals_without_step", _RUN, needs=EventType.CREATED
    ),
    Invariant("I15", "every live message has its queue", "messages_without_queue", _MESSAGE),
    Invariant("I15", "every archived message has its queue", "archived_without_queue", _MESSAGE),
    Invariant("I15", "every message of a run has its run", "messages_without_run", _MESSAGE),
    Invariant("I15", "every step has its run", "steps_without_run", _STEP),
    Invariant("I15", "every signal has its run", "signals_without_run", _SIGNAL),
    Invariant("I15", "every event has its run", "events_without_run", _RUN),
    Invariant("I15", "every attribute has its run", "attributes_without_run", _RUN),
    Invariant("I15", "every event that is to be published has its run", "unpublished_without_run", _EVENT),
    Invariant("I15", "every parent is there", "runs_without_parent", _RUN),
    Invariant("I15", "every run has its workflow", "runs_without_workflow", _RUN),
    Invariant("I15", "the file is sound", "integrity", "{}", on="sqlite"),
    Invariant("I15", "what refers to something finds it", "references", "row {1} of {0}", on="sqlite"),
    Invariant("I15", "every index is complete", "unfinished_indexes", _INDEX, on="postgres"),
)


async def check(db: Database) -> InvariantReport:
    """What is broken, and what could not be judged."""
    here = "postgres" if db.dialect.is_postgres else "sqlite"
    violations: list[Violation] = []
    unjudged = [*_OUTSIDE]
    used = {row[0] for row in await _ask(db, "tables_in_use")}
    for question in QUESTIONS:
        if question.on not in (None, here):
            continue
        if question.needs is not None and question.needs not in db.audit_policy.kept:
            reason = f"{question.fact}: events of the type {question.needs!s} are not kept (Config.audit)"
            unjudged.append(Unjudged(question.code, reason))
            continue
        if question.table not in (None, *used):
            continue
        rows = await _ask(db, question.query)
        if rows:
            violations.append(_violation(question, rows))
    if db.dialect.is_postgres:
        broken, unknown = await _check_btrees(db)
        violations += broken
        unjudged += unknown
    return InvariantReport(violations, tuple(unjudged))


@store_call(Kind.READ, idempotent=True)
async def _ask(db: Database, query: str) -> list[Row]:
    rows = await db.fetch(_SQL[query], most=_MOST_COUNTED + 1, put_away=PUT_AWAY_SECONDS, schema=db.dialect.schema)
    return [row for row in rows if tuple(row) != ("ok",)] if query == "integrity" else rows


def _violation(question: Invariant, rows: list[Row]) -> Violation:
    return Violation(
        question.code,
        question.fact,
        tuple(question.what.format(*row) for row in rows[:_MOST_SHOWN]),
        CappedCount(min(len(rows), _MOST_COUNTED), capped=len(rows) > _MOST_COUNTED),
    )


# -- PostgreSQL: are the indexes what their tables say? --------------------------------------------------


async def _check_btrees(db: Database) -> tuple[list[Violation], list[Unjudged]]:
    found = await _ask(db, "amcheck")
    if not found:
        return [], [Unjudged("I15", f"{_SOUND}: for that, `create extension amcheck`")]
    query = _SQL["check_btree"]
    # A name of the catalogue's, quoted: identifiers cannot be bound.
    schema = '"' + found[0][0].replace('"', '""') + '"'
    check_one = Query(query.name, query.text.replace("its_schema", schema))
    broken: list[str] = []
    for oid, name in await _ask(db, "btrees"):
        try:
            await _look_at(db, check_one, oid)
        except PgqrsError as error:
            said = getattr(error.__cause__, "sqlstate", None)
            if said == _NOT_ALLOWED:
                return [], [
                    Unjudged("I15", "whether indexes are what their tables say: this user may not use amcheck")
                ]
            if said not in _CORRUPTED:
                raise
            broken.append(f"index {name}: {error.__cause__}")
    if not broken:
        return [], []
    return [Violation("I15", _SOUND, tuple(broken[:_MOST_SHOWN]), CappedCount(len(broken), capped=False))], []


@store_call(Kind.READ, idempotent=True)
async def _look_at(db: Database, query: Query, oid: int) -> None:
    await db.fetch(query, index=oid)
