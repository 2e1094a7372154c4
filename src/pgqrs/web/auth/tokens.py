"""Bearer tokens: a file of hashes, with scopes; the token itself is shown once, when it is made.

One JSON object a token. A token has 256 random bits, so that a plain hash of it is enough: there is nothing to guess.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

from pgqrs.errors import ConfigError
from pgqrs.web.auth.access import Caller, Scope, implied
from pgqrs.web.auth.private_file import Mark, locked, mark_of, read_private, replace_private
from pgqrs.web.auth.sessions import Session, Sessions, SharedSessions
from pgqrs.web.problems import Problem, logged

PREFIX = "pgqrs_"
# After so many wrong tokens from one address within a minute it has to wait.
MOST_WRONG, WRONG_SECONDS, MOST_ADDRESSES = 20, 60.0, 10_000
_NAME = re.compile(r"[A-Za-z0-9_@-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """What the file says of a token."""

    name: str
    scopes: tuple[Scope, ...]
    hash: str
    created_at: str
    # None: until it is revoked.
    expires_at: datetime | None = None

    def caller(self) -> Caller:
        return Caller(self.name, implied(self.scopes))


class Tokens:
    """The tokens of a file, read again when it has changed: a revoked token is refused immediately."""

    def __init__(self, path: str | Path, *, now: Callable[[], float] = time.time) -> None:
        self.path: Path = Path(path)
        self._now = now
        self._read: Mark | None = None
        self._known: tuple[Token, ...] = ()
        self._wrong: dict[str, tuple[int, float]] = {}
        # Raises, with the way out, while the server has not begun; later see `_usable`.
        self._refresh()
        self.sessions: Sessions = SharedSessions(self.path.with_name(f"{self.path.name}.sessions"), now=now)

    def check(self, token: str, *, where: str = "?") -> Caller | None:
        """Whose token this is; an address that tries too many wrong ones is told to wait.

        A right one is let in all the same: behind a proxy all have one address, and a token is too long to guess.
        """
        found = self._matching(token)
        if found is None:
            self._refuse_when_locked(where)
            self._count_wrong(where)
            return None
        return found.caller()

    def admitted(self, token: str, *, where: str = "?") -> tuple[Caller, Callable[[], str]] | None:
        """Return the caller of a token, and the call that begins a session, which waits for the disk."""
        caller, found = self.check(token, where=where), self._matching(token)
        if caller is None or found is None:
            return None

        def begin() -> str:
            with _usable(self.path):
                return self.sessions.begin(found.name, found.hash)

        return caller, begin

    def begin(self, token: str, *, where: str = "?") -> tuple[Caller, str] | None:
        """Return the caller of a token and the cookie of a new session; None for a wrong token."""
        found = self.admitted(token, where=where)
        return None if found is None else (found[0], found[1]())

    def end(self, cookie: str | None) -> bool:
        """End a session, which waits for the disk; False when other processes do not hear of it."""
        with _usable(self.path):
            return self.sessions.end(cookie)

    def of_session(self, cookie: str | None) -> Caller | None:
        """Return the caller of a session: it ends with its token, when that is revoked, replaced or expires."""
        with _usable(self.path):
            self._refresh()
            session: Session | None = self.sessions.find(cookie)
        if session is None:
            return None
        named = (each for each in self._known if each.name == session.name and self._is_valid(each))
        found = next(named, None)
        same = found is not None and hmac.compare_digest(found.hash.encode(), session.token.encode())
        return found.caller() if found is not None and same else None

    def _matching(self, token: str) -> Token | None:
        with _usable(self.path):
            self._refresh()
        given = hash_of(token)
        found: Token | None = None
        # All of them, each in constant time: how long it takes tells nothing.
        for known in self._known:
            if hmac.compare_digest(known.hash, given):
                found = known
        return found if found is not None and self._is_valid(found) else None

    def _is_valid(self, token: Token) -> bool:
        return token.expires_at is None or self._now() < token.expires_at.timestamp()

    def _refresh(self) -> None:
        mark = mark_of(self.path)
        if mark != self._read or mark is None:
            self._known, self._read = tuple(read(self.path)), mark

    def _refuse_when_locked(self, where: str) -> None:
        count, since = self._wrong.get(where, (0, 0.0))
        left = since + WRONG_SECONDS - time.monotonic()
        if count >= MOST_WRONG and left > 0:
            raise Problem(
                429, "too-many-wrong-tokens", "too many wrong tokens", headers={"retry-after": str(int(left) + 1)}
            )

    def _count_wrong(self, where: str) -> None:
        now = time.monotonic()
        count, since = self._wrong.get(where, (0, now))
        if now - since > WRONG_SECONDS:
            count, since = 0, now
        if len(self._wrong) >= MOST_ADDRESSES:
            self._wrong.clear()
        self._wrong[where] = (count + 1, since)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """While the file is unusable, all callers are refused; the reason is for the log, and not for strangers."""
    try:
        yield
    except (ConfigError, OSError) as error:
        error_id = logged(f"{path} cannot be used, so all callers are refused", error)
        raise Problem(
            503, "not-available", "tokens cannot be checked now", hint="the server's log says why", error_id=error_id
        ) from None


def hash_of(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()


# -- changing the file ---------------------------------------------------------------------------------------


def create(path: Path, name: str, scopes: Iterable[Scope], *, expires: timedelta | None = None) -> str:
    """Adds a token to the file; returns it, for the only time."""
    wanted = tuple(Scope(each) for each in scopes)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"token name {name!r}: use up to 64 of A-Z a-z 0-9 _ @ -")
    if not wanted:
        raise ConfigError(f"token {name!r} needs a scope: {', '.join(Scope)}")
    token = PREFIX + secrets.token_urlsafe(32)
    now = datetime.now(UTC).replace(microsecond=0)
    with locked(path):
        there = read(path)
        if any(each.name == name for each in there):
            raise ConfigError(f"there is a token named {name!r}", hint="revoke it first, or choose another name")
        made = Token(name, wanted, hash_of(token), written(now), None if expires is None else now + expires)
        _write(path, [*there, made])
    return token


def grant(path: Path, name: str, scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """Adds scopes to a token, which stays the same; returns those that it has then."""
    added = tuple(Scope(each) for each in scopes)
    with locked(path):
        there = read(path)
        before = _named(path, there, name)
        after = replace(before, scopes=tuple(dict.fromkeys((*before.scopes, *added))))
        _write(path, [after if each is before else each for each in there])
    return after.scopes


def revoke(path: Path, name: str) -> None:
    with locked(path):
        there = read(path)
        gone = _named(path, there, name)
        _write(path, [each for each in there if each is not gone])


def _named(path: Path, there: list[Token], name: str) -> Token:
    found = next((each for each in there if each.name == name), None)
    if found is None:
        known = ", ".join(each.name for each in there) or "none"
        raise ConfigError(f"no token named {name!r} in {path}", hint=f"there are: {known}")
    return found


def read(path: Path) -> list[Token]:
    """The tokens of a file, none when there is none; a file that others may read or write is refused."""
    text = read_private(path) or ""
    return [_read_line(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _read_line(path: Path, number: int, line: str) -> Token:
    try:
        found = json.loads(line)
        expires = found.get("expires_at")
        token = Token(
            str(found["name"]),
            tuple(Scope(each) for each in found["scopes"]),
            str(found["hash"]),
            str(found["created_at"]),
            None if expires is None else datetime.fromisoformat(expires),
        )
        if len(bytes.fromhex(token.hash)) != 32:
            raise ValueError("the hash has not 32 bytes")
        if token.expires_at is not None and token.expires_at.tzinfo is None:
            raise ValueError("expires_at has no time zone")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path}, line {number} is no token: {error!r}", hint="remove it and make a new one"
        ) from None
    return token


def _write(path: Path, tokens: list[Token]) -> None:
    replace_private(path, "".join(json.dumps(_line(each)) + "\n" for each in tokens))


def _line(token: Token) -> dict[str, object]:
    found: dict[str, object] = {
        "name": token.name,
        "scopes": list(token.scopes),
        "hash": token.hash,
        "created_at": token.created_at,
    }
    return found if token.expires_at is None else {**found, "expires_at": written(token.expires_at)}


def written(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
