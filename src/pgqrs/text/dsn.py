"""What a DSN names, and how much of it may be shown. It may hold a password anywhere, and may be written wrongly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal
from urllib.parse import unquote, unquote_plus

from pgqrs.errors import ConfigError

Backend = Literal["postgres", "sqlite", "turso"]

_SCHEMES: dict[str, Backend] = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "sqlite": "sqlite",
    "turso": "turso",
}
_SCHEME = re.compile(r"[a-z]+(\+[a-z0-9]+)?", re.ASCII)
# Where options begin, or something that was meant as options.
_OPTIONS = re.compile(r"\?|%3f|[#;&](?=\w*=)|%23|%3b|%26", re.ASCII | re.IGNORECASE)
# A name or an address with its port, or the escaped folder of a socket.
_HOST = re.compile(r"([\w.-]*|\[[0-9a-f:.]+\]|%2f[\w.%-]*)(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
_END_OF_HOSTS = re.compile(r"[/?#]")
_DATABASE = re.compile(r"(/[\w.~+-]*)?")
# Shorter ones are replaced only where they stand alone: of the user `a` nothing would be left to read.
_SHORTEST = 4
# A DSN hides about ten parts, each of which is looked for in the whole text. One with more parts hides the text.
_MOST_HIDDEN = 100


def parse_dsn(dsn: str) -> tuple[Backend, str]:
    """Which backend, and for SQLite and Turso which file."""
    if not isinstance(dsn, str):
        raise ConfigError(f"a DSN is text, not {type(dsn).__name__}")
    scheme, _, rest = dsn.partition(":")
    if scheme.startswith("postgres") and "+" in scheme and _SCHEME.fullmatch(scheme):
        raise ConfigError(f"write postgresql:// in place of {scheme}://", hint="the driver is always asyncpg")
    backend = _SCHEMES.get(scheme)
    if backend is None:
        # A bare file name is no secret, and the commonest mistake.
        if re.fullmatch(r"[\w./-]+\.(db|sqlite3?)", dsn):
            raise ConfigError(f"the DSN {dsn!r} names a file and no database", hint=f"did you mean sqlite:///{dsn}?")
        hint = "use postgresql://..., sqlite:///file.db, sqlite://:memory: or turso:///file.db"
        raise ConfigError(f"cannot tell the database from the DSN {masked(dsn)!r}", hint=f"{hint}")
    if backend == "postgres":
        return backend, ""
    return backend, _file_in(dsn, scheme, rest)


def _file_in(dsn: str, scheme: str, rest: str) -> str:
    use = f"use {scheme}:///file.db or {scheme}://:memory:"
    if _OPTIONS.search(rest):
        raise ConfigError(f"options in the DSN {masked(dsn)!r} are not known", hint=f"{use}")
    if rest.startswith("/") and not rest.startswith("//"):
        raise ConfigError(
            f"a DSN with one slash after {scheme}: may mean a path from here or from the root",
            hint=f"use {scheme}:///file.db for the first, {scheme}:////folder/file.db for the second",
        )
    path = unquote(rest.removeprefix("//"))
    if path in (":memory:", "/:memory:"):
        return ":memory:"
    if _has_user(rest.removeprefix("//")):
        raise ConfigError(f"the DSN {masked(dsn)!r} has a user or a host, and a file has no user", hint=f"{use}")
    # As SQLAlchemy reads it: three slashes and a relative path, four and an absolute one.
    path = path.removeprefix("/")
    if not path or "\0" in path:
        raise ConfigError(f"the DSN {masked(dsn)!r} names no file", hint=f"{use}")
    return path


def masked(dsn: str) -> str:
    """The DSN without user information and options; nothing of what does not look like host, port, database or file.

    By hand, not by a URL parser: a password with a `?` or a `]` in it makes parsers see a secret as something else.
    """
    scheme, found, rest = str(dsn).partition("://")
    if not found or not _SCHEME.fullmatch(scheme):
        return "***"
    is_file = _SCHEMES.get(scheme) in ("sqlite", "turso")
    return f"{scheme}://{_shown_file(rest) if is_file else _shown_server(rest)}"


def _shown_file(rest: str) -> str:
    path, *options = _OPTIONS.split(rest, maxsplit=1)
    return "***" if _has_user(rest) else path + ("?***" if options else "")


def _has_user(rest: str) -> bool:
    """Whether it is more than the path of a file, which has three slashes before it or no @ in it."""
    return "@" in rest and not rest.startswith("/")


def _shown_server(rest: str) -> str:
    end = _END_OF_HOSTS.search(rest)
    before, after = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    user, at, hosts = before.rpartition("@")
    options = _OPTIONS.search(after)
    database = after[: options.start()] if options else after
    if (
        # A password with a / or a ? in it, or options with an @: which it is cannot be told.
        "@" in after
        or _OPTIONS.search(user)
        or not all(map(_HOST.fullmatch, hosts.split(",")))
        or not _DATABASE.fullmatch(database)
    ):
        return "***"
    return f"{'***@' if at else ''}{hosts}{database}{'?***' if options else ''}"


def without_secrets(text: str, dsn: str) -> str:
    """Return what a server or a library says about the DSN, without anything that `masked` hides."""
    hidden = set(_hidden_in(dsn))
    if len(hidden) > _MOST_HIDDEN:
        return "***"
    text = text.replace(dsn, masked(dsn))
    for part in sorted(hidden, key=len, reverse=True):
        if len(part) >= _SHORTEST:
            text = text.replace(part, "***")
        else:
            text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", "***", text)
    return text


def _hidden_in(dsn: str) -> Iterator[str]:
    """User, password and the values of options, as they are written and as they are meant."""
    rest = dsn.partition("://")[2]
    login = rest.rpartition("@")[0]
    options = _OPTIONS.search(rest)
    values = [] if options is None else re.findall(r"=([^&;]*)", rest[options.start() :])
    for part in (login, *login.split(":", 1), *values):
        yield from filter(None, (part, unquote(part), unquote_plus(part)))
