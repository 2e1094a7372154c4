"""Logging in with a token, and out again: a browser gets a cookie for it."""

from __future__ import annotations

from starlette.responses import Response

from pgqrs.web.auth.login import begin_session, end_session
from pgqrs.web.pages.confirm import text
from pgqrs.web.pages.rendering import Frame, parameter, render_bare, see, seen
from pgqrs.web.problems import Problem
from pgqrs.web.routing import Endpoint, RequestContext


async def show(asked: RequestContext) -> Response:
    return _form(asked, parameter(asked, "back"))


async def log_in(asked: RequestContext) -> Response:
    given = text(asked, "token")
    response = seen(asked, text(asked, "back"), done="", otherwise="/")
    if given is None or not await begin_session(asked.request, asked.access, given, response):
        return _form(asked, text(asked, "back") or "", wrong=True)
    return response


async def log_out(asked: RequestContext) -> Response:
    response = see(asked, "/login", done="session.end")
    await end_session(asked.request, asked.access, response)
    return response


def _form(asked: RequestContext, back: str, *, wrong: bool = False) -> Response:
    if not asked.access.has_login:
        raise Problem(
            403,
            "unauthorized",
            "this dashboard has no log-in of its own: the application that it is part of decides who may use it",
            hint="log in to the application, then open the dashboard",
        )
    frame = Frame(asked.request, asked.caller, asked.access)
    return render_bare(
        asked.request, "login.html", status=401 if wrong else 200, frame=frame, back=back, wrong=wrong,
        is_local=asked.access.local,
    )  # fmt: skip


ENDPOINTS = (
    Endpoint("GET", "/login", show, None, "Log in", page=True),
    Endpoint("POST", "/login", log_in, None, "Log in", page=True),
    Endpoint("POST", "/logout", log_out, None, "Log out", page=True),
)
