"""Retention: how long what has ended is kept. Without a policy nothing is ever deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from pgqrs.api.store import Store
from pgqrs.db.tables import queues, workflows
from pgqrs.db.upkeep import retention as tables
from pgqrs.db.upkeep.retention import KINDS, Range, What
from pgqrs.engine.janitor import PAUSE_LENGTHS, Janitor
from pgqrs.errors import ConfigError
from pgqrs.reports import RetentionPolicy, RetentionReport
from pgqrs.text.durations import checked_seconds
from pgqrs.text.names import checked_name
from pgqrs.types import ENDED, RunStatus

_DAY = timedelta(days=1)

# Failures longer than successes: somebody will want to look. What is found by its run goes with the run.
RECOMMENDED = (
    RetentionPolicy("runs", "", "SUCCESS", 7 * _DAY),
    RetentionPolicy("runs", "", "CANCELLED", 7 * _DAY),
    RetentionPolicy("runs", "", "ERROR", 30 * _DAY),
    RetentionPolicy("deleted_runs", "", "", 7 * _DAY),
    RetentionPolicy("archived_messages", "", "", 7 * _DAY),
    RetentionPolicy("events", "", "", 90 * _DAY),
    RetentionPolicy("outbox", "", "", 7 * _DAY),
    RetentionPolicy("workers", "", "", 1 * _DAY),
    RetentionPolicy("schedule_slots", "", "", 30 * _DAY),
)


def retention(store: Store) -> Retention:
    """The policies of the store, and what they do."""
    return Retention(store)


class Retention:
    """Policies are kept in the database; every worker carries them out."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def keep(
        self,
        what: str,
        age: timedelta | None = None,
        *,
        days: float | None = None,
        hours: float | None = None,
        seconds: float | None = None,
        workflow: str = "",
        status: RunStatus | str = "",
    ) -> RetentionPolicy:
        """What is older goes. The most specific policy counts: workflow and status, workflow, status, any.

        For `archived_messages`, `workflow` is the queue's name.
        """
        kind, status = _checked(what, workflow, status)
        length = _age(age, days=days, hours=hours, seconds=seconds)
        db = await self._store.ready()
        if workflow and kind == "archived_messages":
            await queues.get(db, workflow)
        elif workflow:
            await workflows.get(db, workflow)
        await tables.set_policy(db, kind, workflow, status, keep_seconds=length)
        return RetentionPolicy(kind, workflow, status, timedelta(seconds=length))

    async def keep_recommended(self) -> list[RetentionPolicy]:
        """A set to begin with; policies that are there already stay as they are. Returns all."""
        await tables.add_policies(await self._store.ready(), RECOMMENDED)
        return await self.policies()

    async def forget(self, what: str, *, workflow: str = "", status: RunStatus | str = "") -> bool:
        """Removes a policy, not what it speaks of; False when there was none."""
        kind, status = _checked(what, workflow, status)
        return await tables.remove_policy(await self._store.ready(), kind, workflow, status)

    async def policies(self) -> list[RetentionPolicy]:
        return await tables.policies(await self._store.ready())

    async def apply(
        self, *, dry_run: bool = False, gently: bool = True, on_progress: Callable[[int], None] | None = None
    ) -> RetentionReport:
        """Deletes now what is due, in small batches; with `dry_run` only counts, up to 100,000 for each policy.

        Not `gently`: without the pauses that leave room for other work, some six times as fast. `on_progress` is told
        how many more are gone.
        """
        lengths = PAUSE_LENGTHS if gently else 0.0
        janitor = Janitor(await self._store.ready(), self._store.config, pause_lengths=lengths)
        return await (janitor.count() if dry_run else janitor.sweep(on_progress=on_progress))

    async def purge_runs(
        self,
        age: timedelta | None = None,
        *,
        workflow: str,
        days: float | None = None,
        hours: float | None = None,
        seconds: float | None = None,
        status: RunStatus | str = "",
        dry_run: bool = True,
    ) -> RetentionReport:
        """Once, whatever the policies say: the workflow's ended runs (of one status) that ended that long ago.

        They are gone for good, so it only counts unless `dry_run=False`.
        """
        kind, status = _checked("runs", workflow, status)
        length = _age(age, days=days, hours=hours, seconds=seconds)
        db = await self._store.ready()
        target = (await workflows.get(db, checked_name("workflow", workflow))).workflow_id
        statuses = [status] if status else list(map(str, ENDED))
        todo = [Range(kind, workflow, status, length, target, each) for each in statuses]
        janitor = Janitor(db, self._store.config)
        return await (janitor.count(todo) if dry_run else janitor.sweep(todo))

    async def delete_dead_outbox_events(
        self,
        age: timedelta | None = None,
        *,
        days: float | None = None,
        hours: float | None = None,
        seconds: float | None = None,
    ) -> int:
        """Once: outbox events that were given up that long ago, which no policy deletes; returns how many."""
        length = _age(age, days=days, hours=hours, seconds=seconds)
        janitor = Janitor(await self._store.ready(), self._store.config)
        return (await janitor.sweep([Range("outbox", "", "", length, dead=True)])).total


def _checked(what: str, workflow: str, status: RunStatus | str) -> tuple[What, str]:
    kind = next((each for each in KINDS if each == what), None)
    if kind is None:
        raise ConfigError(f"retention does not know {what!r}", hint=f"it keeps {', '.join(KINDS)}")
    if workflow != "":
        if kind not in ("runs", "deleted_runs", "archived_messages"):
            raise ConfigError(f"retention of {kind} is the same for all", hint=f"leave out workflow={workflow!r}")
        checked_name("queue" if kind == "archived_messages" else "workflow", workflow)
    if status != "":
        if kind != "runs":
            raise ConfigError(f"only runs are kept by status, not {kind}", hint=f"leave out status={status!r}")
        if status not in ENDED:
            raise ConfigError(
                f"only what has ended is deleted, so status must be one of {', '.join(ENDED)} or left out, "
                f"not {status!r}",
                hint="for runs in any status there is deleted_runs, after workflow(...).delete",
            )
    return kind, str(status)


def _age(age: timedelta | None, *, days: float | None, hours: float | None, seconds: float | None) -> float:
    parts = [("days", days, 86400.0), ("hours", hours, 3600.0), ("seconds", seconds, 1.0)]
    given = [(name, value, unit) for name, value, unit in parts if value is not None]
    if (age is None) is not bool(given):
        raise ConfigError("say how long, either by a timedelta or by days=, hours= and seconds= (0: delete at once)")
    if age is not None:
        if not isinstance(age, timedelta):
            raise ConfigError(f"an age is a timedelta, not {age!r}", hint="or say days=, hours= or seconds=")
        return checked_seconds(age, "age")
    return checked_seconds(sum(checked_seconds(value, name) * unit for name, value, unit in given), "age")
