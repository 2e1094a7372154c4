"""How a database would run a statement, as one line for each node of its plan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pgqrs.db.driver import Driver
from pgqrs.db.queries import Query


async def nodes_of(db: Driver, query: Query, params: Mapping[str, Any]) -> list[str]:
    if db.dialect.is_postgres:
        # What a pinned connection plans, for the statement as it is sent.
        text = query.postgres_text or query.text
        rows = await db.fetch(Query("explain", f"explain (format json) {text}"), **params)
        return list(_nodes(json.loads(rows[0][0])[0]["Plan"]))
    rows = await db.fetch(Query("explain", f"explain query plan {query.text}"), **params)
    return [row[3] for row in rows]


def _nodes(plan: Mapping[str, Any]) -> Iterator[str]:
    yield " ".join(str(plan[key]) for key in ("Node Type", "Relation Name", "Index Name") if key in plan)
    for child in plan.get("Plans", ()):
        yield from _nodes(child)
