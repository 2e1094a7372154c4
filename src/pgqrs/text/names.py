"""Which names queues, workflows, workers, schemas, steps and events may have."""

from __future__ import annotations

import re

from pgqrs.errors import ConfigError

# The columns of names are varchar(255); the alphabet leaves out everything that means something to SQL, LIKE
# wildcards apart from the underscore, to shells, paths and terminals.
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,254}"
_NAME = re.compile(NAME, re.ASCII)
# 41 characters leave room for what PostgreSQL's 63-byte identifiers are built from (channel names).
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,40}", re.ASCII)
_EVENT_TYPE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,149}", re.ASCII)


def checked_text(what: str, value: object) -> str:
    """The text itself, or ConfigError: `idempotency key must be a string, got 7 (int)`."""
    if isinstance(value, str):
        return value
    raise ConfigError(f"{what} must be a string, got {_shown(value)} ({type(value).__qualname__})")


def checked_name(noun: str, name: object) -> str:
    """The name itself, or ConfigError: up to 255 of letters, digits and `_ . : -`."""
    name = checked_text(f"{noun} name", name)
    if _NAME.fullmatch(name):
        return name
    raise ConfigError(
        f"{noun} name {_shown(name)} is not allowed",
        hint="use 1 to 255 of the letters a-z and A-Z, digits, "
        "'_', '.', ':' and '-', starting with a letter, a digit or '_'",
    )


def checked_step_name(name: object) -> str:
    name = checked_text("step name", name)
    if 1 <= len(name) <= 200 and name.isprintable() and "@" not in name and "#" not in name:
        return name
    raise ConfigError(
        f"step name {name[:60]!r} is not allowed", hint="use 1 to 200 printable characters without '@' and '#'"
    )


def checked_event_type(name: object) -> str:
    name = checked_text("event type", name)
    if _EVENT_TYPE.fullmatch(name):
        return name
    raise ConfigError(
        f"event type {name[:60]!r} is not allowed",
        hint="use 1 to 150 of the letters a-z and A-Z, digits, '_', '.' and '-', such as order.shipped.v1",
    )


def checked_schema(name: object) -> str:
    """The schema name itself, or ConfigError: an SQL identifier of at most 41 lower-case characters."""
    name = checked_text("schema name", name)
    if _SCHEMA.fullmatch(name) and not name.startswith("pg_"):
        return name
    raise ConfigError(
        f"schema name {_shown(name)} is not allowed",
        hint="use 1 to 41 of the letters a-z, digits and '_', not starting with a digit or with 'pg_'",
    )


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 60 else text[:57] + "..."
