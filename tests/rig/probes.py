"""Asks everything that can be asked about the rows of a store: each page, each GET of the API, each list to its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from pgqrs.api.store import Store
from pgqrs.db.queries import Query
from pgqrs.web import Caller, RateLimit, Scope, app
from pgqrs.web.application import endpoints
from rig.asgi import Answered, Browser

# Without an end; it has tests of its own.
_ENDLESS = {"/stream"}
_ASKING_FOR_MORE = {"/runs/bulk", "/login"}
_NAMES = {
    "run_id": "select run_id from pgqrs_workflow_runs order by run_id",
    "worker_id": "select worker_id from pgqrs_workers order by worker_id",
    "workflow": "select name from pgqrs_workflows order by workflow_id",
    "queue": "select name from pgqrs_queues order by queue_id",
    "schedule": "select name from pgqrs_schedules order by schedule_id",
}
_QUERIES = {
    "/api/v1/runs": ("q=status%3Aerror", "q=deleted%3Aany", "q=attr%3Aa%3Db", "q=text%3Ax"),
    "/runs": ("q=status%3Aerror", "q=deleted%3Aany", "q=text%3Ax", "q=since%3A24h"),
    "/workflows/{name}": ("since=7d",),
}
ACTIONS = ("cancel", "restart", "retry-children", "resume", "pause", "reset", "delete", "restore")


async def caller(request: Any) -> Caller:
    return Caller("probe", frozenset(Scope))


class Probe:
    """A browser, and how often each status was answered; a 500 is an AssertionError that names the request."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._browser = Browser(app(store, authorize=caller, read_only=False, rate=RateLimit(0)))
        self.statuses: Counter[int] = Counter()
        self.broken: dict[str, str] = {}

    async def ask_everything(self, *, most_of_each: int) -> None:
        """Every GET of the table, with so many of the rows that it can be asked about."""
        known = {name: await self._known(sql) for name, sql in _NAMES.items()}
        for endpoint in endpoints(dashboard=True):
            if endpoint.method == "GET" and endpoint.path not in _ENDLESS:
                # A list shows its rows, whatever is in them.
                must = "{" not in endpoint.path and endpoint.path not in _ASKING_FOR_MORE
                for target in _targets(endpoint.path, known, most_of_each):
                    await self.get(target, must=must)
                    for query in _QUERIES.get(endpoint.path, ()):
                        await self.get(f"{target}?{query}")

    async def read_lists(self, *, pages: int) -> None:
        """Every list, page after page."""
        for path in (
            "/api/v1/runs",
            f"/api/v1/queues/{quote('tasks')}/messages",
            "/api/v1/queues/tasks/dead",
            "/api/v1/outbox",
        ):
            cursor: str | None = ""
            for _ in range(pages):
                answered = await self.get(f"{path}?limit=20&cursor={quote(cursor)}" if cursor else f"{path}?limit=20")
                if answered.status != 200:
                    break
                cursor = json.loads(answered.content).get("next_cursor")
                if not cursor:
                    break

    async def act(self, run_ids: Iterable[int]) -> None:
        """Every verb on each run."""
        for run_id in run_ids:
            for verb in ACTIONS:
                await self.post(f"/api/v1/runs/{run_id}/{verb}", {})

    async def get(self, target: str, *, must: bool = False) -> Answered:
        """With `must`, anything but 200 is broken, too."""
        accept = "*/*" if "/api/" in target else "text/html"
        return self._counted(f"GET {target}", await self._browser.get(target, accept=accept), must=must)

    async def post(self, target: str, body: Any) -> Answered:
        text = json.dumps(body).encode()
        headers = {"content-type": "application/json", "content-length": str(len(text)), "x-pgqrs-request": "1"}
        return self._counted(f"POST {target}", await self._browser._ask("POST", target, text, headers))

    def _counted(self, what: str, answered: Answered, *, must: bool = False) -> Answered:
        self.statuses[answered.status] += 1
        if answered.status >= 500 or (must and answered.status != 200):
            self.broken[what] = f"{answered.status} {answered.content[:300]!r}"
        return answered

    async def _known(self, sql: str) -> list[str]:
        return [str(row[0]) for row in await self._store.database.fetch(Query("known", sql))]


def _targets(path: str, known: dict[str, Sequence[str]], most: int) -> list[str]:
    kind = next((name for name in known if f"{{{name}" in path), None)
    if kind is None and "{name}" in path:
        kind = {"workflows": "workflow", "queues": "queue", "schedules": "schedule"}[path.split("/")[1]]
    if kind is None:
        return [path]
    values = known[kind]
    step = max(1, len(values) // most)
    place = path[path.index("{") : path.index("}") + 1]
    return [path.replace(place, quote(value, safe="")) for value in values[::step][:most]]
