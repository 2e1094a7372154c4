"""The log of what was done through HTTP, a line each: who did what. Runs have it in their history, too."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import quote

from starlette.requests import Request

from pgqrs.errors import ConnectionFailed, PgqrsError, code_of
from pgqrs.web.auth.access import Caller, where
from pgqrs.web.problems import Problem

audit: logging.Logger = logging.getLogger("pgqrs.audit")


def tell_change(request: Request, caller: Caller, outcome: str = "") -> None:
    """Something was changed, or may have been: then `outcome` says how the request ended.

    The path is quoted: a name with a line break in it must not make a line of its own. It is the path that the routes
    see: `request.url` leaves out line breaks, and writes a question mark as the name `%3F` would be written.
    """
    path = quote(request.scope["path"], safe="/:@{}=,~")
    ending = f": {outcome}" if outcome else ""
    audit.info("%s %s by %s from %s%s", request.method, path, _name(caller), where(request), ending)


def outcome_of(status: int, *, handled: int) -> str:
    """How an answered request ended; "" for one that did what it says, once."""
    if status >= 400:
        return f"answered with {status}"
    return f"{handled:,} handled" if handled else ""


def outcome_of_error(error: BaseException, *, handled: int) -> str:
    """How a request ended whose handler gave no answer, and whether it may have changed something all the same."""
    match error:
        case TimeoutError() | Problem(code="too-slow"):
            ending, is_refusal = "timed out", False
        case asyncio.CancelledError():
            ending, is_refusal = "was interrupted", False
        case Problem():
            ending, is_refusal = f"ended with {error.code}", error.status < 500
        case PgqrsError():
            ending, is_refusal = f"ended with {code_of(error)}", not isinstance(error, ConnectionFailed)
        case _:
            ending, is_refusal = "failed", False
    if handled:
        return f"{ending} after {handled:,} were handled; more may have been"
    return ending if is_refusal else f"{ending}; it may have been done"


def tell_session(request: Request, caller: Caller, *, begins: bool, outcome: str = "") -> None:
    """A browser has got a session, or has ended it; `outcome` says what is missing to that."""
    ending = f": {outcome}" if outcome else ""
    audit.info("%s by %s from %s%s", "log-in" if begins else "log-out", _name(caller), where(request), ending)


def _name(caller: Caller) -> str:
    """As it is, unless an application gave one that could be taken for more than a name."""
    return caller.name if caller.name.isprintable() and " " not in caller.name else repr(caller.name)
