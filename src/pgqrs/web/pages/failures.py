"""Failures: grouped by what they have in common, with how many there were over time; a group is retried at once."""

from __future__ import annotations

from datetime import timedelta

from starlette.responses import Response

from pgqrs.api.operations.admin import admin
from pgqrs.errors import ConfigError
from pgqrs.filters import RunFilter
from pgqrs.reports import FailureGroup
from pgqrs.types import RunStatus
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.charts import spark
from pgqrs.web.pages.rendering import parameter, render
from pgqrs.web.problems import Problem
from pgqrs.web.routing import Endpoint, RequestContext

_WINDOWS = ("1h", "24h", "7d", "30d")
SHOWN = 100


async def show(asked: RequestContext) -> Response:
    word = parameter(asked, "since") or "24h"
    try:
        since = RunFilter.parse(f"since:{word}").created_after
    except ConfigError as error:
        raise Problem(422, "bad-request", str(error)) from None
    groups = await admin(asked.store).failures(since=since or timedelta(days=1), limit=SHOWN)
    return await render(
        asked,
        "failures.html",
        here="failures",
        since=word,
        windows=_WINDOWS,
        groups=[(group, spark(group.over_time), _filter(group, word)) for group in groups],
        capped=groups.capped,
        total=sum(group.count for group in groups),
    )


def _filter(group: FailureGroup, since: str) -> str:
    """The runs of the group, in the grammar: what its links and its retry go by."""
    wanted = RunFilter(
        status=RunStatus.ERROR,
        workflow=group.workflow if _is_plain(workflow=group.workflow) else None,
        # One that cannot be asked for finds no run: without it a retry would take all that failed.
        error_signature=group.error_signature if _is_plain(error_signature=group.error_signature) else "unreadable",
        completed_after=RunFilter.parse(f"since:{since}").created_after,
    )
    return str(wanted)


def _is_plain(**text: str | None) -> bool:
    """Whether the grammar takes it; a name that was written past us may hold anything."""
    try:
        RunFilter(**text)  # type: ignore[arg-type]
    except ConfigError:
        return False
    return True


ENDPOINTS = (Endpoint("GET", "/failures", show, Scope.READ, "Failures by what they have in common", page=True),)
