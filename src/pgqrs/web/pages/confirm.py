"""What can be done from a page: asked for first, on a page of its own or in a dialog, then done and told."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from starlette.responses import Response

from pgqrs.errors import ConfigError, PgqrsError, SerializationError
from pgqrs.web.api.shapes import API
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.rendering import Frame, parameter, render, seen
from pgqrs.web.problems import Problem, problem_of
from pgqrs.web.routing import Endpoint, RequestContext

# A purge or a bulk verb may take its time: nobody is told before it is done.
LONG_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Field:
    """Something that the form asks for."""

    name: str
    label: str
    kind: str = "text"
    hint: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What a confirmation says: one sentence, and what is good to know."""

    sentence: str
    facts: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class PageAction:
    """Something that changes a thing. `ask` says what will happen; `do` does it."""

    # run.cancel: the noun, and the verb that ends the address.
    name: str
    # The page of the thing: /runs/{run_id:int}.
    path: str
    button: str
    ask: Callable[[RequestContext], Awaitable[Confirmation]]
    do: Callable[[RequestContext], Awaitable[None]]
    scope: Scope = Scope.OPERATE
    is_destructive: bool = False
    seconds: float = 10.0

    @property
    def noun(self) -> str:
        return self.name.partition(".")[0]

    @property
    def verb(self) -> str:
        return self.name.partition(".")[2]


class Unclear(Exception):
    """Something in the form cannot be used; it is shown again, with what was given."""


def endpoints_of(page_actions: Sequence[PageAction], *, here: str) -> list[Endpoint]:
    """For each a page that asks, and what does it."""
    found = []
    for page_action in page_actions:
        found += [
            Endpoint(
                "GET",
                f"{page_action.path}/confirm/{page_action.verb}",
                _asking(page_action, here),
                Scope.READ,
                f"{page_action.button}: what it would do",
                page=True,
            ),
            Endpoint(
                "POST",
                f"{page_action.path}/{page_action.verb}",
                _doing(page_action, here),
                page_action.scope,
                page_action.button,
                page=True,
                seconds=page_action.seconds,
            ),
        ]
    return found


def _asking(page_action: PageAction, here: str) -> Callable[[RequestContext], Awaitable[Response]]:
    async def ask(asked: RequestContext) -> Response:
        return await _confirmation(asked, page_action, here, back=parameter(asked, "back"))

    return ask


def _doing(page_action: PageAction, here: str) -> Callable[[RequestContext], Awaitable[Response]]:
    async def do(asked: RequestContext) -> Response:
        back = text(asked, "back")
        try:
            await page_action.do(asked)
        except (Unclear, ConfigError, SerializationError) as error:
            check_may_see(asked)
            return await _confirmation(asked, page_action, here, back=back or "", error=error, given=asked.body)
        return seen(asked, back, done=page_action.name, otherwise=_page_of(asked, page_action))

    return do


def check_may_see(asked: RequestContext) -> None:
    """Raise before a form is shown again with what is wrong in it: both tell of the store, which not all may read."""
    if not asked.caller.may(Scope.READ):
        raise Problem(422, "bad-form", "the form cannot be used; nothing was done", hint=f"send JSON to {API}")


async def _confirmation(
    asked: RequestContext,
    page_action: PageAction,
    here: str,
    *,
    back: str,
    error: Exception | None = None,
    given: dict[str, Any] | None = None,
) -> Response:
    return await render(
        asked,
        "confirm.html",
        here=here,
        status=200 if error is None else 422,
        page_action=page_action,
        question=await page_action.ask(asked),
        action=_page_of(asked, page_action) + f"/{page_action.verb}",
        page=_page_of(asked, page_action),
        back=back,
        error=_told(error),
        given=given or {},
    )


def _page_of(asked: RequestContext, page_action: PageAction) -> str:
    """The address of the thing: that of the request without the verb at its end."""
    path = Frame(asked.request).path
    return quote(path.removesuffix(f"/confirm/{page_action.verb}").removesuffix(f"/{page_action.verb}"), safe="/:")


def _told(error: Exception | None) -> str | None:
    if error is None or isinstance(error, Unclear):
        return None if error is None else str(error)
    return problem_of(error).detail if isinstance(error, PgqrsError) else str(error)


# -- reading forms ---------------------------------------------------------------------------------------


def text(asked: RequestContext, name: str) -> str | None:
    """A field of the form; None when it is empty or not there."""
    value = (asked.body or {}).get(name)
    if isinstance(value, list):
        raise Problem(422, "bad-form", f"{name!r} is there twice")
    return (value or "").strip() or None


def texts(asked: RequestContext, name: str) -> list[str]:
    """Every field of that name: ticked boxes."""
    value = (asked.body or {}).get(name)
    return value if isinstance(value, list) else [] if value is None else [value]


def value(asked: RequestContext, name: str) -> Any:
    """A field that holds JSON; None when it is empty."""
    given = text(asked, name)
    if given is None:
        return None
    try:
        return json.loads(given, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise Unclear(f"{name} is no JSON: {error}. Text stands in double quotes.") from None


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
