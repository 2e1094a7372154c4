"""Bearer tokens: a file of hashes, with scopes; the token itself is shown once, when it is made.

One JSON object a token. A token has 256 random bits, so that a plain hash of it is enough: there is nothing to guess.
"""

from __future__ import annotations

import hmac
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from pgqrs.errors import ConfigError
from pgqrs.web.access import Caller, Scope, implied
from pgqrs.web.problems import Problem

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


class Tokens:
    """The tokens of a file, read again when it has changed: what is revoked is refused at once."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._read: tuple[int, int] | None = None
        self._callers: dict[str, Caller] = {}
        self._wrong: dict[str, tuple[int, float]] = {}
        self._refresh()

    def check(self, token: str, *, where: str = "?") -> Caller | None:
        """Whose token this is; an address that tries too many wrong ones is told to wait.

        A right one is let in all the same: behind a proxy all have one address, and a token is too long to guess.
        """
        self._refresh()
        given = hash_of(token)
        found: Caller | None = None
        # All of them, each in constant time: how long it takes tells nothing.
        for known, caller in self._callers.items():
            if hmac.compare_digest(known, given):
                found = caller
        if found is None:
            self._refuse_when_locked(where)
            self._count_wrong(where)
        return found

    def named(self, name: str) -> Caller | None:
        self._refresh()
        return next((each for each in self._callers.values() if each.name == name), None)

    def _refresh(self) -> None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._callers, self._read = {}, None
            return
        if (status.st_mtime_ns, status.st_ino) != self._read:
            self._callers = {
                each.hash: Caller(each.name, implied(each.scopes), bytes.fromhex(each.hash))
                for each in read(self.path)
            }
            self._read = (status.st_mtime_ns, status.st_ino)

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


def hash_of(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def create(path: Path, name: str, scopes: Iterable[Scope]) -> str:
    """Adds a token to the file; returns it, for the only time."""
    wanted = tuple(Scope(each) for each in scopes)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"token name {name!r}: use up to 64 of A-Z a-z 0-9 _ @ -")
    if not wanted:
        raise ConfigError(f"token {name!r} needs a scope: {', '.join(Scope)}")
    there = read(path)
    if any(each.name == name for each in there):
        raise ConfigError(f"there is a token named {name!r}; revoke it first, or choose another name")
    token = PREFIX + secrets.token_urlsafe(32)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    _write(path, [*there, Token(name, wanted, hash_of(token), now)])
    return token


def revoke(path: Path, name: str) -> None:
    there = read(path)
    kept = [each for each in there if each.name != name]
    if len(kept) == len(there):
        known = ", ".join(each.name for each in there) or "none"
        raise ConfigError(f"no token named {name!r} in {path}; there are: {known}")
    _write(path, kept)


def read(path: Path) -> list[Token]:
    """The tokens of a file, none when there is none; a file that others can write is refused."""
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except FileNotFoundError:
        return []
    if mode & 0o022:
        raise ConfigError(f"{path} can be written by others, who could make themselves a token; chmod 600 it")
    return [_read_line(path, number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]


def _read_line(path: Path, number: int, line: str) -> Token:
    try:
        found = json.loads(line)
        token = Token(
            str(found["name"]),
            tuple(Scope(each) for each in found["scopes"]),
            str(found["hash"]),
            str(found["created_at"]),
        )
        if len(bytes.fromhex(token.hash)) != 32:
            raise ValueError("the hash has not 32 bytes")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}, line {number} is no token: {error!r}; remove it and make a new one") from None
    return token


def _write(path: Path, tokens: list[Token]) -> None:
    """All of it or nothing, readable by its owner alone."""
    text = "".join(
        json.dumps({"name": t.name, "scopes": list(t.scopes), "hash": t.hash, "created_at": t.created_at}) + "\n"
        for t in tokens
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(temporary).replace(path)
