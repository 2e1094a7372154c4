"""Sessions of browsers that showed a token: kept on the server, so that logging out ends them everywhere.

A cookie is a random id and nothing else. The server keeps the hash of each id, with the token that it was given for:
neither the file of tokens nor that of sessions holds anything that could be sent as a cookie.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from pgqrs.errors import ConfigError
from pgqrs.web.auth.private_file import Mark, locked, mark_of, read_private, replace_private

log: logging.Logger = logging.getLogger("pgqrs.web")

SESSION_SECONDS = 12 * 3600
# Of one token; the oldest goes. A token that logs in without end would fill the disk.
MOST_SESSIONS = 100
# Between two tries to write what could not be written.
RETRY_SECONDS = 5.0
_ID_BYTES = 32


@dataclass(frozen=True, slots=True)
class Session:
    """Whose it is, for which token (its hash: a new token of the same name is another one), and until when."""

    name: str
    token: str
    until: float


class Sessions:
    """Sessions of this process alone. They are found on the event loop, and begun and ended by threads."""

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._known: Mapping[str, Session] = {}

    def begin(self, name: str, token: str) -> str:
        """Return the cookie of a new session; it ends after `SESSION_SECONDS`, whatever the browser does."""
        cookie = secrets.token_urlsafe(_ID_BYTES)
        self._change({_hashed(cookie): Session(name, token, self._now() + SESSION_SECONDS)}, frozenset())
        return cookie

    def find(self, cookie: str | None) -> Session | None:
        """Return the session of a cookie, unless it has ended."""
        if not cookie or len(cookie) > 100:
            return None
        # Looked up by its hash: how long that takes tells nothing about the ids that are known.
        found = self._get(_hashed(cookie))
        return None if found is None or found.until <= self._now() else found

    def end(self, cookie: str | None) -> bool:
        """End it now. False when only this process knows it, because it could not be written."""
        return self.find(cookie) is None or self._change({}, frozenset({_hashed(str(cookie))}))

    def _get(self, key: str) -> Session | None:
        return self._known.get(key)

    def _change(self, begun: Mapping[str, Session], ended: frozenset[str]) -> bool:
        with self._lock:
            self._known = _after(self._known, begun, ended, self._now())
        return True


@dataclass(frozen=True, slots=True)
class _File:
    """What was read, with the mark that it had: replaced as one, as threads and the event loop do so."""

    mark: Mark | None
    known: Mapping[str, Session]


class SharedSessions(Sessions):
    """Sessions in a file beside that of the tokens: for all processes that serve with it, and after a restart.

    What cannot be written (a full disk, a mounted secret) holds for this process alone, and is written as soon as it
    can be. The file is read all the same: what other processes write is seen.
    """

    def __init__(self, path: Path, *, now: Callable[[], float] = time.time) -> None:
        super().__init__(now=now)
        self.path = path
        self._file = _File(None, {})
        # What is to be written, or could not be.
        self._begun: Mapping[str, Session] = {}
        self._ended: frozenset[str] = frozenset()
        self._retry_at = 0.0
        self._refresh()

    def _get(self, key: str) -> Session | None:
        self._refresh()
        self._write_again()
        if key in self._ended:
            return None
        return self._begun.get(key) or self._file.known.get(key)

    def _refresh(self) -> None:
        mark = mark_of(self.path)
        if mark != self._file.mark:
            self._file = _File(mark, _parsed(self.path, read_private(self.path)))

    def _change(self, begun: Mapping[str, Session], ended: frozenset[str]) -> bool:
        with self._lock:
            # First of all here: a session that is being ended is not found while the disk takes its time.
            self._ended |= ended & self._file.known.keys()
            self._begun = _after(self._begun, begun, ended, self._now())
            return self._write()

    def _write(self) -> bool:
        try:
            with locked(self.path):
                self._refresh()
                known = _after(self._file.known, self._begun, self._ended, self._now())
                text = json.dumps({key: asdict(each) for key, each in known.items()})
                replace_private(self.path, text + "\n")
                self._file = _File(mark_of(self.path), known)
        except OSError as error:
            self._retry_at = self._now() + RETRY_SECONDS
            log.warning(
                "%s cannot be written: %s; %d log-ins and %d log-outs are known to this process alone until it can",
                self.path, error, len(self._begun), len(self._ended),
            )  # fmt: skip
            return False
        self._begun, self._ended = {}, frozenset()
        return True

    def _write_again(self) -> None:
        """In a thread, now and then, while there is something that could not be written."""
        if not (self._begun or self._ended) or self._now() < self._retry_at:
            return
        if self._lock.acquire(blocking=False):
            threading.Thread(target=self._write_and_release, name="pgqrs-web-sessions", daemon=True).start()

    def _write_and_release(self) -> None:
        try:
            self._write()
        except ConfigError as error:
            # The file itself is unusable, and all callers are refused until it is not.
            self._retry_at = self._now() + RETRY_SECONDS
            log.warning("%s", error)
        finally:
            self._lock.release()


def _after(
    known: Mapping[str, Session], begun: Mapping[str, Session], ended: frozenset[str], now: float
) -> Mapping[str, Session]:
    """Return the sessions after a change: without those that have ended, of each token the newest ones."""
    alive = {key: each for key, each in {**known, **begun}.items() if each.until > now and key not in ended}
    of: Counter[str] = Counter()
    kept = {}
    for key, each in sorted(alive.items(), key=lambda item: item[1].until)[::-1]:
        of[each.name] += 1
        if of[each.name] <= MOST_SESSIONS:
            kept[key] = each
    return dict(reversed(kept.items()))


def _hashed(cookie: str) -> str:
    # 256 random bits: a plain hash is enough, there is nothing to guess.
    return sha256(cookie.encode(errors="replace")).hexdigest()


def _parsed(path: Path, text: str | None) -> dict[str, Session]:
    try:
        found = json.loads(text or "{}")
        return {
            str(key): Session(str(each["name"]), str(each["token"]), float(each["until"]))
            for key, each in found.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} holds no sessions: {error!r}", hint="remove it, and log in again") from None
