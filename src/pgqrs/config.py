"""Every setting, its default and its environment variable."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

from pgqrs.audit import AuditPolicy
from pgqrs.errors import ConfigError
from pgqrs.text.dsn import Backend, masked, parse_dsn
from pgqrs.text.names import checked_schema

T = TypeVar("T")

DEFAULT_DSN = "sqlite:///pgqrs.db"
_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def _setting(name: str, default: T, meaning: str, *, least: float | None = None, secret: bool = False) -> T:
    """A field whose default is `PGQRS_<NAME>` when that is set; `docs/reference/settings.md` is made from these."""
    variable = f"PGQRS_{name.upper()}"

    def from_environment() -> T:
        text = os.environ.get(variable)
        return _parsed(variable, text, type(default)) if text else default

    told = {"default": default, "meaning": meaning, "least": least}
    setting: T = field(default_factory=from_environment, repr=not secret, metadata=told)
    return setting


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one store: an argument wins over `PGQRS_<FIELD>`, which wins over the default.

    Times are in seconds. `schema` keeps tenants apart: a PostgreSQL schema, or on SQLite and Turso a file of
    its own beside the first (`app.db` and `app.tenant_a.db`).
    """

    # The DSN may hold a password: it is never shown; `safe_dsn` is.
    dsn: str = _setting("dsn", DEFAULT_DSN, "which database; user, password and options are never shown", secret=True)
    # None is the default, too.
    schema: str = _setting(
        "schema",
        "public",
        "keeps tenants apart: a PostgreSQL schema; on SQLite and Turso a file of its own, `app.tenant_a.db`",
    )
    listen_dsn: str = _setting(
        "listen_dsn", "", "a way to PostgreSQL without a pooler, for wake-up hints only", secret=True
    )
    pool_size: int = _setting("pool_size", 10, "PostgreSQL connections per store", least=1)
    # 0: nothing is kept on a server connection between transactions.
    statement_cache_size: int = _setting(
        "statement_cache_size", 256, "prepared statements per connection; 0 for a transaction pooler", least=0
    )
    command_timeout_seconds: float = _setting(
        "command_timeout_seconds",
        12.0,
        "how long one statement, or getting a connection, may take; also yours in `ctx.transaction`. "
        "A connection whose other end has gone without a word is found out by it alone",
        least=1,
    )
    retry_seconds: float = _setting(
        "retry_seconds",
        10.0,
        "how long a call goes on trying while the database is away, before `ConnectionFailed`",
        least=0,
    )
    lease_seconds: float = _setting(
        "lease_seconds",
        30.0,
        "how long a message or run is its holder's unless renewed: how soon others take over from a dead worker",
        least=1,
    )
    poll_interval_seconds: float = _setting(
        "poll_interval_seconds",
        1.0,
        "how often an idle consumer or worker asks when no hint comes; grows to twice that",
        least=0.01,
    )
    pause_check_interval_seconds: float = _setting(
        "pause_check_interval_seconds",
        3600.0,
        "workflows: how often a step that raised `PauseError` is tried again",
        least=0,
    )
    max_attempts: int = _setting(
        "max_attempts",
        3,
        "deliveries before a message is a dead letter, and leases before a run ends in ERROR",
        least=1,
    )
    max_payload_bytes: int = _setting("max_payload_bytes", 2 * 1024 * 1024, "the largest encoded value", least=1)
    require_workers: bool = _setting(
        "require_workers", default=False, meaning="workflows: refuse a trigger that no live worker would run"
    )
    no_handler_grace_seconds: float = _setting(
        "no_handler_grace_seconds", 60.0, "workflows: how long a run without a handler waits for one", least=0
    )
    maintenance: bool = _setting(
        "maintenance",
        default=True,
        meaning="whether workers also fire schedules and carry out retention; any number of them may",
    )
    audit: str = _setting(
        "audit",
        "normal",
        "workflows: how much history is kept: `none`, `changes` (what the run's row does not tell), `normal`, "
        "`full` (also each lease and start)",
    )
    outbox: str = _setting(
        "outbox", "", "workflows: which events are also published, with commas between (`succeeded,failed`), or `*`"
    )
    event_source: str = _setting(
        "event_source", "", "the `source` of published CloudEvents; by default made from the schema's name"
    )

    def __post_init__(self) -> None:
        if self.schema is None:
            # As if it had not been given: programs pass on a setting of their own that may be unset.
            object.__setattr__(self, "schema", _default("schema"))
        checked_schema(self.schema)
        parse_dsn(self.dsn)
        AuditPolicy.of(self.audit, self.outbox)
        for name, least in _AT_LEAST.items():
            value = getattr(self, name)
            whole = isinstance(least, int) and not name.endswith("_seconds")
            kinds = int if whole else int | float
            if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value < 2**31:
                raise ConfigError(f"Config.{name} must be a number of at least {least}, not {value!r}")

    def with_changes(self, **changes: Unpack[Changes]) -> Config:
        given: dict[str, Any] = {**changes}
        return dataclasses.replace(self, **given)

    @property
    def backend(self) -> Backend:
        return parse_dsn(self.dsn)[0]

    @property
    def audit_policy(self) -> AuditPolicy:
        """What of the runs' history is written where."""
        return AuditPolicy.of(self.audit, self.outbox)

    @property
    def safe_dsn(self) -> str:
        """The DSN without its secrets, fit for logs and errors."""
        return masked(self.dsn)

    @property
    def path(self) -> str:
        """The file of this schema (SQLite and Turso), or `:memory:`."""
        path = parse_dsn(self.dsn)[1]
        if path == ":memory:" or self.schema == "public":
            return path
        file = Path(path)
        return str(file.with_name(f"{file.stem}.{self.schema}{file.suffix}"))


class Settings(TypedDict, total=False):
    """The fields of `Config` beside the DSN, for type checkers: what `connect` and `using` take by name."""

    schema: str | None
    listen_dsn: str
    pool_size: int
    statement_cache_size: int
    command_timeout_seconds: float
    retry_seconds: float
    lease_seconds: float
    poll_interval_seconds: float
    pause_check_interval_seconds: float
    max_attempts: int
    max_payload_bytes: int
    require_workers: bool
    no_handler_grace_seconds: float
    maintenance: bool
    audit: str
    outbox: str
    event_source: str


class Changes(Settings, total=False):
    """What `Config.with_changes` takes: the DSN, too."""

    dsn: str


_AT_LEAST: dict[str, float] = {
    each.name: each.metadata["least"] for each in dataclasses.fields(Config) if each.metadata["least"] is not None
}


def _default(name: str) -> Any:
    [found] = [each for each in dataclasses.fields(Config) if each.name == name]
    assert found.default_factory is not dataclasses.MISSING  # noqa: S101 - for type checkers
    return found.default_factory()


def _parsed(variable: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise ConfigError(f"{variable}={text!r} is not a yes or no", hint="use 1 or 0")
    readers: dict[type, Callable[[str], Any]] = {int: int, float: float, str: str}
    try:
        # Underscores are Python's, not an operator's: refuse what int() alone would let through.
        if kind is not str and not re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", text.strip(), re.IGNORECASE):
            raise ValueError(text)
        return readers[kind](text)
    except ValueError:
        raise ConfigError(f"{variable}={text!r} is not a number") from None
