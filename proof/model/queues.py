"""The model of queues: what a message goes through, in plain dicts. No SQL, no clock but the one it is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple


class Name(NamedTuple):
    """Everything is named by the operation that made it, and by its place there: names sort by age."""

    operation: int
    place: int

    def __repr__(self) -> str:
        return f"#{self.operation}.{self.place}"


# A message, and the token under which somebody held it once.
Fence = tuple[Name, int]
# As good as never: what a person has put away. (Half of it tells the two apart.)
CENTURY = timedelta(days=36525)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RefusedError(Exception):
    """The operation must be refused with an error of this class."""


class NotAllowedError(Exception):
    """The answer is none that may be given."""


@dataclass(slots=True)
class Message:
    """What is live."""

    queue: str
    payload: Any
    priority: int
    visible_after: datetime
    enqueued_at: datetime
    max_attempts: int
    run: Name | None = None
    attempts: int = 0
    token: int = 0
    holder: str | None = None


@dataclass(slots=True)
class Archived:
    queue: str
    payload: Any
    priority: int
    enqueued_at: datetime
    attempts: int
    token: int
    archived_by: str | None
    archived_at: datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """A fence as somebody remembers it, however long ago."""

    message: Name
    token: int
    worker: str
    queue: str
    run: Name | None
    attempts: int
    max_attempts: int

    @property
    def fence(self) -> Fence:
        return self.message, self.token


@dataclass(slots=True)
class QueueModel:
    """`visible_after` and `token` are all there is: a delay, a lease, a hand-back and a crash are the same thing."""

    now: datetime
    queues: dict[str, datetime | None]
    messages: dict[Name, Message] = field(default_factory=dict)
    archived: dict[Name, Archived] = field(default_factory=dict)
    leases: dict[Name, Lease] = field(default_factory=dict)
    operation: int = 0
    _made: int = 0

    def begin(self, operation: int) -> None:
        self.operation, self._made = operation, 0

    def new_name(self) -> Name:
        self._made += 1
        return Name(self.operation, self._made)

    def after(self, seconds: float) -> datetime:
        return self.now + timedelta(seconds=seconds)

    def advance(self, *, seconds: float) -> None:
        self.now = self.after(seconds)

    # -- into the queue, and out of it -------------------------------------------------------------------

    def enqueue(
        self, *, queue: str, payloads: Sequence[Any], delay: float, priority: int, max_attempts: int
    ) -> list[Name]:
        names = []
        for payload in payloads:
            names.append(self.new_name())
            self.messages[names[-1]] = Message(queue, payload, priority, self.after(delay), self.now, max_attempts)
        return names

    def ready(self, queue: str) -> list[Name]:
        """What may be leased, in its order: by priority, then by how long it has been visible, then by age."""
        if self.queues[queue] is not None:
            return []
        found = [
            (-m.priority, m.visible_after, name)
            for name, m in self.messages.items()
            if m.queue == queue and m.attempts < m.max_attempts and m.visible_after <= self.now
        ]
        return [name for _, _, name in sorted(found)]

    def dequeue(self, *, worker: str, queue: str, batch: int, seconds: float, seen: Sequence[Name]) -> list[Lease]:
        return self.take({queue: (seconds, batch)}, worker=worker, batch=batch, seen=seen)

    def take(
        self, sources: dict[str, tuple[float, int]], *, worker: str, batch: int, seen: Sequence[Name]
    ) -> list[Lease]:
        """Judges the answer, then leases what it holds: queue -> (lease seconds, the most of it)."""
        self._judge(sources, batch, seen)
        # In one order, whatever that of the answer: between queues of one priority it is free.
        order = [name for queue in sources for name in self.ready(queue)]
        leases = []
        for name in sorted(seen, key=order.index):
            message = self.messages[name]
            message.visible_after = self.after(sources[message.queue][0])
            message.attempts += 1
            message.token = self.next_token(message)
            message.holder = worker
            leases.append(self.leased(name))
        return leases

    def next_token(self, message: Message) -> int:
        """Greater than every other of this message, and of no other time."""
        return max(message.token + 1, (self.now - EPOCH) // timedelta(microseconds=1))

    def leased(self, name: Name) -> Lease:
        m = self.messages[name]
        lease = Lease(name, m.token, str(m.holder), m.queue, m.run, m.attempts, m.max_attempts)
        self.leases[self.new_name()] = lease
        return lease

    def _judge(self, sources: dict[str, tuple[float, int]], batch: int, seen: Sequence[Name]) -> None:
        ready = {queue: self.ready(queue) for queue in sources}
        priorities = [self.messages[name].priority for name in seen]
        if priorities != sorted(priorities, reverse=True):
            raise NotAllowedError(f"priorities {priorities} out of order")
        limited = False
        for queue, (_, most) in sources.items():
            mine = [name for name in seen if self.messages[name].queue == queue]
            if mine != ready[queue][: len(mine)]:
                raise NotAllowedError(f"{mine} of {queue}; its order is {ready[queue]}")
            if len(mine) > most:
                raise NotAllowedError(f"{len(mine)} of {queue}; no more than {most} were asked for")
            limited = limited or len(ready[queue]) > most
        # By priority over all queues, and of one priority the queues in the order given.
        order = [name for queue in sources for name in ready[queue]]
        best = sorted(order, key=lambda name: -self.messages[name].priority)[:batch]
        if not limited and set(seen) != set(best):
            raise NotAllowedError(f"{sorted(seen)}; it must be {sorted(best)}")
        # Where a limit cuts one queue short there may be fewer than there could be, but never none.
        if limited and (len(seen) > batch or (not seen and best)):
            raise NotAllowedError(f"{len(seen)} of {batch}, and {len(best)} could be had")

    # -- what its holder does: fenced --------------------------------------------------------------------

    def held(self, fence: Fence) -> Message | None:
        message = self.messages.get(fence[0])
        return message if message and message.token == fence[1] and message.holder else None

    def _mine(self, leases: Iterable[Name]) -> dict[Name, Message]:
        fences = dict(self.leases[lease].fence for lease in leases)
        return {name: m for name, token in fences.items() if (m := self.held((name, token)))}

    def archive(self, *, leases: Sequence[Name]) -> set[Name]:
        mine = self._mine(leases)
        for name, m in mine.items():
            self.archived[name] = Archived(
                m.queue, m.payload, m.priority, m.enqueued_at, m.attempts, m.token, m.holder, self.now
            )
            del self.messages[name]
        return set(mine)

    def delete_messages(self, *, leases: Sequence[Name]) -> set[Name]:
        mine = self._mine(leases)
        for name in mine:
            del self.messages[name]
        return set(mine)

    def extend(self, *, leases: Sequence[Name], seconds: float) -> set[Name]:
        mine = self._mine(leases)
        for message in mine.values():
            message.visible_after = self.after(seconds)
        return set(mine)

    def release(self, *, leases: Sequence[Name], delay: float, count_attempt: bool) -> set[Name]:
        mine = self._mine(leases)
        for message in mine.values():
            self._back(message, self.after(delay), give_back=0 if count_attempt else 1)
        return set(mine)

    def hand_back(self, *, leases: Sequence[Name], delay: float, dead: bool) -> set[Name]:
        """As a handler that failed does: the attempt counts, or was the last."""
        mine = self._mine(leases)
        for message in mine.values():
            self._back(message, self.after(delay), give_back=0)
            if dead:
                message.attempts = message.max_attempts
        return set(mine)

    def turn(
        self, *, worker: str, queue: str, batch: int, seconds: float, leases: Sequence[Name], keep: bool, seen: Any
    ) -> tuple[int, list[Lease]]:
        """Settles what is done and leases the next: (how many were lost, the leases)."""
        wanted = {self.leases[lease].message for lease in leases}
        done = self.archive(leases=leases) if keep else self.delete_messages(leases=leases)
        taken = self.take({queue: (seconds, batch)}, worker=worker, batch=batch, seen=seen[1])
        return len(wanted) - len(done), taken

    @staticmethod
    def _back(message: Message, visible_after: datetime, *, give_back: int) -> None:
        message.visible_after = visible_after
        message.holder = None
        message.attempts -= give_back

    # -- what whoever looks after it does ----------------------------------------------------------------

    def release_worker(self, *, worker: str) -> int:
        held = [m for m in self.messages.values() if m.holder == worker and m.visible_after > self.now]
        for message in held:
            self._back(message, self.now, give_back=1)
        return len(held)

    def dead_letters(self, *, queue: str) -> list[Name]:
        dead = [(self.messages[name].visible_after, name) for name in self._dead(queue)]
        return [name for _, name in sorted(dead)]

    def _dead(self, queue: str) -> list[Name]:
        return [
            name
            for name, m in self.messages.items()
            if m.queue == queue and m.attempts >= m.max_attempts and m.visible_after <= self.now
        ]

    def replay(self, *, queue: str, some: Sequence[Name] | None) -> int:
        dead = [name for name in self._dead(queue) if some is None or name in some]
        for name in dead:
            self._back(self.messages[name], self.now, give_back=self.messages[name].attempts)
        return len(dead)

    def pause_queue(self, *, queue: str) -> None:
        self.queues[queue] = self.queues[queue] or self.now

    def resume_queue(self, *, queue: str) -> None:
        self.queues[queue] = None

    def purge(self, *, queue: str, archived: bool) -> int:
        table: dict[Name, Any] = self.archived if archived else self.messages
        gone = [name for name, each in table.items() if each.queue == queue]
        for name in gone:
            del table[name]
        return len(gone)

    def metrics(self, *, queue: str) -> tuple[int, ...]:
        """ready, scheduled, leased, dead, archived"""
        mine = [m for m in self.messages.values() if m.queue == queue]
        fresh = [m for m in mine if m.attempts < m.max_attempts]
        later = [m for m in mine if m.visible_after > self.now]
        return (
            sum(m.visible_after <= self.now for m in fresh),
            sum(m.holder is None for m in later),
            sum(m.holder is not None for m in later),
            len(self._dead(queue)),
            sum(a.queue == queue for a in self.archived.values()),
        )

    def next_due(self, *, queues: Sequence[str]) -> float | None:
        """Seconds until something may be leased."""
        due = [
            (m.visible_after - self.now).total_seconds()
            for m in self.messages.values()
            if m.queue in queues and self.queues[m.queue] is None and m.attempts < m.max_attempts
        ]
        return min(due, default=None)
