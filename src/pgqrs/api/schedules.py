"""Schedules: runs at their times, declared in code or created while the program runs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args

from pgqrs.api.arguments import (
    check_texts,
    checked_attributes,
    checked_batch,
    checked_priority,
    checked_whole,
)
from pgqrs.config import Config
from pgqrs.db import hints
from pgqrs.db.database import Database
from pgqrs.db.tables import schedules as table
from pgqrs.db.tables import workflows
from pgqrs.db.tables.schedules import Definition
from pgqrs.engine.background import BackgroundLoop
from pgqrs.engine.definitions.binding import Signature, input_text, storable
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.engine.definitions.input_schema import stored_signature
from pgqrs.engine.schedules.cadence import Cadence
from pgqrs.engine.schedules.scheduler import MOST_CATCH_UP, Scheduler, cadence_of, next_after
from pgqrs.errors import ConfigError
from pgqrs.serialization import encode
from pgqrs.text.durations import checked_seconds
from pgqrs.text.names import checked_name
from pgqrs.types import Returning, Schedule, ScheduleSlot

if TYPE_CHECKING:
    from pgqrs.api.store import Store

log: logging.Logger = logging.getLogger("pgqrs.scheduler")

Overlap = Literal["skip", "queue", "cancel", "allow"]
CatchUp = Literal["none", "last", "all"]


class ScheduleOptions(TypedDict, total=False):
    """What `create` and `@workflow(schedule=...)` take beside the workflow; exactly one of cron, every and at."""

    cron: str | None
    every: float | timedelta | None
    at: datetime | None
    timezone: str
    params: Any
    overlap: Overlap
    catch_up: CatchUp
    catch_up_limit: int
    jitter: float | timedelta
    priority: int
    max_attempts: int | None
    attributes: dict[str, Any] | None


def schedules(store: Store) -> Schedules:
    """The schedules of a store, with every verb."""
    return Schedules(store)


class Schedules:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop: BackgroundLoop | None = None
        self._stopped = False

    async def create(
        self,
        name: str,
        workflow: Returning[Any] | str,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        at: datetime | None = None,
        timezone: str = "UTC",
        params: Any = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "last",
        catch_up_limit: int = 100,
        jitter: float | timedelta = 0,
        priority: int = 0,
        max_attempts: int | None = None,
        attributes: dict[str, Any] | None = None,
    ) -> Schedule:
        """The schedule, made or changed to be so; one that is so already stays as it is.

        `workflow` is a name or a decorated function. A changed cron, interval, time or zone counts from now on; a
        pause stays a pause. Raises ConfigError or WorkflowNotFound before anything is written.
        """
        db = await self._store.ready()
        wanted = _definition(
            name,
            workflow,
            max_bytes=self._store.config.max_payload_bytes,
            signature=await self._signature(workflow),
            cron=cron,
            every=every,
            at=at,
            timezone=timezone,
            params=params,
            overlap=overlap,
            catch_up=catch_up,
            catch_up_limit=catch_up_limit,
            jitter=jitter,
            priority=priority,
            max_attempts=max_attempts,
            attributes=attributes,
        )
        schedule = await table.upsert(db, wanted, next_after=next_after)
        db.hints.announce([hints.CATALOGUE])
        return schedule

    async def _signature(self, workflow: Any) -> Signature | None:
        """What the workflow takes, if it is known; an unknown workflow is told of when it is written."""
        code: Signature | None = getattr(workflow, "signature", None)
        name = getattr(workflow, "name", workflow)
        if code is not None or not isinstance(name, str):
            return code
        known = await workflows.input_schema(await self._store.ready(), checked_name("workflow", name))
        return stored_signature(name, known)

    async def get(self, name: str) -> Schedule:
        schedule, _ = await table.get(await self._store.ready(), _named(name))
        return schedule

    async def list(self) -> _Schedules:
        """All of them, by name."""
        return await table.list_all(await self._store.ready())

    async def pause(self, name: str) -> None:
        """Nothing is triggered from now on, queued slots included; runs that were triggered go on."""
        await table.pause(await self._store.ready(), _named(name))

    async def resume(self, name: str, *, catch_up: bool = False) -> None:
        """Goes on with the next slot. A pause is a decision and no outage: what passed meanwhile is not made up for,
        unless `catch_up` says that its catch-up policy shall see to it."""
        db = await self._store.ready()
        await table.resume(db, _named(name), catch_up=catch_up, next_after=next_after)
        db.hints.announce([hints.CATALOGUE])

    async def trigger(self, name: str, *, actor: str | None = None) -> int:
        """A run now, beside the slots: paused or not, whatever the overlap policy. Returns its id."""
        check_texts(actor=actor)
        db = await self._store.ready()
        fired = await table.trigger(db, _named(name), max_attempts=self._store.config.max_attempts, actor=actor)
        db.hints.announce(fired.topics(published=bool(db.audit_policy.published)))
        return fired.run_ids[0]

    async def next(self, name: str, count: int = 5) -> _Times:
        """The next slots in UTC, without jitter; of a paused schedule, as if it were resumed now."""
        schedule, now = await table.get(await self._store.ready(), _named(name))
        slots = cadence_of(schedule).slots_after(max(now, schedule.slots_after))
        return [*islice(slots, checked_batch("count", count))]

    async def slots(self, name: str, limit: int = 50) -> _Slots:
        """What became of the latest slots, newest first."""
        return await table.slots(await self._store.ready(), _named(name), limit=checked_batch("limit", limit))

    async def delete(self, name: str) -> None:
        """The schedule and its history are gone; runs that it triggered go on."""
        await table.delete(await self._store.ready(), _named(name))

    async def run(self) -> None:
        """Triggers what is due until `stop`: for a process that only schedules. Workers do so by themselves."""
        self._loop = Scheduler(await self._store.ready(), self._store.config).loop()
        if self._stopped:
            self._loop.stop()
        await self._loop.run()

    def stop(self) -> None:
        """`run` returns soon. Idempotent."""
        self._stopped = True
        if self._loop is not None:
            self._loop.stop()

    def __repr__(self) -> str:
        return f"<Schedules of {self._store!r}>"


# Inside the class, `list` is a verb.
_Schedules = list[Schedule]
_Slots = list[ScheduleSlot]
_Times = list[datetime]


def declared(workflow: str, given: Any) -> dict[str, Any]:
    """What `@workflow(schedule=...)` was given, as arguments of `create`.

    Text is a cron, a timedelta an interval, a datetime one point in time; a dict holds the options of `create`, and
    may hold a `name` other than the workflow's.
    """
    match given:
        case str():
            options: dict[str, Any] = {"cron": given}
        case timedelta():
            options = {"every": given}
        case datetime():
            options = {"at": given}
        case Mapping():
            options = dict(given)
        case _:
            raise ConfigError(
                f"schedule of workflow {workflow!r} must be a cron text, a timedelta, a datetime or a dict of the "
                f"options of schedules.create, not {given!r}"
            )
    name = options.pop("name", workflow)
    unknown = [str(key) for key in options if key not in ScheduleOptions.__annotations__]
    if unknown:
        known = ", ".join(("name", *ScheduleOptions.__annotations__))
        raise ConfigError(f"schedule of workflow {workflow!r} does not know {unknown[0]!r}", hint=f"it takes {known}")
    return {"name": name, "workflow": workflow, **options}


def check_declared(
    workflow: str, given: Any, *, handler: Handler | None = None, max_bytes: int = 2**31
) -> Definition:
    """As it will be stored, or ConfigError: decorators complain at import, not when a worker starts."""
    return _definition(**declared(workflow, given), signature=handler, max_bytes=max_bytes)


async def declare(db: Database, config: Config, handlers: Iterable[Handler]) -> None:
    """Makes the schedules that the handlers' code declares; where a stored one differs, the code wins."""
    for handler in handlers:
        given = handler.options.schedule
        if given is None:
            continue
        wanted = check_declared(handler.name, given, handler=handler, max_bytes=config.max_payload_bytes)
        try:
            await table.upsert(db, wanted, next_after=next_after)
        except ConfigError as error:
            # A point in time that has passed stands in the code for good: that must not keep workers from starting.
            if wanted.kind != "once":
                raise
            log.warning("%s", error)


def _definition(
    name: str,
    workflow: Any,
    *,
    max_bytes: int,
    signature: Signature | None,
    cron: str | None = None,
    every: float | timedelta | None = None,
    at: datetime | None = None,
    timezone: str = "UTC",
    params: Any = None,
    overlap: str = "skip",
    catch_up: str = "last",
    catch_up_limit: int = 100,
    jitter: float | timedelta = 0,
    priority: int = 0,
    max_attempts: int | None = None,
    attributes: dict[str, Any] | None = None,
) -> Definition:
    """Everything checked and encoded, before anything is written."""
    interval = None if every is None else timedelta(seconds=checked_seconds(every, "every", least=1.0))
    cadence = Cadence.of(cron=cron, every=interval, at=at, timezone=timezone)
    checked_priority(priority)
    if max_attempts is not None:
        checked_whole("max_attempts", max_attempts, least=1, most=2**31 - 1)
    checked_attributes(attributes)
    options = {"priority": priority, "max_attempts": max_attempts, "attributes": attributes}
    kept = {key: value for key, value in options.items() if value}
    return Definition(
        name=_named(name),
        workflow=checked_name("workflow", getattr(workflow, "name", workflow)),
        kind=cadence.kind,
        cron=cadence.cron,
        interval_seconds=None if cadence.every is None else cadence.every.total_seconds(),
        once_at=cadence.at,
        timezone=cadence.timezone,
        input=_input(signature, params, max_bytes=max_bytes),
        options=encode(kept, max_bytes=max_bytes) if kept else None,
        overlap=_one_of("overlap", overlap, get_args(Overlap)),
        catch_up=_one_of("catch_up", catch_up, get_args(CatchUp)),
        catch_up_limit=checked_whole("catch_up_limit", catch_up_limit, least=1, most=MOST_CATCH_UP),
        jitter_seconds=checked_seconds(jitter, "jitter"),
    )


def _input(signature: Signature | None, params: Any, *, max_bytes: int) -> str | None:
    """What each run gets; None for nothing, which must do for the workflow if its parameters are known."""
    text = input_text(signature, storable(params, max_bytes=max_bytes))
    return None if text == "null" else text


def _one_of(argument: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ConfigError(f"{argument} must be one of {', '.join(allowed)}, not {value!r}")
    return value


def _named(name: str) -> str:
    return checked_name("schedule", name)
