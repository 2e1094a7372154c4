"""The same operations on a real store: each verb of the model, carried out; what comes back is said in its names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Self

import pgqrs
from pgqrs.api.message import Message
from pgqrs.db.runs import claims, settlement
from pgqrs.db.runs.claims import Claim
from pgqrs.db.runs.records import Ended, RunWrite, StepRecord, Suspended
from pgqrs.db.runs.triggers import NewRuns
from pgqrs.db.tables import messages, workers
from pgqrs.db.tables import schedules as timetable
from pgqrs.db.tables import workflows as definitions
from pgqrs.db.tables.messages import Lease as RealLease
from pgqrs.db.tables.messages import PriorityRange, Return, Source
from pgqrs.engine.queues.scan_hints import ScanHints
from pgqrs.engine.schedules.scheduler import plan
from pgqrs.types import ENDED, StepStatus
from proof.model.queues import Lease, Name
from proof.model.records import PLACES, End, Report
from proof.model.schedules import CATCH_UP_LIMIT, EVERY, WholeModel

QUEUES = ("a", "b")
# The second gets a run whenever one of the first fails.
WORKFLOWS = {"mail": "undertaker", "undertaker": None, "zip": None}
CONSUMERS = ("a1", "a2", "b1", "b2")
WORKERS = ("w1", "w2", "w3")
SCHEDULES = ("often", "always")


class _Everywhere(ScanHints):
    """Where a dequeue begins to read depends on how long the last one took: not here."""

    def bands(self) -> list[PriorityRange]:
        return []


class World:
    """A store, and which of its ids are which of the model's names."""

    def __init__(self, store: pgqrs.Store, clock: pgqrs.ManualClock) -> None:
        self.store = store
        self.db = store.database
        self.clock = clock
        self._start = clock.now()
        self.admin = pgqrs.admin(store)
        self.schedules = pgqrs.schedules(store)
        self.consumers: dict[str, Any] = {}
        self.producers: dict[str, Any] = {}
        self.definitions: dict[str, definitions.WorkflowRow] = {}
        self.worker_ids: dict[str, int] = {}
        self.queue_ids: dict[str, int] = {}
        self.forget()

    @classmethod
    async def open(cls, config: pgqrs.Config) -> Self:
        clock = pgqrs.ManualClock()
        world = cls(await pgqrs.connect_with(config, install=True, clock=clock), clock)
        await world._people()
        return world

    async def _people(self) -> None:
        for queue in QUEUES:
            await self.store.create_queue(queue)
            self.producers[queue] = await self.store.producer(queue)
        for name in CONSUMERS:
            self.consumers[name] = await self.store.consumer(name[0], name=name)
            self.consumers[name]._holder._heads = _Everywhere()
            self.worker_ids[name] = self.consumers[name].worker_id
            self.queue_ids[name[0]] = self.consumers[name]._holder.queue_id
        for name in reversed(WORKFLOWS):
            await self.store.create_workflow(name)
            self.definitions[name] = await self.store.workflow(name)
            self.queue_ids[name] = self.definitions[name].queue_id
        for name, dead_letter in WORKFLOWS.items():
            await self.store.create_workflow(name, dead_letter=dead_letter)
        for name in WORKERS:
            self.worker_ids[name] = await workers.register(
                self.db, queue_id=None, name=name, port=0, info={"handlers": list(WORKFLOWS)}
            )

    def rewind(self) -> None:
        """Set the clock to where each walk starts.

        Lease tokens are times, and answers hold tokens: a walk that began later than on another database, because the
        walks before it (with limits, they may differ) took longer there, answered differently.
        """
        self.clock.advance((self._start - self.clock.now()).total_seconds())

    def forget(self) -> None:
        """A new walk: nothing has a name yet."""
        self.model = WholeModel(self.clock.now(), dict.fromkeys((*QUEUES, *WORKFLOWS)), workflows=dict(WORKFLOWS))
        self.ids: dict[Name, int] = {}
        self.names: dict[tuple[str, int], Name] = {}
        self.deliveries: dict[Name, Message | RealLease | Claim] = {}
        self.schedule_ids: dict[str, int] = {}
        # What the operation under way has leased, until the model has named it.
        self._fresh: list[Message | RealLease | Claim] = []

    # -- names and ids -----------------------------------------------------------------------------------

    def bind(self, kind: str, name: Name, real: int) -> None:
        """From now on they are the same; raises when one of them is something else already."""
        if self.ids.setdefault(name, real) != real or self.names.setdefault((kind, real), name) != name:
            raise AssertionError(f"{kind} {real} is {self.names.get((kind, real))}, not {name}")

    def run_name(self, real: int) -> Name:
        return self.names["run", real]

    def _message_name(self, lease: RealLease) -> Name:
        """A run's message is known by its run, any other by its enqueue."""
        if lease.run_id is not None:
            name = self.model.name_of_message(self.run_name(lease.run_id))
            self.bind("message", name, lease.message_id)
        return self.names["message", lease.message_id]

    def agree(self, answer: Any, expected: Any) -> None:
        """Raises unless the answer is the model's. Whatever is new has both an id and a name from here on."""
        match expected:
            case [Name(), *_] if all(type(each) is int for each in answer):
                for name, real in zip(expected, answer, strict=True):
                    self.bind("run" if name in self.model.runs else "message", name, real)
            case _ if not self._fresh:
                assert answer == expected, f"the answer is {answer}, must be {expected}"
        for name, lease in self.model.leases.items():
            if name.operation == self.model.operation:
                self._agree_on_lease(name, lease)
        assert not self._fresh, f"leased {self._fresh}, and should not have been"

    def _agree_on_lease(self, name: Name, lease: Lease) -> None:
        if len(self._fresh) == 1:
            self.bind("message", lease.message, _lease_of(self._fresh[0]).message_id)
        [delivery] = [each for each in self._fresh if _lease_of(each).message_id == self.ids[lease.message]]
        self._fresh.remove(delivery)
        self.deliveries[name] = delivery
        real = _lease_of(delivery)
        seen = (real.attempts, real.max_attempts, real.lease_token, real.visible_after)
        wanted = (lease.attempts, lease.max_attempts, lease.token, self.model.messages[lease.message].visible_after)
        assert seen == wanted, f"leased as {seen}, must be {wanted}"
        if isinstance(delivery, Claim):
            said = {
                step: (s.status, self.output(step, s.output), self.decoded(s.error), s.attempts)
                for step, s in delivery.steps.items()
            }
            steps = self.model.recorded(self.run_name(delivery.run_id))
            assert said == steps, f"claimed with steps {said}, must be {steps}"

    # -- queues ------------------------------------------------------------------------------------------

    async def advance(self, *, seconds: float) -> None:
        self.clock.advance(seconds)

    async def enqueue(self, *, queue: str, payloads: Sequence[Any], **options: Any) -> list[int]:
        if len(payloads) == 1:
            return [await self.producers[queue].enqueue(payloads[0], **options)]
        ids: list[int] = await self.producers[queue].enqueue_many(payloads, **options)
        return ids

    async def dequeue(self, *, worker: str, queue: str, batch: int, seconds: float) -> list[Name]:
        del queue
        self._fresh = await self.consumers[worker].dequeue(batch, lease_seconds=seconds)
        return [self._message_name(_lease_of(each)) for each in self._fresh]

    async def turn(
        self, *, worker: str, queue: str, batch: int, seconds: float, leases: Sequence[Name], keep: bool
    ) -> tuple[int, list[Name]]:
        turn = await messages.settle_and_lease(
            self.db,
            Source(self.queue_ids[queue], seconds),
            worker_id=self.worker_ids[worker],
            batch=batch,
            done=[self._fence(lease)[1:] for lease in leases],
            keep=keep,
        )
        self._fresh = turn.leases
        return turn.lost, [self._message_name(lease) for lease in turn.leases]

    def _fence(self, lease: Name) -> tuple[int, int, int]:
        real = _lease_of(self.deliveries[lease])
        return real.run_id or 0, real.message_id, real.lease_token

    async def _by_consumer(self, verb: str, leases: Sequence[Name], *args: Any, **options: Any) -> set[Name]:
        """As their consumer does where it has them in hand, else as a worker's heartbeat does."""
        given = [self.deliveries[lease] for lease in leases]
        if all(isinstance(each, Message) for each in given):
            consumer = self.consumers[self.model.leases[leases[0]].worker]
            if len(leases) > 1:
                done = await getattr(consumer, f"{verb}_many")(given, *args, **options)
            else:
                # One alone says by an error that it is not its any more.
                try:
                    await getattr(given[0], verb)(*args, **options)
                    done = [given[0].id]  # type: ignore[union-attr]
                except pgqrs.LeaseLost:
                    done = []
        else:
            named = {"seconds": args[0]} if args else options
            done = await getattr(messages, verb)(self.db, [self._fence(lease)[1:] for lease in leases], **named)
        return {self.names["message", each] for each in done}

    async def archive(self, *, leases: Sequence[Name]) -> set[Name]:
        return await self._by_consumer("archive", leases)

    async def delete_messages(self, *, leases: Sequence[Name]) -> set[Name]:
        return await self._by_consumer("delete", leases)

    async def extend(self, *, leases: Sequence[Name], seconds: float) -> set[Name]:
        return await self._by_consumer("extend", leases, seconds)

    async def release(self, *, leases: Sequence[Name], delay: float, count_attempt: bool) -> set[Name]:
        return await self._by_consumer("release", leases, delay=delay, count_attempt=count_attempt)

    async def hand_back(self, *, leases: Sequence[Name], delay: float, dead: bool) -> set[Name]:
        remembered = [self.model.leases[lease] for lease in leases]
        returns = [
            Return(*self._fence(lease)[1:], delay, each.max_attempts if dead else each.attempts)
            for lease, each in zip(leases, remembered, strict=True)
        ]
        return {self.names["message", each] for each in await messages.hand_back(self.db, returns)}

    async def release_worker(self, *, worker: str) -> int:
        return await self.admin.release_worker_messages(self.worker_ids[worker])

    async def dead_letters(self, *, queue: str) -> list[Name]:
        return [self.names["message", each.id] for each in await self.admin.dead_letters(queue)]

    async def replay(self, *, queue: str, some: Sequence[Name] | None) -> int:
        return await self.admin.replay(queue, None if some is None else [self.ids[name] for name in some])

    async def pause_queue(self, *, queue: str) -> None:
        await self.admin.pause_queue(queue)

    async def resume_queue(self, *, queue: str) -> None:
        await self.admin.resume_queue(queue)

    async def purge(self, *, queue: str, archived: bool) -> int:
        return await self.admin.purge(queue, archived=archived)

    async def metrics(self, *, queue: str) -> tuple[int, ...]:
        seen = await self.admin.queue_metrics(queue)
        return seen.ready, seen.scheduled, seen.leased, seen.dead, seen.archived

    async def next_due(self, *, queues: Sequence[str]) -> float | None:
        return await messages.next_due(self.db, [self.queue_ids[queue] for queue in queues])

    # -- what workers do ---------------------------------------------------------------------------------

    async def trigger(
        self, *, workflow: str, inputs: Sequence[Any], keys: Sequence[str], **options: Any
    ) -> list[int]:
        flow = pgqrs.workflow(workflow)
        if len(inputs) == 1:
            key = keys[0] if keys else None
            return [await flow.trigger(inputs[0], idempotency_key=key, **options).execute(self.store)]
        ids: list[int] = await flow.trigger_many(inputs, idempotency_keys=keys, **options).execute(self.store)
        return ids

    async def claim(self, *, worker: str, sources: dict[str, tuple[float, int]], batch: int) -> list[Name]:
        self._fresh = await claims.claim(
            self.db,
            [Source(self.queue_ids[queue], seconds, most) for queue, (seconds, most) in sources.items()],
            worker_id=self.worker_ids[worker],
            batch=batch,
        )
        return [self._message_name(_lease_of(each)) for each in self._fresh]

    async def claim_run(self, *, worker: str, run: Name, seconds: float) -> None:
        self._fresh = [
            await claims.claim_run(self.db, self.ids[run], worker_id=self.worker_ids[worker], lease_seconds=seconds)
        ]

    def decoded(self, text: str | None) -> Any:
        return None if text is None else json.loads(text)

    def output(self, step: str, text: str | None) -> Any:
        """Of a step; what spawned children has their ids."""
        value = self.decoded(text)
        return [self.run_name(each) for each in value] if step == "spawn" and value is not None else value

    async def commit(self, *, reports: Sequence[Report]) -> set[Name]:
        writes = [RunWrite(self._fence(r.lease), tuple(map(_record, r.steps)), _end(r.end)) for r in reports]
        held = await settlement.commit(self.db, writes)
        return {r.lease for r, write in zip(reports, writes, strict=True) if write.fence in held}

    async def take_signal(self, *, lease: Name, name: str, step: str) -> tuple[bool, Any]:
        held, taken = await claims.take_signal(self.db, self._fence(lease), _pending(step), name=name)
        return held, None if taken is None else self.decoded(taken.payload)

    async def spawn(self, *, lease: Name, step: str, workflow: str, inputs: Sequence[Any]) -> list[int] | None:
        found, fence = self.definitions[workflow], self._fence(lease)
        new = NewRuns(found.workflow_id, found.queue_id, list(map(json.dumps, inputs)), parent_run_id=fence[0])
        return await claims.spawn(self.db, fence, _pending(step), new)

    async def transact(self, *, lease: Name, step: str, output: Any) -> Any:
        async def work(_: Any) -> tuple[str, list[Any]]:
            return json.dumps(output), []

        return self.decoded(await claims.transact(self.db, self._fence(lease), _pending(step), work))

    async def show_progress(self, *, lease: Name, done: int) -> None:
        await claims.show_progress(self.db, self._fence(lease), text=json.dumps(done))

    async def end_lost(self, *, workflows: Sequence[str]) -> set[Name]:
        queue_ids = [self.queue_ids[each] for each in workflows]
        some = await claims.some_are_lost(self.db, queue_ids)
        ended = await claims.end_lost(
            self.db, queue_ids, error='{"type": "lost"}', last_error="worker_lost", signature="worker_lost"
        )
        assert some == bool(ended), f"some_are_lost says {some}, {len(ended)} were"
        return {self.run_name(each) for each in ended}

    # -- what people do ----------------------------------------------------------------------------------

    def _flow(self, run: Name) -> Any:
        return pgqrs.workflow(self.model.runs[run].workflow)

    async def cancel(self, *, run: Name, reason: str | None) -> None:
        await self._flow(run).cancel(self.ids[run], self.store, reason=reason)

    async def pause(self, *, run: Name, reason: str) -> None:
        await self._flow(run).pause(self.ids[run], self.store, reason=reason)

    async def resume(self, *, run: Name, step: str | None, data: Any) -> None:
        await self._flow(run).resume(self.ids[run], self.store, step=step, data=data)

    async def signal(self, *, run: Name, name: str, payload: Any) -> None:
        await self._flow(run).signal(self.ids[run], self.store, name, payload)

    async def restart(self, *, run: Name) -> None:
        await self._flow(run).restart(self.ids[run], self.store)

    async def reset(self, *, run: Name, from_step: str | None) -> None:
        await self._flow(run).reset(self.ids[run], self.store, from_step=from_step)

    async def delete(self, *, run: Name, reason: str | None) -> None:
        await self._flow(run).delete(self.ids[run], self.store, reason=reason)

    async def restore(self, *, run: Name) -> None:
        await self._flow(run).restore(self.ids[run], self.store)

    # -- schedules ---------------------------------------------------------------------------------------

    async def schedule(self, *, name: str, workflow: str, overlap: Any, catch_up: Any) -> None:
        made = await self.schedules.create(
            name,
            workflow,
            every=EVERY,
            overlap=overlap,
            catch_up=catch_up,
            catch_up_limit=CATCH_UP_LIMIT,
        )
        self.schedule_ids[name] = made.schedule_id

    async def pause_schedule(self, *, name: str) -> None:
        await self.schedules.pause(name)

    async def resume_schedule(self, *, name: str, catch_up: bool) -> None:
        await self.schedules.resume(name, catch_up=catch_up)

    async def delete_schedule(self, *, name: str) -> None:
        await self.schedules.delete(name)

    async def trigger_schedule(self, *, name: str) -> list[int]:
        return [await self.schedules.trigger(name)]

    async def fire(self, *, name: str) -> tuple[int, int, int] | None:
        schedule_id = self.schedule_ids.get(name, 0)
        fired = await timetable.fire(self.db, schedule_id, plan=plan, max_attempts=3)
        return None if fired is None else (len(fired.run_ids), len(fired.cancelled), fired.missed)


def _lease_of(delivery: Message | RealLease | Claim) -> RealLease:
    if isinstance(delivery, Claim):
        return delivery.lease
    return delivery._lease if isinstance(delivery, Message) else delivery


def _pending(step: str) -> StepRecord:
    return StepRecord(step, PLACES[step], StepStatus.PENDING)


def _record(done: Any) -> StepRecord:
    return StepRecord(
        done.step,
        PLACES[done.step],
        done.status,
        output=_text(done.output),
        error=_text(done.error),
        attempts=done.attempts,
    )


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _end(end: End | None) -> Ended | Suspended | None:
    if end is None:
        return None
    if end.status in ENDED:
        return Ended(end.status, _text(end.output), _text(end.error), end.last_error, end.last_error)
    return Suspended(
        end.status,
        delay=end.delay,
        count_attempt=end.count_attempt,
        error=_text(end.error),
        last_error=end.last_error,
        waiting_for=end.waiting_for,
        signals=end.signals,
        children=end.children,
    )
