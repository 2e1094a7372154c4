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
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from pgqrs.errors import ConfigError
from pgqrs.web.limits import RateLimit
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
    # Of each caller, for what adds work.
    rate: RateLimit = field(default_factory=RateLimit)
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
        if found is None:
            return None
        expected = _signed(found.secret, f"session.{name}.{until}")
        # As bytes: text that is not ASCII cannot be compared in constant time, and raises.
        return found if hmac.compare_digest(expected.encode(), signature.encode(errors="replace")) else None


def session_for(caller: Caller) -> str:
    """The cookie of a browser that showed a token."""
    until = int(time.time()) + SESSION_SECONDS
    return f"{caller.name}.{until}." + _signed(caller.secret, f"session.{caller.name}.{until}")


def form_token(caller: Caller, access: Access) -> str:
    """What our forms carry and nobody else's page can know."""
    return _signed(caller.secret or access.secret, f"form.{caller.name}")


def check_same_site(request: Request) -> None:
    """Refuses what the browser says comes from somebody else's page; whoever is no browser says nothing."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    own = f"{request.url.scheme}://{request.headers.get('host', '')}".lower()
    if (site is not None and site != "same-origin") or (origin is not None and origin.lower() != own):
        raise Problem(403, "cross-site", "this request comes from another site; nothing was done")


def check_on_purpose(request: Request, caller: Caller, access: Access, given: Any) -> None:
    """Refuses what a page of somebody else may have made the caller's browser send.

    The browser says where a request comes from (Sec-Fetch-Site, Origin); and it takes a header or a form's field that
    a foreign page cannot send: either one alone has been got around before.
    """
    if request.method in SAFE:
        return
    check_same_site(request)
    # A bearer token only: what a browser adds by itself (Basic) shows nothing.
    if request.headers.get("authorization", "").lower().startswith("bearer ") or request.headers.get(ON_PURPOSE):
        return
    expected = form_token(caller, access).encode()
    if not isinstance(given, str) or not hmac.compare_digest(expected, given.encode(errors="replace")):
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
