"""The dashboard: a module for each page, rendered here, made lively by a little script."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope as Connection

from pgqrs.web.pages import (
    failures,
    inbox,
    outbox,
    overview,
    queues,
    run,
    runs,
    schedules,
    session,
    system,
    workers,
    workflows,
)
from pgqrs.web.pages.rendering import STATIC, Frame, render_bare
from pgqrs.web.problems import Problem
from pgqrs.web.routing import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *overview.ENDPOINTS,
    *runs.ENDPOINTS,
    *run.ENDPOINTS,
    *inbox.ENDPOINTS,
    *failures.ENDPOINTS,
    *workflows.ENDPOINTS,
    *queues.ENDPOINTS,
    *workers.ENDPOINTS,
    *schedules.ENDPOINTS,
    *outbox.ENDPOINTS,
    *system.ENDPOINTS,
    *session.ENDPOINTS,
)


class _Files(StaticFiles):
    """Kept by browsers for good: their addresses change when they do."""

    async def get_response(self, path: str, scope: Connection) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable"
        return response


def static() -> list[BaseRoute]:
    """Style and script: ours, from here, and nothing from anywhere else."""
    return [Mount("/static", _Files(directory=STATIC), name="static")]


async def show_problem(request: Request, problem: Problem, *, has_login: bool) -> Response:
    """A problem as a page, for people; who is not known is asked for a token, where tokens are taken."""
    if problem.status == 401 and request.method == "GET" and has_login:
        frame = Frame(request)
        return RedirectResponse(frame.url("/login", back=frame.address), 303)
    told: dict[str, Any] = {"problem": problem}
    response = render_bare(request, "problem.html", status=problem.status, **told)
    response.headers.update(problem.headers)
    return response
