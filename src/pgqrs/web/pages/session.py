"""Logging in with a token, and out again: a browser gets a cookie for it."""

from __future__ import annotations

from starlette.responses import Response

from pgqrs.web.access import SESSION, SESSION_SECONDS, session_for
from pgqrs.web.pages.deeds import text
from pgqrs.web.pages.rendering import Frame, parameter, render_bare, see, seen
from pgqrs.web.problems import Problem
from pgqrs.web.routing import Asked, Endpoint


async def show(asked: Asked) -> Response:
    return _form(asked, parameter(asked, "back"))


async def log_in(asked: Asked) -> Response:
    tokens, given = asked.access.tokens, text(asked, "token")
    if tokens is None:
        return see(asked, "/")
    client = asked.request.client
    found = None if given is None else tokens.check(given, where="?" if client is None else client.host)
    if found is None:
        return _form(asked, text(asked, "back") or "", wrong=True)
    response = seen(asked, text(asked, "back"), done="", otherwise="/")
    response.set_cookie(
        SESSION,
        session_for(found),
        max_age=SESSION_SECONDS,
        path=_path(asked),
        secure=asked.request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


async def log_out(asked: Asked) -> Response:
    response = see(asked, "/login", done="session.end")
    response.delete_cookie(SESSION, path=_path(asked), httponly=True, samesite="strict")
    return response


def _form(asked: Asked, back: str, *, wrong: bool = False) -> Response:
    if asked.access.tokens is None and not asked.access.is_open:
        raise Problem(403, "unauthorized", "this application knows you by its own log-in", hint="log in there")
    frame = Frame(asked.request, asked.caller, asked.access)
    return render_bare(
        asked.request, "login.html", status=401 if wrong else 200, frame=frame, back=back, wrong=wrong,
        is_open=asked.access.is_open,
    )  # fmt: skip


def _path(asked: Asked) -> str:
    return Frame(asked.request).root or "/"


ENDPOINTS = (
    Endpoint("GET", "/login", show, None, "Log in", page=True),
    Endpoint("POST", "/login", log_in, None, "Log in", page=True),
    Endpoint("POST", "/logout", log_out, None, "Log out", page=True),
)
