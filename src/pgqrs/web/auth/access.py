"""Who asks, and what they may do: scopes and callers.

A caller is found by a bearer token, by the session that a browser got for one, or by the application that we are
mounted into (`authorize`). There is no way in without one of them. What a request says of itself, its Host header
included, shows nothing about who sent it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from pgqrs.errors import ConfigError
from pgqrs.text.durations import shown
from pgqrs.text.shell import command
from pgqrs.web.auth.file_threads import FileThreads
from pgqrs.web.problems import Problem, logged
from pgqrs.web.server.rate_limit import RateLimit

SESSION = "pgqrs_session"
_ASK = {"www-authenticate": 'Bearer realm="pgqrs"'}
SAFE = frozenset({"GET", "HEAD"})
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


class Scope(StrEnum):
    """What a token is for. A producer's `trigger` cannot read, nor answer what a run waits for."""

    READ = "read"
    TRIGGER = "trigger"
    SIGNAL = "signal"
    OPERATE = "operate"
    ADMIN = "admin"


_IMPLIED = {
    Scope.READ: frozenset({Scope.READ}),
    Scope.TRIGGER: frozenset({Scope.TRIGGER}),
    Scope.SIGNAL: frozenset({Scope.SIGNAL}),
    Scope.OPERATE: frozenset({Scope.READ, Scope.TRIGGER, Scope.SIGNAL, Scope.OPERATE}),
    Scope.ADMIN: frozenset(Scope),
}


def implied(scopes: Iterable[Scope]) -> frozenset[Scope]:
    """These and what they include."""
    return frozenset().union(*(_IMPLIED[Scope(each)] for each in scopes))


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; `name` is the actor in the history of what they do. Scopes include others, as those of tokens do."""

    name: str
    scopes: frozenset[Scope]

    def may(self, scope: Scope) -> bool:
        return any(scope in _IMPLIED.get(each, ()) for each in self.scopes)


Authorize = Callable[[Request], Awaitable[Caller | None] | Caller | None]


class Known(Protocol):
    """Tokens, wherever they are kept: in a file (`Tokens`) or in the process that made one (`StartToken`)."""

    def check(self, token: str, *, where: str = "?") -> Caller | None: ...

    def admitted(self, token: str, *, where: str = "?") -> tuple[Caller, Callable[[], str]] | None: ...

    def end(self, cookie: str | None) -> bool: ...

    def of_session(self, cookie: str | None) -> Caller | None: ...


@dataclass(frozen=True, slots=True)
class Access:
    """How the application is guarded, fixed when it is made."""

    tokens: Known | None = None
    authorize: Authorize | None = None
    read_only: bool = True
    hosts: frozenset[str] = frozenset(LOOPBACK)
    # Only callers on this machine, without a proxy in between: the token is in the address that was printed here.
    local: bool = False
    # Of each caller, for what adds work.
    rate: RateLimit = field(default_factory=RateLimit)
    # Where sessions are begun and ended.
    files: FileThreads = field(default_factory=FileThreads)

    def __post_init__(self) -> None:
        if self.tokens is None and self.authorize is None:
            raise ConfigError(
                "pgqrs.web.app(store) would show everything to anyone who reaches your application",
                hint="give it "
                "authorize=..., a function that returns a Caller for the user whom your application knows, "
                "or tokens='pgqrs.tokens', a file that `pgqrs token create` writes",
            )
        if self.authorize is not None and not callable(self.authorize):
            raise ConfigError(
                f"authorize must be a function that gets the request and returns a Caller or None, got "
                f"{shown(self.authorize)}",
                hint="write `async def authorize(request)`",
            )
        if foreign := sorted(self.hosts - set(LOOPBACK)):
            self._refuse_if_local(f"host {foreign[0]!r} can be reached from other machines")

    def _refuse_if_local(self, why: str) -> None:
        if self.local:
            raise ConfigError(
                f"{why}, but the token of this start is for this machine",
                hint="make tokens (`pgqrs token create NAME --scope read`) and give their file with --tokens",
            )

    async def caller_of(self, request: Request) -> Caller | None:
        """Who asks; None when they did not say, a Problem when what they said is wrong."""
        if self.authorize is not None:
            return await _told(self.authorize, request)
        tokens = self.tokens
        assert tokens is not None  # noqa: S101 - checked when this was made
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind:
            if kind.lower() != "bearer" or not given:
                raise Problem(401, "unauthorized", "Authorization must be `Bearer <token>`")
            found = tokens.check(given.strip(), where=where(request))
            if found is None:
                raise Problem(
                    401,
                    "unauthorized",
                    "this token is unknown, was revoked, or has expired",
                    hint=self.how_to_get_in,
                )
            return found
        return tokens.of_session(request.cookies.get(self.session_cookie(request)))

    @property
    def has_login(self) -> bool:
        """Whether people log in here, with a token; else the application around this knows them."""
        return self.authorize is None

    def unknown(self) -> Problem:
        """The answer to callers who did not say who they are, or whom the application around this refused."""
        # `authorize` returns None for both: which of them it is, only the application knows.
        why = "you are not logged in to this application, or your account may not use this dashboard"
        detail = "say who you are" if self.has_login else why
        return Problem(401, "unauthorized", detail, hint=self.how_to_get_in, headers=_ASK)

    def forbidden(self, caller: Caller, scope: Scope) -> Problem:
        detail, hint = f"this needs the scope {scope.value!r}", None
        if self.has_login:
            hint = f"pgqrs token grant NAME --scope {scope.value}"
        elif not caller.scopes:
            detail = "your account may not use this dashboard"
            hint = "ask the operators of this application for access"
        return Problem(403, "forbidden", detail, hint=hint, needed=scope.value)

    @property
    def how_to_get_in(self) -> str:
        if not self.has_login:
            return "log in to the application that this dashboard is part of, then open this page again"
        if self.local:
            return "send the token of the address that `pgqrs serve` printed: Authorization: Bearer <token>"
        return f"Authorization: Bearer <token>; `{self.makes_a_token}` makes one"

    @property
    def makes_a_token(self) -> str:
        """The command, with the file that is served; strangers are not told in which folder that is."""
        path = getattr(self.tokens, "path", None)
        if path is None:
            return command("token create", "NAME", scope="read")
        is_here = len(path.parts) == 1
        return command("token create", "NAME", scope="read", file=path if is_here else f".../{path.name}")

    @property
    def how_to_name_a_host(self) -> str:
        """Tell the operator how this server may be reached under another name."""
        if self.local:
            return (
                "use the address that `pgqrs serve` printed. For other names it needs tokens: "
                "pgqrs token create NAME --scope read; pgqrs serve --tokens pgqrs.tokens --allow-host HOST"
            )
        mounted = "name it where it is mounted: pgqrs.web.app(store, ..., hosts=[...])"
        return mounted if self.tokens is None else f"{mounted}; or with --allow-host of `pgqrs serve`"

    def session_cookie(self, request: Request) -> str:
        """The name of the cookie; on this machine with the port, as a browser does not tell ports apart."""
        return f"{SESSION}_{request.url.port or 80}" if self.local else SESSION


async def _told(authorize: Authorize, request: Request) -> Caller | None:
    """What the application says of the user; a plain function is called in a thread, as it may ask a database."""
    is_async = inspect.iscoroutinefunction(authorize) or inspect.iscoroutinefunction(
        getattr(authorize, "__call__", None)  # noqa: B004 - the method itself, not whether there is one
    )
    found: Any = authorize(request) if is_async else await run_in_threadpool(authorize, request)
    if inspect.isawaitable(found):
        found = await found
    if found is None or isinstance(found, Caller):
        return found
    # Its class alone: what it holds may be a secret of the user's.
    wrong = TypeError(f"authorize must return a pgqrs.web.Caller or None, not a {type(found).__qualname__}")
    error_id = logged("authorize returned something else than a Caller or None", wrong)
    what = "the application around this could not tell who asks"
    raise Problem(500, "unexpected", what, hint="the log has it under error_id", error_id=error_id)


def where(request: Request) -> str:
    """The address that a request comes from."""
    return request.client.host if request.client is not None else "?"
