"""The token of one start: `pgqrs serve`, `dev` and `demo` make one where there is no file of tokens.

It is in the address that they print. A browser that opens that address gets a session; programs send it as a bearer
token. It ends with the process.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from pgqrs.web.auth.access import Caller, Scope
from pgqrs.web.auth.sessions import Sessions
from pgqrs.web.auth.tokens import hash_of

# The actor in the history.
NAME = "local"


class StartToken:
    """One token that may do everything, for callers on this machine (`guard.py` looks at where they are)."""

    def __init__(self, token: str | None = None) -> None:
        self.token: str = token or secrets.token_urlsafe(32)
        self.sessions: Sessions = Sessions()
        self._hash = hash_of(self.token)

    def check(self, token: str, *, where: str = "?") -> Caller | None:
        """The caller, if this is the token. Wrong ones are not counted: with 256 random bits none is guessed."""
        del where
        return _CALLER if hmac.compare_digest(self._hash, hash_of(token)) else None

    def admitted(self, token: str, *, where: str = "?") -> tuple[Caller, Callable[[], str]] | None:
        """Return the caller, and the call that begins a session; None for a wrong token."""
        caller = self.check(token, where=where)
        return None if caller is None else (caller, lambda: self.sessions.begin(caller.name, self._hash))

    def end(self, cookie: str | None) -> bool:
        return self.sessions.end(cookie)

    def of_session(self, cookie: str | None) -> Caller | None:
        return None if self.sessions.find(cookie) is None else _CALLER


_CALLER = Caller(NAME, frozenset(Scope))
