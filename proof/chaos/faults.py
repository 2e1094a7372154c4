"""The director: breaks things by the seed's dice, each kind in turn, and notes what was broken for whom and when."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import psycopg

from proof.chaos.crew import Crew, Member, Post
from proof.chaos.ledger import Line
from rig.proxy import Proxy
from rig.standby import Pair

# Big faults hit everybody; small ones somebody.
BIG_EVERY_SECONDS = 15.0
SMALL_EVERY_SECONDS = (0.2, 0.8)


@dataclass(frozen=True, slots=True)
class Fault:
    """What was broken, from when to when; `pids` is None for what hits everybody."""

    kind: str
    began: float
    ended: float
    pids: frozenset[int] | None = None

    def hit(self, pids: Iterable[int], since: float, until: float, *, aftermath: float) -> bool:
        """True when one of these processes may have felt it in this time: a lost lease is lost a while later."""
        if self.began > until or self.ended + aftermath < since:
            return False
        return self.pids is None or not self.pids.isdisjoint(pids)


class Director:
    """`run` breaks things for a while; `heal` mends what still is broken then."""

    def __init__(
        self,
        dice: random.Random,
        crew: Crew,
        *,
        lease_seconds: float,
        pair: Pair | None = None,
        lines: dict[Post, list[Proxy]] | None = None,
    ) -> None:
        self.faults: list[Fault] = []
        self._dice = dice
        self._crew = crew
        self._lease_seconds = lease_seconds
        self._pair = pair
        self._lines = lines or {}
        self._under_way: set[asyncio.Task[None]] = set()
        self._kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": self._kill,
            "stall": self._stall,
            "term": self._term,
        }
        if pair is not None:
            self._kinds |= {
                "backend": self._end_backends,
                "reply": self._lose_replies,
                "silence": self._silence,
                "slow": self._slow,
                "cut": self._cut,
            }

    @property
    def counts(self) -> Counter[str]:
        return Counter(fault.kind for fault in self.faults)

    async def run(self, seconds: float) -> None:
        """Each kind once in a round, in an order of its own each time, so that a short run has some of all."""
        deadline = time.monotonic() + seconds
        big = asyncio.create_task(self._big_ones(seconds)) if self._pair is not None else None
        round_: list[str] = []
        try:
            while time.monotonic() < deadline:
                round_ = round_ or self._dice.sample(sorted(self._kinds), len(self._kinds))
                task = asyncio.create_task(self._kinds[round_.pop()]())
                self._under_way.add(task)
                self._crew.look_after()
                await asyncio.sleep(self._dice.uniform(*SMALL_EVERY_SECONDS))
        finally:
            if big is not None:
                await big

    async def heal(self) -> None:
        for task in self._under_way:
            task.cancel()
        for end in await asyncio.gather(*self._under_way, return_exceptions=True):
            if isinstance(end, Exception):
                raise end
        self._under_way.clear()
        for proxies in self._lines.values():
            for proxy in proxies:
                proxy.heal()

    # -- whose turn it is --------------------------------------------------------------------------------

    def _victim(self, *, most: int = 1) -> list[Member]:
        standing = [member for member in self._crew.members if not member.stopped]
        return self._dice.sample(standing, min(self._dice.randint(1, most), len(standing)))

    def _line(self) -> tuple[Member, list[Proxy]]:
        member = self._dice.choice([member for member in self._crew.members if member.post in self._lines])
        return member, self._lines[member.post]

    def _note(self, kind: str, began: float, pids: Iterable[int] | None, *, ended: float | None = None) -> None:
        hit = None if pids is None else frozenset(pids)
        self.faults.append(Fault(kind, began, time.monotonic() if ended is None else ended, hit))

    @asynccontextmanager
    async def _noting(self, kind: str, pids: Iterable[int] | None) -> AsyncIterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._note(kind, began, pids)

    # -- small ones --------------------------------------------------------------------------------------

    async def _kill(self) -> None:
        for member in self._victim(most=3):
            member.signal(signal.SIGKILL)
            self._note("kill", time.monotonic(), [member.pid])
            self._crew.replace(member)

    async def _term(self) -> None:
        [member] = self._victim()
        member.signal(signal.SIGTERM)
        self._note("term", time.monotonic(), [member.pid], ended=time.monotonic() + 5)
        self._crew.replace(member)

    async def _stall(self) -> None:
        """SIGSTOP past the lease. On SQLite it may be in the middle of a write, and then all of them wait."""
        [member] = self._victim()
        member.stopped = True
        member.signal(signal.SIGSTOP)
        try:
            async with self._noting("stall", [member.pid] if self._pair is not None else None):
                await asyncio.sleep(self._dice.uniform(1.2, 2.5) * self._lease_seconds)
        finally:
            member.signal(signal.SIGCONT)
            member.stopped = False

    async def _end_backends(self) -> None:
        try:
            await asyncio.to_thread(self._end_some)
        except psycopg.OperationalError:
            # The server is away: that is somebody else's fault.
            return

    def _end_some(self) -> None:
        assert self._pair is not None
        owners = {
            port: member.pid
            for member in list(self._crew.members)
            for proxy in self._lines.get(member.post, ())
            for port in proxy.server_side_ports
        }
        asked = "select pid, client_port from pg_stat_activity where application_name like 'pgqrs%'"
        found = [(pid, owners[port]) for pid, port in self._pair.primary.sql(asked) if port in owners]
        # Now and then all of them.
        few = self._dice.randint(1, 4) if self._dice.random() < 0.8 else len(found)
        for pid, owner in self._dice.sample(found, min(few, len(found))):
            began = time.monotonic()
            if self._pair.primary.sql(f"select pg_terminate_backend({pid})") == [(True,)]:
                self._note("backend", began, [owner])

    async def _lose_replies(self) -> None:
        member, proxies = self._line()
        for proxy in proxies:
            proxy.lose_replies(self._dice.randint(1, 3))
        # Noted with the time in which the next queries come; how many were lost the proxies count.
        self._note("reply", time.monotonic(), [member.pid], ended=time.monotonic() + self._lease_seconds)

    async def _silence(self) -> None:
        member, proxies = self._line()
        for proxy in proxies:
            proxy.fall_silent()
        try:
            async with self._noting("silence", [member.pid]):
                await asyncio.sleep(self._dice.uniform(0.3, 2) * self._lease_seconds)
        finally:
            for proxy in proxies:
                proxy.heal()
                if self._dice.random() < 0.5:
                    proxy.cut()

    async def _slow(self) -> None:
        member, proxies = self._line()
        for proxy in proxies:
            proxy.latency_seconds = self._dice.uniform(0.02, 0.3)
        try:
            async with self._noting("slow", [member.pid]):
                await asyncio.sleep(self._lease_seconds)
        finally:
            for proxy in proxies:
                proxy.latency_seconds = 0.0

    async def _cut(self) -> None:
        member, proxies = self._line()
        for proxy in proxies:
            proxy.cut()
        self._note("cut", time.monotonic(), [member.pid])

    # -- big ones ----------------------------------------------------------------------------------------

    async def _big_ones(self, seconds: float) -> None:
        """`kill -9` of the whole cluster and failover in turns; at least one of each."""
        rounds = max(2, round(seconds / BIG_EVERY_SECONDS))
        began = time.monotonic()
        for number in range(rounds):
            due = began + seconds * (number + 0.6) / rounds
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await (self._fail_over() if number % 2 else self._kill_cluster())

    async def _kill_cluster(self) -> None:
        assert self._pair is not None
        async with self._noting("cluster", None):
            await asyncio.to_thread(self._pair.restart)

    async def _fail_over(self) -> None:
        pair = self._pair
        assert pair is not None
        if pair.standby is None:
            await asyncio.to_thread(pair.follow)
        await asyncio.to_thread(pair.wait_until_synchronous)
        async with self._noting("failover", None):
            await asyncio.to_thread(pair.fail_over)
            retarget(self._lines.values(), pair)
        await asyncio.to_thread(pair.follow)


def retarget(lines: Iterable[list[Proxy]], pair: Pair) -> None:
    """Lines with one proxy go to whoever leads; those with two have one for each node, and the client looks."""
    for proxies in lines:
        if len(proxies) == 1:
            proxies[0].target = pair.primary.port


def stalls_of_the_machine(lines: Iterable[Line], *, director: int) -> list[Fault]:
    """Times in which a process was not let run, by its own note; when it was the director, with the proxies, for all."""
    return [
        Fault(
            "late", line.at - float(line.words[0]), line.at, None if line.pid == director else frozenset({line.pid})
        )
        for line in lines
        if line.verb == "late"
    ]
