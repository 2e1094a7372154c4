"""What a database means to do with a statement."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pgqrs.api.store import Store
from pgqrs.db.queries import Query


async def explained(store: Store, query: Query, params: dict[str, Any]) -> list[str]:
    """The plan's nodes as one line each."""
    db = store.database
    if db.dialect.is_postgres:
        return await _generic_plan(db, query)
    rows = await db.fetch(Query("explain", f"explain query plan {query.text}"), **params)
    return [row[3] for row in rows]


async def _generic_plan(db: Any, query: Query) -> list[str]:
    """What a pinned connection plans for the statement as it is sent, whatever the arguments."""
    statement = query.compiled(db.dialect, "numbered")
    nothing = ", ".join(["null"] * len(statement.parameters))
    async with db._pool.acquire() as connection:
        await connection.execute(f"prepare explained as {statement.sql}")
        try:
            rows = await connection.fetch(f"explain (format json) execute explained({nothing})")
        finally:
            await connection.execute("deallocate explained")
    return list(_nodes(json.loads(rows[0][0])[0]["Plan"]))


def _nodes(plan: dict[str, Any]) -> Iterator[str]:
    yield " ".join(str(plan[key]) for key in ("Node Type", "Relation Name", "Index Name") if key in plan)
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
