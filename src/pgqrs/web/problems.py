"""Errors as RFC 9457 problems: one way out for everything that goes wrong while a request is answered."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from pgqrs import errors

log: logging.Logger = logging.getLogger("pgqrs.web")

CONTENT_TYPE = "application/problem+json"
# The first that fits.
_STATUS: tuple[tuple[type[errors.PgqrsError], int], ...] = (
    (errors.RunDeleted, 410),
    (errors.NotFound, 404),
    (errors.InvalidTransition, 409),
    (errors.IdempotencyConflict, 409),
    (errors.NoActiveWorker, 409),
    (errors.PayloadTooLarge, 413),
    (errors.SerializationError, 422),
    (errors.ConfigError, 422),
    (errors.ExecutionFailed, 409),
    (errors.RunCancelled, 409),
    (errors.WaitTimeout, 504),
    (errors.ConnectionFailed, 503),
    (errors.SchemaNotInstalled, 503),
    (errors.SchemaMismatch, 503),
    (errors.StorePromoted, 503),
)


# What callers without the scope `read` are told of things in the store.
_BARE = {
    404: "there is nothing of that name or number",
    409: "the state of what is there forbids it",
    410: "it is not there any more",
}


class Problem(Exception):
    """What is wrong, as it is answered; `more` are further members."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.hint = hint
        self.headers: dict[str, str] = dict(headers or {})
        self.more = more

    def body(self) -> dict[str, Any]:
        found = {"type": "about:blank", "title": self.code, "status": self.status, "code": self.code}
        found["detail"] = self.detail
        if self.hint is not None:
            found["hint"] = self.hint
        return {**found, **self.more}

    def without_details(self) -> Problem:
        """The same for a caller who may not read: no names, no statuses, no suggestion; its code is enough."""
        detail = _BARE.get(self.status)
        return self if detail is None else Problem(self.status, self.code, detail, headers=self.headers)

    def response(self) -> Response:
        return Response(as_json(self.body()), self.status, self.headers, CONTENT_TYPE)


def too_large(most: int) -> Problem:
    return Problem(413, "too-large", f"the body has more than {most:,} bytes")


def as_json(thing: Any) -> bytes:
    """UTF-8; half a character, which UTF-8 cannot hold, as its escape."""
    try:
        return msgspec.json.encode(thing)
    except UnicodeEncodeError:
        return json.dumps(thing, default=_parsed).encode()


def _parsed(thing: Any) -> Any:
    if isinstance(thing, msgspec.Raw):
        return json.loads(bytes(thing))
    raise TypeError(f"{type(thing).__name__} is no JSON")


def problem_of(error: Exception) -> Problem:
    """Any error as a problem. What tells of our insides is logged under an id, and told only by that id."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HTTPException):
        return Problem(error.status_code, _word(error.detail), error.detail, headers=error.headers)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if status == 503:
        # Its text names hosts, files and statements: those are for the log.
        error_id = logged("the database cannot be used", error)
        what = "the database cannot be used just now"
        hint = "try later; the log has the reason under error_id"
        headers = {"retry-after": "5"}
        return Problem(503, _code(error), what, hint=hint, headers=headers, error_id=error_id)
    if status != 500:
        problem, way_out = _parts(error)
        return Problem(status, _code(error), problem, hint=way_out)
    if isinstance(error, TimeoutError):
        return Problem(503, "too-slow", "the database did not answer in time", hint="narrow the filter, or try later")
    error_id = logged("request failed unexpectedly", error)
    what = "something went wrong here"
    return Problem(500, "unexpected", what, hint="the log has it under error_id", error_id=error_id)


def _parts(error: Exception) -> tuple[str, str | None]:
    return (error.problem, error.hint) if isinstance(error, errors.PgqrsError) else (str(error), None)


def logged(what: str, error: Exception) -> str:
    """Log what went wrong inside; return the id under which the log has it, which may be told to anyone."""
    error_id = secrets.token_hex(8)
    log.error("%s (error id %s)", what, error_id, exc_info=error)
    return error_id


def _code(error: Exception) -> str:
    return errors.code_of(error) if isinstance(error, errors.PgqrsError) else "unexpected"


def _word(detail: str) -> str:
    return detail.lower().replace(" ", "-")
