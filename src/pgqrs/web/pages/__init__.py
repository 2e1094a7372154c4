"""The dashboard: a module for each page, rendered here, made lively by a little script."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from pgqrs.web.problems import Problem
from pgqrs.web.routing import Endpoint

HERE = Path(__file__).parent.parent

ENDPOINTS: tuple[Endpoint, ...] = ()


def static() -> list[BaseRoute]:
    """Style and script: ours, from here, and nothing from anywhere else."""
    return [Mount("/static", StaticFiles(directory=HERE / "static"), name="static")]


async def show_problem(request: Request, problem: Problem) -> Response:
    """A problem as a page, for people."""
    del request
    return problem.response()
