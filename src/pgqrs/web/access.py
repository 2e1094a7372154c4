"""Who asks, and what they may do: scopes, callers, and whether a request was made on purpose.

A caller is found by a bearer token, by the session that a browser got for one, by the application that we are
mounted into (`authorize`), or, where none of that is configured, is whoever can reach a loopback address.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING

from starlette.requests import Request

from pgqrs.errors import ConfigError
from pgqrs.web.problems import Problem

if TYPE_CHECKING:
    from pgqrs.web.tokens import Tokens

SESSION = "pgqrs_session"
SESSION_SECONDS = 12 * 3600
# What a script sends to show that it is none of a foreign page's forms: those cannot set headers.
ON_PURPOSE = "x-pgqrs-request"
# The field of our own forms that a foreign page cannot know.
FORM_TOKEN = "form_token"  # noqa: S105 - the name of the field
SAFE = frozenset({"GET", "HEAD"})
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Scope(StrEnum):
    """What a token is for. A producer's `trigger` cannot read; `operate` and `admin` can."""

    READ = "read"
    TRIGGER = "trigger"
    OPERATE = "operate"
    ADMIN = "admin"


_IMPLIED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.TRIGGER: frozenset({Scope.TRIGGER}),
    Scope.OPERATE: frozenset({Scope.READ, Scope.TRIGGER, Scope.OPERATE}),
    Scope.ADMIN: frozenset(Scope),
}


def implied(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """These and what they include."""
    return frozenset().union(*(_IMPLIED[Scope(each)] for each in scopes))


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever asks; `name` is the actor in the history of what they do."""

    name: str
    scopes: frozenset[Scope]
    # What signs this caller's forms and sessions; the token's hash, so that both end with the token.
    secret: bytes = b""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes


Authorize = Callable[[Request], Awaitable[Caller | None]]


@dataclass(frozen=True, slots=True)
class Access:
    """How the application is guarded, fixed when it is made."""

    tokens: Tokens | None = None
    authorize: Authorize | None = None
    read_only: bool = True
    hosts: frozenset[str] = frozenset(LOOPBACK)
    # Signs the forms of callers without a token; gone with the process.
    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))

    def __post_init__(self) -> None:
        foreign = sorted(self.hosts - set(LOOPBACK))
        if foreign and self.tokens is None and self.authorize is None:
            raise ConfigError(
                f"host {foreign[0]!r} can be reached by others, and nobody would be asked who they are; "
                "give tokens (`pgqrs token create`) or authorize"
            )

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked who they are."""
        return self.tokens is None and self.authorize is None

    async def caller_of(self, request: Request) -> Caller | None:
        """Who asks; None when they did not say, a Problem when what they said is wrong."""
        if self.authorize is not None:
            return await self.authorize(request)
        if self.tokens is None:
            return Caller("local", frozenset(Scope), self.secret)
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind:
            if kind.lower() != "bearer" or not given:
                raise Problem(401, "unauthorized", "Authorization must be `Bearer <token>`")
            found = self.tokens.check(given.strip(), where=_where(request))
            if found is None:
                raise Problem(401, "unauthorized", "this token is unknown or was revoked", hint="pgqrs token create")
            return found
        return self._of_session(request.cookies.get(SESSION))

    def _of_session(self, cookie: str | None) -> Caller | None:
        """name.until.signature, signed with what belongs to the token: a revoked token ends its sessions."""
        name, _, rest = (cookie or "").partition(".")
        until, _, signature = rest.partition(".")
        if self.tokens is None or not until.isdecimal() or len(until) > 12 or int(until) < time.time():
            return None
        found = self.tokens.named(name)
        if found is None or not hmac.compare_digest(_signed(found.secret, f"session.{name}.{until}"), signature):
            return None
        return found


def session_for(caller: Caller) -> str:
    """The cookie of a browser that showed a token."""
    until = int(time.time()) + SESSION_SECONDS
    return f"{caller.name}.{until}." + _signed(caller.secret, f"session.{caller.name}.{until}")


def form_token(caller: Caller, access: Access) -> str:
    """What our forms carry and nobody else's page can know."""
    return _signed(caller.secret or access.secret, f"form.{caller.name}")


def check_on_purpose(request: Request, caller: Caller, access: Access, given: str | None) -> None:
    """Refuses what a page of somebody else may have made the caller's browser send.

    The browser says where a request comes from (Sec-Fetch-Site, Origin); and it takes a header or a form's field that
    a foreign page cannot send: either one alone has been got around before.
    """
    if request.method in SAFE:
        return
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}"
    if (site is not None and site != "same-origin") or (origin is not None and origin != own):
        raise Problem(403, "cross-site", "this request comes from another site; nothing was done")
    if request.headers.get("authorization") or request.headers.get(ON_PURPOSE):
        return
    if given is None or not hmac.compare_digest(form_token(caller, access).encode(), given.encode()):
        raise Problem(
            403,
            "cross-site",
            "nothing shows that this request was made on purpose; nothing was done",
            hint=f"send a token, or the header {ON_PURPOSE}: 1; in a browser, load the page again",
        )


def _signed(secret: bytes, text: str) -> str:
    return hmac.new(secret, text.encode(), sha256).hexdigest()


def _where(request: Request) -> str:
    return request.client.host if request.client is not None else "?"
