"""What a request says, read strictly: JSON, forms and query parameters, refused rather than guessed at."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from pgqrs.web.problems import Problem, too_large

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
# As many runs as a page shows can be ticked, and then some.
MOST_FIELDS = 300
# A body that takes longer to arrive is held back on purpose, or its sender is gone.
BODY_SECONDS = 10.0
# Of a form that strangers may send: a token, and the address of the page to go to. Bodies are held in memory.
MOST_OPEN_BYTES = 16 * 1024


def content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def raw_body(request: Request, *, most: int | None = None) -> bytes:
    """Return all of it; raise 408 for one that takes too long to arrive, and 413 for more than `most` bytes."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.body() if most is None else await _short_body(request, most)
    except TimeoutError:
        raise Problem(
            408, "slow-body", f"the body did not arrive within {BODY_SECONDS:g} s", headers={"connection": "close"}
        ) from None


async def _short_body(request: Request, most: int) -> bytes:
    found = b""
    async for piece in request.stream():
        found += piece
        if len(found) > most:
            raise too_large(most)
    return found


async def json_body(request: Request, shape: type[msgspec.Struct]) -> Any:
    """The body as what the route takes; an empty one is an empty object."""
    raw = await raw_body(request)
    if raw and content_type(request) != JSON:
        raise Problem(415, "content-type", f"the body must be {JSON}")
    return converted(parsed(raw) if raw else {}, shape, "body")


def parsed(raw: bytes) -> Any:
    """JSON as RFC 8259 has it, and with every key once: two readers must not take it for two things."""
    try:
        return json.loads(raw.decode(), object_pairs_hook=_unique, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        detail = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise Problem(400, "bad-json", f"the body is no JSON that we take: {detail}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is larger than a number can be")
    return number


def converted(given: Any, shape: type[msgspec.Struct], where: str) -> Any:
    try:
        return msgspec.convert(given, shape, strict=where == "body")
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:
        # Half a character as a name: JSON can write it, nobody can store it.
        detail = "text that no database stores" if isinstance(error, UnicodeError) else str(error)
        raise Problem(422, "bad-request", f"{where}: {detail}", hint=_fields_of(shape, detail)) from None


def _fields_of(shape: type[msgspec.Struct], detail: str) -> str | None:
    """The fields, for a name that is none of them or one that is missing; further inside they are another shape's."""
    if " field `" not in detail or " - at `" in detail:
        return None
    names = [each.encode_name for each in msgspec.structs.fields(shape)]
    return f"it takes {', '.join(names)}" if names else "it takes no fields"


def query_pairs(request: Request) -> dict[str, Any]:
    """Query parameters; one that is there twice is refused, as nobody can know which was meant."""
    found: dict[str, Any] = {}
    for key, value in request.query_params.multi_items():
        if key in found:
            raise Problem(422, "bad-request", f"query: {key[:100]!r} is there twice")
        found[key] = value
    return found


async def form_fields(request: Request, *, most: int | None = None) -> dict[str, Any]:
    """The fields of a form; of one that is there twice (ticked boxes) all, as a list."""
    try:
        text = (await raw_body(request, most=most)).decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except ValueError:
        raise Problem(400, "bad-form", "the form cannot be read") from None
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: values[0] if len(values) == 1 else values for key, values in found.items()}
