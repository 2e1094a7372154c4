"""One soak: a crew at work on one database, broken by the director for a while, healed, drained and checked."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pgqrs
from proof.chaos.check import Asked, Findings, compared
from proof.chaos.crew import Crew
from proof.chaos.faults import Director, of_the_machine
from proof.chaos.lateness import pulse, watch
from proof.chaos.notes import install_notes
from proof.chaos.roles import Post
from proof.chaos.work import BOOKS, QUEUE, handlers
from rig import standby
from rig.guards import install_guards
from rig.invariants import check_invariants
from rig.proxy import HOST, Proxy, proxying
from rig.standby import Pair

# Two seconds more than a lease: connections are tried again after up to two.
LEASE_SECONDS = 3.0
AFTERMATH_SECONDS = LEASE_SECONDS + 2.0
DRAIN_SECONDS = 120.0
READY_SECONDS = 120.0
PULSES = "chaos_pulses"
_PULSE = f"insert into {PULSES} values (1)"
OPEN = ["pending", "running", "paused"]


@dataclass(frozen=True, slots=True)
class Size:
    workers: int
    producers: int = 2
    dispatchers: int = 2


SIZES = {"postgres": Size(16), "sqlite": Size(8, producers=1, dispatchers=1)}


@dataclass(frozen=True, slots=True)
class Soaked:
    """What came of it."""

    findings: Findings
    counts: dict[str, int]
    workers: int
    deserters: Sequence[int]
    seconds: float
    drain_seconds: float


def settings(dsn: str) -> pgqrs.Config:
    """Short leases, so that stalls outlive them; attempts without end, because every fault costs one."""
    return pgqrs.Config(
        dsn,
        lease_seconds=LEASE_SECONDS,
        poll_interval_seconds=0.5,
        pool_size=3,
        command_timeout_seconds=5,
        retry_seconds=5,
        max_attempts=100_000,
    )


async def soaked(backend: str, folder: Path, *, seconds: float, seed: int, size: Size | None = None) -> Soaked:
    folder.mkdir(parents=True)
    dice = random.Random(seed)
    size = size or SIZES[backend]
    roles = ["work"] * size.workers + ["produce"] * size.producers + ["dispatch"] * size.dispatchers
    async with _a_place(backend, folder, roles) as place:
        await prepare(place.config)
        crew = Crew(folder)
        ended = threading.Event()
        threads = [
            threading.Thread(target=watch, args=(crew.ledger, ended)),
            threading.Thread(target=pulse, args=(crew.ledger, ended, place.written)),
        ]
        for thread in threads:
            thread.start()
        try:
            for post in place.posts:
                crew.hire(post)
            await everybody_ready(crew)
            director = Director(dice, crew, lease_seconds=LEASE_SECONDS, pair=place.pair, lines=place.lines)
            began = time.monotonic()
            await director.run(seconds)
            await director.heal()
            healed = time.monotonic()
            await everybody_ready(crew)
            await crew.dismiss("produce")
            drained = await _drained(place.config_now(), crew)
            took = time.monotonic() - healed
            codes = await crew.dismiss()
            return await _checked(
                place, crew, director, codes=codes, drained=drained, seconds=healed - began, drain_seconds=took
            )
        finally:
            ended.set()
            for thread in threads:
                await asyncio.to_thread(thread.join)
            crew.close()


async def _checked(
    place: _Place,
    crew: Crew,
    director: Director,
    *,
    codes: Sequence[int],
    drained: bool,
    seconds: float,
    drain_seconds: float,
) -> Soaked:
    lines = crew.ledger.lines()
    busy = of_the_machine(lines, director=os.getpid(), most=LEASE_SECONDS)
    findings = compared(place.asked, lines, director.faults + busy, aftermath=AFTERMATH_SECONDS)
    findings.stale += [line for line in crew.complaints() if "guard:" in line]
    if not drained:
        findings.wrong.append(f"something was still unfinished {DRAIN_SECONDS:.0f} s after the last fault")
    if any(codes):
        findings.wrong.append(f"told to end, some ended with {sorted(set(codes) - {0})}")
    if crew.deserters:
        findings.wrong.append(f"{len(crew.deserters)} ended by themselves, with {sorted(set(crew.deserters))}")
    try:
        await check_invariants(place.config_now())
    except AssertionError as error:
        findings.wrong.append(str(error))
    counts = {**director.counts, "lost replies": sum(proxy.lost for each in place.lines.values() for proxy in each)}
    counts["busy"] = len(busy)
    workers = sum(post.role == "work" for post in place.posts)
    return Soaked(findings, counts, workers, crew.deserters, seconds, drain_seconds)


async def prepare(config: pgqrs.Config, *, watched: bool = True) -> None:
    """Tables, workflows and the queue; guards that refuse what breaks an invariant, and notes of who wrote."""
    async with pgqrs.connect_with(config, install=True) as store:
        if watched:
            await install_guards(store)
            await install_notes(store)
        await store.create_queue(QUEUE)
        for name in handlers(None):  # type: ignore[arg-type]
            await store.create_workflow(name)


async def everybody_ready(crew: Crew) -> None:
    """Until all who are there now have said so: from then on they listen for signals."""
    async with asyncio.timeout(READY_SECONDS):
        while not {member.pid for member in crew.members} <= _ready(crew):
            await asyncio.sleep(0.05)


def _ready(crew: Crew) -> set[int]:
    return {line.pid for line in crew.ledger.lines() if line.verb == "ready"}


async def _drained(config: pgqrs.Config, crew: Crew) -> bool:
    """True when every run has ended, every message is archived and every event is published."""
    async with pgqrs.connect_with(config) as store:
        admin = pgqrs.admin(store)
        answered: set[int] = set()
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline:
            crew.look_after()
            queue = await admin.queue_metrics(QUEUE)
            open_ = (await admin.count_runs(status=OPEN)).count
            await _answer(store, answered)
            pending = (await admin.outbox.counts()).pending
            if not (open_ or pending or queue.ready or queue.scheduled or queue.leased):
                return True
            await asyncio.sleep(0.2)
    return False


async def _answer(store: pgqrs.Store, answered: set[int]) -> None:
    """Whoever was to send a signal may have been killed before."""
    asks = pgqrs.workflow("asks")
    for found in await pgqrs.admin(store).runs(workflow="asks", status=OPEN, limit=1000):
        if found.run_id not in answered:
            run = await asks.get_run(found.run_id, store)
            # Unless it has ended by now.
            with suppress(pgqrs.InvalidTransition):
                await asks.signal(found.run_id, store, "go", 10 * run.input)
            answered.add(found.run_id)


# -- where it happens ------------------------------------------------------------------------------------


@dataclass
class _Place:
    config: pgqrs.Config
    posts: list[Post]
    lines: dict[Post, list[Proxy]]
    asked: Asked
    # Writes something and commits it.
    written: Callable[[], object]
    pair: Pair | None = None

    def config_now(self) -> pgqrs.Config:
        """Without a proxy, at whoever leads."""
        return self.config if self.pair is None else self.config.with_changes(dsn=self.pair.primary.dsn)


@asynccontextmanager
async def _a_place(backend: str, folder: Path, roles: Sequence[str]) -> AsyncIterator[_Place]:
    if backend == "sqlite":
        path = folder / "chaos.db"
        config = settings(f"sqlite:///{path}")
        for name in (BOOKS, PULSES):
            _sqlite(path, f"create table {name} (run_id integer)")
        yield _Place(
            config,
            [Post(role, config) for role in roles],
            {},
            lambda sql: _sqlite(path, sql),
            lambda: _sqlite(path, _PULSE),
        )
        return
    async with AsyncExitStack() as stack:
        pair = await asyncio.to_thread(stack.enter_context, standby.start())
        for name in (BOOKS, PULSES):
            await asyncio.to_thread(pair.primary.sql, f"create table {name} (run_id bigint)")
        await asyncio.to_thread(pair.follow)
        posts, lines = [], {}
        for number, role in enumerate(roles):
            proxies = await lines_to(pair, stack, hosts=1 + number % 2)
            post = Post(role, settings(dsn_of(proxies)))
            posts.append(post)
            lines[post] = proxies

        def asked(sql: str) -> list[tuple[object, ...]]:
            return pair.primary.sql(sql)

        yield _Place(settings(pair.primary.dsn), posts, lines, asked, lambda: pair.primary.sql(_PULSE), pair)


async def lines_to(pair: Pair, stack: AsyncExitStack, *, hosts: int) -> list[Proxy]:
    """One proxy to whoever leads, or one for each node."""
    ports = [pair.primary.port] if hosts == 1 else [node.port for node in pair.nodes]
    return [await stack.enter_async_context(proxying(port)) for port in ports]


def dsn_of(proxies: Sequence[Proxy]) -> str:
    hosts = ",".join(f"{HOST}:{proxy.port}" for proxy in proxies)
    return f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write"


def _sqlite(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, timeout=60)) as connection, connection:
        return connection.execute(sql).fetchall()
