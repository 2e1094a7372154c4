"""L6: chaos with real processes, recovery times, failover. `make soak MINUTES=10` is the long form.

    soak.py       a crew at work, broken, healed, drained, checked     faults.py    the director: what is broken when
    crew.py       processes that are killed and replaced               check.py     the ledger against the database
    roles.py      what they do        work.py   the workflows          recovery.py  how long until work goes on
    ledger.py     effects, outside    notes.py  who wrote under which lease         lateness.py  a busy machine

CASE=soak, CASE=signals or CASE=servers runs one part. Turso is left out: one process at a time may use its file.
The dice are seeded; when processes meet them is not, so a seed repeats the faults and not each moment of them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator

from proof.chaos.recovery import Served, Times, after_servers, after_signal
from proof.chaos.soak import SIZES, Soaked, soaked
from proof.databases import fresh
from proof.order import Order
from proof.table import Row

CASES = ("soak", "signals", "servers")
# How long things are broken in the short form.
SHORT_SECONDS = {"sqlite": 8.0, "postgres": 16.0}
SAMPLES = 20
SHORT_SAMPLES = 4
RECOVERY_LEASE_SECONDS = 2.0


def prove(order: Order) -> Iterator[Row]:
    case = os.environ.get("CASE", "")
    if case and case not in CASES:
        raise SystemExit(f"CASE: no {case!r}; there are {', '.join(CASES)}")
    for backend in SIZES:
        if not order.asks_for(backend):
            continue
        if case in ("", "soak"):
            yield from _of_soak(order, backend)
        if case in ("", "signals"):
            yield from _of_signals(order, backend)
        if case in ("", "servers") and backend == "postgres":
            yield from _of_servers(order)


def _command(order: Order, backend: str, case: str) -> str:
    full = f"FULL=1 MINUTES={order.minutes:g} " if order.full else ""
    return f"CASE={case} make proof LAYERS=chaos ON={backend} {full}SEED={order.seed}"


def _of_soak(order: Order, backend: str) -> Iterator[Row]:
    began = time.monotonic()
    seconds = order.minutes * 60 if order.full else SHORT_SECONDS[backend]
    what = asyncio.run(soaked(backend, order.folder / f"soak-{backend}", seconds=seconds, seed=order.seed))
    command = _command(order, backend, "soak")
    for bad in what.findings.bad[:20]:
        print(f"chaos on {backend}, seed {order.seed}: {bad}; repeat with: {command}")
    for text, seen, wanted, good in _told(what):
        yield Row(4, text, backend, seen, wanted, good, command, time.monotonic() - began)


def _told(what: Soaked) -> Iterator[tuple[str, str, str, bool]]:
    found, counts = what.findings, what.counts
    broken = {
        "kills": counts.get("kill", 0),
        "stalls": counts.get("stall", 0) + counts.get("freeze", 0),
        "stops": counts.get("term", 0),
        "backends": counts.get("backend", 0),
        "lost replies": counts.get("lost replies", 0),
        "silences": counts.get("silence", 0),
        "cluster kills": counts.get("cluster", 0),
        "failovers": counts.get("failover", 0),
    }
    faults = ", ".join(f"{count} {name}" for name, count in broken.items() if count)
    yield (
        f"chaos, {what.workers} workers, {what.seconds:.0f} s",
        f"{found.runs} runs, {found.messages} messages; {faults}",
        "some of each, all drained",
        bool(found.runs and found.messages and counts.get("kill") and counts.get("stall")) and not found.wrong,
    )
    four = [found.lost, found.changed, found.twice, found.stale]
    yield (
        "lost, changed, ended twice, stale writes",
        f"{', '.join(str(len(each)) for each in four)}; {found.writes} writes looked at",
        "0, 0, 0, 0",
        not any(four) and found.writes > 0,
    )
    yield (
        "effects beyond 1 + faults that overlapped",
        f"{len(found.unexplained)}; {found.effects} effects, {found.repeated} repeated; busy {counts['busy']} times",
        "0",
        not found.unexplained and found.effects > 0,
    )
    yield (
        "transactional steps once; events in order",
        f"{found.booked} steps, {found.events} events; {len(found.wrong)} wrong",
        "0 wrong",
        not found.wrong and found.booked > 0 and found.events > 0,
    )


def _of_signals(order: Order, backend: str) -> Iterator[Row]:
    lease = RECOVERY_LEASE_SECONDS
    limits = {
        signal.SIGKILL: (lease + 2, f"p50 within lease ({lease:g} s) + 2 s"),
        signal.SIGTERM: (1.0, "p50 within 1 s"),
    }
    for number, (limit, wanted) in limits.items():
        began = time.monotonic()
        config = fresh(order, backend).with_changes(lease_seconds=lease, max_attempts=100_000, pool_size=2)
        times = asyncio.run(
            after_signal(
                config,
                order.folder / f"{number.name}-{backend}",
                number,
                samples=SAMPLES if order.full else SHORT_SAMPLES,
                seed=order.seed,
            )
        )
        yield _of_times(order, f"recovery after {number.name}", backend, times, limit, wanted, began, "signals")


def _of_servers(order: Order) -> Iterator[Row]:
    began = time.monotonic()
    count = SAMPLES if order.full else SHORT_SAMPLES
    served: Served = asyncio.run(
        after_servers(order.folder / "servers", restarts=count, failovers=count if order.full else count // 2)
    )
    for what, times, limit in (
        ("recovery after kill -9 of PostgreSQL", served.restarts, 5.0),
        ("recovery after failover", served.failovers, 10.0),
    ):
        wanted = f"p50 within {limit:g} s"
        yield _of_times(order, what, "postgres", times, limit, wanted, began, "servers")
    command = _command(order, "postgres", "servers")
    for what, times, lost, events in (
        ("kill -9 of PostgreSQL: acked runs lost", served.restarts, served.lost, "restarts"),
        ("synchronous standby: acked runs lost", served.failovers, served.lost_by_failover, "promotions"),
    ):
        for bad in sorted(lost)[:20]:
            print(f"{events}, seed {order.seed}: {bad}; repeat with: {command}")
        yield Row(
            7,
            what,
            "postgres",
            f"{len(lost)} of {served.acked}, {len(times.samples)} {events}",
            "0",
            not lost and served.acked > 0 and bool(times.samples),
            command,
            time.monotonic() - began,
        )


def _of_times(
    order: Order, what: str, backend: str, times: Times, limit: float, wanted: str, began: float, case: str
) -> Row:
    good = times.at(0.5) <= limit
    command = _command(order, backend, case)
    return Row(6, what, backend, str(times), wanted, good, command, time.monotonic() - began)
