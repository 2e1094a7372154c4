"""What the history of a run consists of, and how much of it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pgqrs.errors import ConfigError


class EventType(StrEnum):
    """What can happen to a run."""

    CREATED = "created"
    LEASED = "leased"
    STARTED = "started"
    STEP_FAILED = "step_failed"
    RETRIED = "retried"
    PAUSED = "paused"
    RESUMED = "resumed"
    SIGNALLED = "signalled"
    LEASE_LOST = "lease_lost"
    HANDED_BACK = "handed_back"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    RESTARTED = "restarted"
    DELETED = "deleted"
    RESTORED = "restored"


# What a worker that leases a run tells of it.
OF_CLAIMS = frozenset({EventType.LEASED, EventType.STARTED, EventType.LEASE_LOST})

# Each level keeps what the one before it does. `changes` leaves out what the run's own row tells as well.
_LEVELS: dict[str, frozenset[EventType]] = {
    "none": frozenset(),
    "changes": frozenset(EventType) - {EventType.CREATED, EventType.SUCCEEDED, EventType.LEASED, EventType.STARTED},
    "normal": frozenset(EventType) - {EventType.LEASED, EventType.STARTED},
    "full": frozenset(EventType),
}


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """Which events are kept as history, and which also go to the outbox."""

    kept: frozenset[EventType] = _LEVELS["normal"]
    published: frozenset[EventType] = frozenset()

    @classmethod
    def of(cls, audit: str, outbox: str) -> AuditPolicy:
        """From the settings: a level, and a list of event types with commas between (`*` for all)."""
        if audit not in _LEVELS:
            raise ConfigError(f"Config.audit must be one of {', '.join(_LEVELS)}, not {audit!r}")
        names = [name.strip() for name in outbox.split(",") if name.strip()]
        if names == ["*"]:
            return cls(_LEVELS[audit], frozenset(EventType))
        unknown = [name for name in names if name not in set(EventType)]
        if unknown:
            known = ", ".join(EventType)
            raise ConfigError(f"Config.outbox does not know {unknown[0]!r}", hint=f"it may list {known}, or be *")
        return cls(_LEVELS[audit], frozenset(map(EventType, names)))

    @property
    def publishes_claims(self) -> bool:
        return bool(self.published & OF_CLAIMS)

    def wants(self, event: EventType) -> bool:
        return event in self.kept or event in self.published
