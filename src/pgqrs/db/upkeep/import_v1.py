"""Executions of the former layout, copied into definitions and runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pgqrs.db.database import Database, Kind, Row, store_call
from pgqrs.db.queries import Query, load
from pgqrs.db.runs import transitions
from pgqrs.db.tables import workflows
from pgqrs.errors import ConfigError

_SQL = load(__package__, "import_v1")
_TABLE = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_BATCH = 500


async def import_v1(db: Database, *, workflows_table: str, steps_table: str, max_attempts: int) -> int:
    """How many executions were copied. Those copied before are passed over, so it may be run again."""
    executions = _over(_SQL["old_executions"], "old_workflows", workflows_table, db)
    steps = _over(_SQL["old_steps"], "old_steps", steps_table, db)
    copied, after = 0, ""
    while True:
        page = await _read(db, executions, after=after, most=_BATCH)
        if not page:
            return copied
        after = page[-1][0]
        theirs = await _read(db, steps, first=page[0][0], last=after)
        copied += await _copy(db, page, theirs, max_attempts=max_attempts)


@store_call(Kind.READ, idempotent=True)
async def _read(db: Database, /, query: Query, **params: Any) -> list[Row]:
    return await db.fetch(query, **params)


@store_call(Kind.UNIT, idempotent=True)
async def _copy(db: Database, page: Sequence[Row], steps: Sequence[Row], *, max_attempts: int) -> int:
    """One batch, all or nothing. What had not ended is pending here: a worker continues it from its last step."""
    definitions = {name: await workflows.create(db, name) for name in {row[1] for row in page}}
    given = []
    for old_id, name, status, input_, output, error, created, updated in page:
        ended = status in ("SUCCESS", "ERROR")
        given.append(
            (
                definitions[name].workflow_id,
                status if ended else "PENDING",
                input_,
                output,
                error,
                _time(created),
                _time(updated),
                _time(updated) if ended else None,
                max_attempts,
                f"v1:{old_id}",
            )
        )
    imported = await db.fetch(_SQL["import_runs"], given=given)
    run_ids = {key.removeprefix("v1:"): run_id for run_id, key, _ in imported}
    await _copy_steps(db, run_ids, steps)
    for run_id, _, status in imported:
        if status == "PENDING":
            await transitions.revive(db, run_id)
    return len(run_ids)


async def _copy_steps(db: Database, run_ids: dict[str, int], steps: Sequence[Row]) -> None:
    given, counts = [], dict.fromkeys(run_ids, 0)
    for old_id, step_id, status, input_, output, error, started, completed in steps:
        if old_id not in run_ids or status != "SUCCESS":
            continue
        given.append(
            (
                run_ids[old_id],
                step_id,
                counts[old_id],
                status,
                input_,
                output,
                error,
                _time(started),
                _time(completed),
            )
        )
        counts[old_id] += 1
    if given:
        await db.execute(_SQL["import_steps"], given=given)


def _over(query: Query, stands_for: str, table: str, db: Database) -> Query:
    """The query over the table named; identifiers cannot be bound, so they are checked and quoted."""
    if not _TABLE.fullmatch(table):
        raise ConfigError(f"table name {table[:60]!r} is not allowed", hint="use letters, digits and '_'")
    parts = table.split(".") if "." in table or not db.dialect.schema else [db.dialect.schema, table]
    quoted = ".".join(f'"{part}"' for part in parts)
    return Query(query.name, query.text.replace(f"from {stands_for}", f"from {quoted}"))


def _time(text: str | None) -> datetime | None:
    """Old rows hold what their database wrote: with a zone, or in UTC without saying so."""
    if text is None:
        return None
    moment = datetime.fromisoformat(re.sub(r"([+-]\d\d)$", r"\1:00", text))
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
