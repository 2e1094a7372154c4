"""Was a request made on purpose, or by another site's page in the caller's browser?

A browser says where a request comes from (Sec-Fetch-Site, Origin). Requests that change something also carry a header
or a form's field that a foreign page cannot send: either check alone has been circumvented before.
"""

from __future__ import annotations

import hmac
import re
import secrets
from hashlib import sha256
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pgqrs.web.auth.access import SAFE, Caller
from pgqrs.web.problems import Problem

# What a script sends to show that it is none of a foreign page's forms: those cannot set headers.
ON_PURPOSE = "x-pgqrs-request"
# The field of our own forms that a foreign page cannot know.
FORM_TOKEN = "form_token"  # noqa: S105 - the name of the field
# What that field is made from: a secret of the browser, so that any process can check what another one has shown.
FORM_COOKIE = "pgqrs_forms"
_KEY = re.compile(r"[A-Za-z0-9_-]{43}", re.ASCII)
_NEW_KEY = "pgqrs.form_key"


def check_reading(request: Request, *, is_page: bool) -> None:
    """Refuse a GET that another site's page has made: it must not read, or measure, through an operator's browser.

    Following a link to a page is allowed: the whole window goes there, and the other site sees nothing of it.
    """
    fetched = {name: request.headers.get(f"sec-fetch-{name}") for name in ("site", "mode", "dest")}
    is_link = is_page and (fetched["mode"], fetched["dest"]) == ("navigate", "document")
    if fetched["site"] != "none" and not is_link:
        check_same_site(request)


def check_same_site(request: Request) -> None:
    """Refuse a request that the browser attributes to another site; programs that are no browsers say nothing."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}".lower()
    if (site is not None and site != "same-origin") or (origin is not None and origin.lower() != own):
        raise Problem(403, "cross-site", "this request comes from another site; nothing was done")


def check_on_purpose(request: Request, caller: Caller, given: Any) -> None:
    """Refuse a change that a page of another site may have made the caller's browser send."""
    if request.method in SAFE:
        return
    check_same_site(request)
    # A bearer token only: what a browser adds by itself (Basic) shows nothing.
    if request.headers.get("authorization", "").lower().startswith("bearer ") or request.headers.get(ON_PURPOSE):
        return
    key = _given_key(request)
    expected = "" if key is None else _signed(key, caller)
    matches = isinstance(given, str) and hmac.compare_digest(expected.encode(), given.encode(errors="replace"))
    if key is None or not matches:
        raise Problem(
            403,
            "cross-site",
            "nothing shows that this request was made on purpose; nothing was done",
            hint=f"send a token, or the header {ON_PURPOSE}: 1; in a browser, load the page again",
        )


def form_token(request: Request, caller: Caller) -> str:
    """The value that our forms carry and no other site's page can know."""
    key = _given_key(request) or request.scope.setdefault(_NEW_KEY, secrets.token_urlsafe(32))
    return _signed(key, caller)


def keep_form_key(request: Request, response: Response) -> None:
    """Give the browser its key, when a form was made with a new one."""
    if key := request.scope.get(_NEW_KEY):
        set_private_cookie(request, response, FORM_COOKIE, key)


def set_private_cookie(
    request: Request, response: Response, name: str, value: str, *, max_age: int | None = None
) -> None:
    """A cookie that no script reads, and that no other site's page makes the browser send."""
    response.set_cookie(
        name,
        value,
        max_age=max_age,
        path=cookie_path(request),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


def cookie_path(request: Request) -> str:
    return str(request.scope.get("root_path", "")).rstrip("/") or "/"


def _given_key(request: Request) -> str | None:
    key = request.cookies.get(FORM_COOKIE, "")
    return key if _KEY.fullmatch(key) else None


def _signed(key: str, caller: Caller) -> str:
    return hmac.new(key.encode(), f"form.{caller.name}".encode(), sha256).hexdigest()
