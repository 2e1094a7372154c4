"""Logging a browser in, with a form or by the address that was printed at the start; and out again."""

from __future__ import annotations

from html import escape
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pgqrs.web.auth.access import Access, where
from pgqrs.web.auth.audit_log import tell_session
from pgqrs.web.auth.cross_site import cookie_path, set_private_cookie
from pgqrs.web.auth.sessions import SESSION_SECONDS
from pgqrs.web.problems import Problem

# In the address that `pgqrs serve` prints; taken only where the token is of this start.
TOKEN = "token"  # noqa: S105 - the name of the parameter


async def opened(request: Request, access: Access) -> Response | None:
    """The answer to an address with a token in it: a session, and the same address without the token.

    None when there is none, or where tokens are kept in a file: those live long, and addresses are kept by browsers.
    """
    given = request.query_params.get(TOKEN)
    if given is None or not access.local or request.method != "GET":
        return None
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != TOKEN]
    path = request.url.path + (f"?{urlencode(kept)}" if kept else "")
    if not is_own_path(path):
        path = cookie_path(request)
    response = _redirect(request, path)
    if not await begin_session(request, access, given, response):
        login = str(request.scope.get("root_path", "")).rstrip("/") + "/login"
        return RedirectResponse(login, 303)
    return response


async def begin_session(request: Request, access: Access, token: str, response: Response) -> bool:
    """Give the browser a session with the response; False for a wrong token."""
    found = None if access.tokens is None else access.tokens.admitted(token, where=where(request))
    if found is None:
        return False
    caller, begin = found
    cookie = await access.files.run(begin)
    set_private_cookie(request, response, access.session_cookie(request), cookie, max_age=SESSION_SECONDS)
    tell_session(request, caller, begins=True)
    return True


async def end_session(request: Request, access: Access, response: Response) -> None:
    """End it on the server, too: a copy of the cookie is worth nothing from now on. Say so where that failed."""
    name, tokens = access.session_cookie(request), access.tokens
    cookie = request.cookies.get(name)
    is_known = True
    if tokens is not None:
        # Whose session it is: the request itself may carry the token of another caller.
        caller = tokens.of_session(cookie)
        is_known = await access.files.run(lambda: tokens.end(cookie))
        if caller is not None:
            tell_session(request, caller, begins=False, outcome="" if is_known else "other servers do not know yet")
    forgetting = response if is_known else Response()
    forgetting.delete_cookie(name, path=cookie_path(request), httponly=True, samesite="strict")
    if is_known:
        return
    raise Problem(
        503,
        "log-out-not-written",
        "you are logged out of this server and this browser, but the log-out could not be written: other servers "
        "with the same tokens may still accept a copy of the cookie",
        hint="this server tries again; to end all sessions of a token now: pgqrs token revoke NAME",
        headers={"set-cookie": forgetting.headers["set-cookie"]},
    )


def is_own_path(address: str) -> bool:
    """Whether it is a path of ours: "//host" and "/\\host" would be another site's."""
    return address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()


def _redirect(request: Request, path: str) -> Response:
    """To the clean address.

    After a link of another site, or of a file, by a page: a browser does not send a SameSite=Strict cookie with a
    redirect that began elsewhere, but does when a page of ours leads on.
    """
    if request.headers.get("sec-fetch-site") in (None, "none", "same-origin"):
        return RedirectResponse(path, 303)
    there = escape(path, quote=True)
    return HTMLResponse(
        f'<!doctype html><title>pgqrs</title><meta http-equiv="refresh" content="0; url={there}">'
        f'<a href="{there}">Continue</a>'
    )
