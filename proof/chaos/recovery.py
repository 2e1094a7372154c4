"""How long it takes until work goes on: after SIGKILL, SIGTERM, a server that was killed, a standby promoted."""

from __future__ import annotations

import asyncio
import math
import random
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pgqrs
from pgqrs.inputs import given_text
from proof.chaos.crew import Crew
from proof.chaos.ledger import Line
from proof.chaos.roles import Post
from proof.chaos.soak import everybody_ready, prepare, settings
from rig import standby
from rig.postgres import HOST
from rig.proxy import Proxy, proxying
from rig.standby import Pair

# Runs that are held, and as many workers again that wait for work.
HELD = 4
PATIENCE_SECONDS = 120.0
CUT_OFF_SECONDS = 0.3
GLANCE_SECONDS = 0.01


@dataclass
class Times:
    """Seconds from a fault until somebody went on."""

    samples: list[float] = field(default_factory=list)

    def at(self, share: float) -> float:
        """The nearest rank: with fewer than a hundred samples p99 is the longest."""
        ordered = sorted(self.samples)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.inf

    def __str__(self) -> str:
        return f"p50 {self.at(0.5):.2f} s, p99 {self.at(0.99):.2f} s of {len(self.samples)}"


async def after_signal(
    config: pgqrs.Config, folder: Path, number: signal.Signals, *, samples: int, seed: int
) -> Times:
    """From the signal to the process that holds a run, until another has begun its step."""
    dice = random.Random(seed)
    await prepare(config, watched=False)
    async with _crew(folder, [Post("work", config, concurrency=1, grace_seconds=0)] * (2 * HELD)) as crew:
        async with pgqrs.connect_with(config) as store:
            await pgqrs.workflow("hold").trigger_many([0] * HELD).execute(store)
        times = Times()
        holders: dict[int, int] = {}
        since: dict[int, float] = {}
        news = _News(crew)
        while len(times.samples) < samples:
            for line in await news.until(lambda line: line.verb == "effect"):
                if line.verb != "effect":
                    continue
                if line.number in since:
                    times.samples.append(line.at - since.pop(line.number))
                holders[line.number] = line.pid
            resting = [run_id for run_id in holders if run_id not in since]
            # Half of them at a time: somebody must be there to take over.
            if resting and len(since) < HELD // 2 and len(times.samples) + len(since) < samples:
                run_id = dice.choice(resting)
                [member] = [each for each in crew.members if each.pid == holders[run_id]]
                since[run_id] = _now()
                member.signal(number)
                crew.replace(member)
        return times


@dataclass
class Served:
    """What the servers' deaths cost."""

    restarts: Times = field(default_factory=Times)
    failovers: Times = field(default_factory=Times)
    acked: int = 0
    # After a restart on the same disk, and after a promotion.
    lost: set[str] = field(default_factory=set)
    lost_by_failover: set[str] = field(default_factory=set)


async def after_servers(folder: Path, *, restarts: int, failovers: int) -> Served:
    """From when a killed server accepts connections, or a promotion is asked for, until a step is recorded."""
    served = Served()
    with standby.start() as pair:
        hosts = ",".join(f"{HOST}:{node.port}" for node in pair.nodes)
        config = settings(f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write")
        await prepare(config, watched=False)
        posts = [Post("work", config)] * 3 + [Post("load", config)] * 2
        async with _crew(folder, posts) as crew:
            async with pgqrs.connect_with(config) as store:
                await pgqrs.workflow("tick").trigger_many([0] * 6).execute(store)
            news = _News(crew)
            for _ in range(restarts):
                await news.until(_is_tick)
                served.restarts.samples.append(await _going_on(news, await asyncio.to_thread(pair.restart)))
                served.lost |= _lost(pair, crew.ledger.lines())
            async with proxying(pair.primary.port) as line:
                for _ in range(failovers):
                    line.target = pair.primary.port
                    await asyncio.to_thread(pair.follow, line.port)
                    await news.until(_is_tick)
                    served.failovers.samples.append(await _going_on(news, await _fail_over(pair, line)))
                    served.lost_by_failover |= _lost(pair, crew.ledger.lines())
        served.acked = sum(line.verb == "acked" for line in crew.ledger.lines())
    return served


async def _fail_over(pair: Pair, line: Proxy) -> float:
    """The standby is cut off, then the primary dies: whoever did not wait for the standby loses what came between."""
    line.fall_silent()
    await asyncio.sleep(CUT_OFF_SECONDS)
    line.cut()
    try:
        return await asyncio.to_thread(pair.fail_over)
    finally:
        line.heal()


async def _going_on(news: _News, since: float) -> float:
    lines = await news.until(lambda line: _is_tick(line) and line.at > since)
    return min(line.at for line in lines if _is_tick(line) and line.at > since) - since


def _is_tick(line: Line) -> bool:
    return line.verb == "recorded"


def _lost(pair: Pair, lines: Iterable[Line]) -> set[str]:
    """Runs that were acknowledged and are not there, or are others, after a promotion."""
    acked = {line.number: line.words[2] for line in lines if line.verb == "acked"}
    rows = pair.primary.sql("select run_id, cast(input as text) from pgqrs_workflow_runs")
    there = {int(str(run_id)): given_text(str(given)) for run_id, given in rows}
    return {f"run {run_id} was acknowledged, and is lost" for run_id, n in acked.items() if there.get(run_id) != n}


class _News:
    """What the crew has written down, waited for."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    async def until(self, wanted: Callable[[Line], bool]) -> Sequence[Line]:
        """What is new, once something wanted is among it; looks a moment longer than nothing."""
        found: list[Line] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found += self._crew.ledger.news()
                if any(map(wanted, found)):
                    return found
                await asyncio.sleep(GLANCE_SECONDS)


@asynccontextmanager
async def _crew(folder: Path, posts: Iterable[Post]):
    folder.mkdir(parents=True)
    crew = Crew(folder)
    try:
        for post in posts:
            crew.hire(post)
        await everybody_ready(crew)
        yield crew
    finally:
        crew.close()


def _now() -> float:
    return asyncio.get_running_loop().time()
