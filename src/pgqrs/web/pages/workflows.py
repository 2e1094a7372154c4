"""Workflows: all of them in a line each; one with its last runs by step, how long steps take, and a new run."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from markupsafe import Markup
from starlette.responses import Response

from pgqrs.api.operations import workflow_list
from pgqrs.api.operations.metrics import workflow_metrics
from pgqrs.api.workflow import workflow as workflow_of
from pgqrs.db.tables import workflows as table
from pgqrs.db.views import run_details
from pgqrs.db.views.metrics import percentile
from pgqrs.db.views.run_details import Cell
from pgqrs.db.views.throughput import workflows_at_a_glance
from pgqrs.errors import ConfigError, InvalidArguments, SerializationError
from pgqrs.filters import RunFilter
from pgqrs.text.durations import parse_duration
from pgqrs.text.step_ids import work_of
from pgqrs.types import RunSummary, StepStatus
from pgqrs.web import pagination
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.confirm import Confirmation, PageAction, Unclear, check_may_see, endpoints_of, text
from pgqrs.web.pages.rendering import parameter, render, see
from pgqrs.web.pages.start_form import fields_of, input_of
from pgqrs.web.routing import Endpoint, RequestContext
from pgqrs.web.triggers import triggered

PAGE = 100
# Percentiles are of so many of the newest runs; the grid shows the newest of those.
_SAMPLED, _COLUMNS = 200, 50
_SHOWN_STEPS = 40
_WINDOW = timedelta(hours=24)
# Of the steps that share a name, the one that says most about the run.
_WORST = (StepStatus.ERROR, StepStatus.PAUSED, StepStatus.RUNNING, StepStatus.PENDING, StepStatus.SUCCESS)


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step over the last runs: a cell for each, None where it did not run; and how long it takes."""

    name: str
    cells: tuple[tuple[int, StepStatus | None, int], ...]
    runs: int
    failed: int
    p50_seconds: float | None
    p95_seconds: float | None

    @property
    def drawn(self) -> Markup:
        """The cells, made here: a template takes fifty times as long for them."""
        return Markup("").join(_drawn(status, min(attempts, 10)) for _, status, attempts in self.cells)


@functools.cache
def _drawn(status: StepStatus | None, attempts: int) -> Markup:
    match status:
        case None:
            return Markup('<td class="cell"></td>')
        case StepStatus.ERROR:
            mark = "✕"
        case StepStatus.SUCCESS:
            mark = str(attempts) if 1 < attempts < 10 else "·"
        case _:
            mark = "‖"
    return Markup('<td class="cell c-{}">{}</td>').format(status.lower(), mark)


async def show_all(asked: RequestContext) -> Response:
    found = await workflows_at_a_glance(
        await asked.store.ready(), window=_WINDOW.total_seconds(), limit=PAGE + 1, after=parameter(asked, "after")
    )
    return await render(
        asked,
        "workflows.html",
        here="workflows",
        workflows=found[:PAGE],
        next_after=found[PAGE - 1].workflow if len(found) > PAGE else None,
        is_first=not parameter(asked, "after"),
    )


async def show(asked: RequestContext, *, error: str | None = None, given: dict[str, Any] | None = None) -> Response:
    name = asked.path("name")
    found = await table.get(await asked.store.ready(), name)
    newest = await pagination.runs(asked.store, RunFilter(workflow=found.name), limit=_SAMPLED)
    cells = await run_details.cells(await asked.store.ready(), [run.run_id for run in newest])
    # The newest first, as in every list: what does not fit on a small screen is the oldest.
    columns: list[RunSummary] = newest[:_COLUMNS]
    return await render(
        asked,
        "workflow.html",
        here="workflows",
        status=200 if error is None else 422,
        workflow=found,
        metrics=await workflow_metrics(found.name, asked.store, window=_WINDOW),
        columns=columns,
        lines=step_lines(cells, [run.run_id for run in columns]),
        sampled=len(newest),
        page_actions=_DEEDS,
        error=error,
        given=given or {},
        fields=fields_of(await table.input_schema(await asked.store.ready(), found.name)),
    )


def step_lines(cells: Sequence[Cell], columns: Sequence[int]) -> list[StepLine]:
    """A line for each name, repetitions and branches (`fetch#2`, `fetch@1`) together, in the order of the steps."""
    by_name: dict[str, list[Cell]] = {}
    for cell in cells:
        by_name.setdefault(work_of(cell.step_id), []).append(cell)
    ordered = sorted(by_name.items(), key=lambda item: (min(cell.ordinal for cell in item[1]), item[0]))
    return [_line(name, mine, columns) for name, mine in ordered[:_SHOWN_STEPS]]


def _line(name: str, cells: Sequence[Cell], columns: Sequence[int]) -> StepLine:
    found: dict[int, list[Cell]] = {}
    for cell in cells:
        found.setdefault(cell.run_id, []).append(cell)
    seconds = sorted(cell.seconds for cell in cells if cell.seconds is not None and cell.status is StepStatus.SUCCESS)
    return StepLine(
        name=name,
        cells=tuple((run_id, *_worst(found.get(run_id, ()))) for run_id in columns),
        runs=len(found),
        failed=sum(any(cell.status is StepStatus.ERROR for cell in mine) for mine in found.values()),
        p50_seconds=_part(seconds, 0.50),
        p95_seconds=_part(seconds, 0.95),
    )


def _worst(cells: Sequence[Cell]) -> tuple[StepStatus | None, int]:
    """Its status, and in how many attempts."""
    if not cells:
        return None, 0
    worst = min(cells, key=lambda cell: _WORST.index(cell.status))
    return worst.status, max(cell.attempts for cell in cells)


def _part(ordered: Sequence[float], part: float) -> float | None:
    found = percentile(ordered, part)
    return None if found is None else found.total_seconds()


# -- a new run, pause and resume ---------------------------------------------------------------------------


async def trigger(asked: RequestContext) -> Response:
    """A new run, with what the form says; shown again when that cannot be."""
    name = asked.path("name")
    await table.get(await asked.store.ready(), name)
    try:
        params = input_of(asked, fields_of(await table.input_schema(await asked.store.ready(), name)))
        delay = _seconds(text(asked, "delay"))
        key = text(asked, "key")
        made = await triggered(asked, workflow_of(name).trigger(params, idempotency_key=key, delay=delay), key=key)
    except (Unclear, InvalidArguments, SerializationError) as error:
        check_may_see(asked)
        return await show(asked, error=str(error), given=asked.body)
    return see(asked, "/runs/{}", made.run_id, done="run.trigger")


def _seconds(given: str | None) -> float:
    """`15m` and its like."""
    try:
        return 0.0 if given is None else parse_duration(given).total_seconds()
    except ConfigError:
        raise Unclear(f"Begin in {given!r} is no length of time: write 90s, 15m, 2h or 7d.") from None


def _asking(sentence: str, *facts: str) -> Any:
    async def ask(asked: RequestContext) -> Confirmation:
        found = await table.get(await asked.store.ready(), asked.path("name"))
        return Confirmation(sentence.format(found.name), facts)

    return ask


async def _pause(asked: RequestContext) -> None:
    await workflow_list.pause_workflow(asked.store, asked.path("name"))


async def _resume(asked: RequestContext) -> None:
    await workflow_list.resume_workflow(asked.store, asked.path("name"))


_PAGE = "/workflows/{name}"
_DEEDS = {
    "pause": PageAction(
        "workflow.pause", _PAGE, "Pause",
        _asking("Pause workflow {}?", "No run of it begins or goes on until it is resumed; what runs now finishes."),
        _pause,
    ),
    "resume": PageAction("workflow.resume", _PAGE, "Resume", _asking("Let workflow {} go on?"), _resume),
}  # fmt: skip

ENDPOINTS = (
    Endpoint("GET", "/workflows", show_all, Scope.READ, "Workflows", page=True),
    Endpoint("GET", "/workflows/{name}", show, Scope.READ, "A workflow", page=True),
    Endpoint("POST", "/workflows/{name}/trigger", trigger, Scope.TRIGGER, "Start a run", page=True),
    *endpoints_of(list(_DEEDS.values()), here="workflows"),
)
