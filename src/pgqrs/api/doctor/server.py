"""What the doctor looks at on a PostgreSQL server: durability, cleaning, connections, clocks."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from pgqrs.db.upkeep import diagnostics
from pgqrs.db.upkeep.diagnostics import ServerSettings
from pgqrs.reports import DoctorFinding, Level
from pgqrs.text.durations import format_duration

if TYPE_CHECKING:
    from pgqrs.api.store import Store

# The oldest that its makers still mend.
_OLDEST_VERSION = 14
# Nothing of ours depends on the clocks of other machines, but logs and `run_at` do.
_SKEW_SECONDS = 2.0
_HINT_SECONDS = 3.0
_LONG_SECONDS = 300.0
_VERY_LONG_SECONDS = 3600.0
# Dead rows beyond this many, and more than those alive, slow down every lease.
_MANY_DEAD = 50_000


async def look(store: Store) -> AsyncIterator[DoctorFinding]:
    db = await store.ready()
    before = time.time()
    server = await diagnostics.server(db)
    after = time.time()
    yield _version(server, store.config.safe_dsn)
    for finding in _durability(server):
        yield finding
    yield _clock(server.clock, before, after)
    yield await _encryption(store)
    yield await _cleaning(store, server)
    yield await _transactions(store)
    yield _connections(server, store.config.pool_size)
    yield await _hints(db)


def _version(server: ServerSettings, where: str) -> DoctorFinding:
    what = f"PostgreSQL {server.version} at {where}"
    if server.is_standby:
        why = "nothing can be written to it"
        return DoctorFinding("database", Level.BAD, f"{what} is a standby", why, "set PGQRS_DSN to the primary")
    if server.version_number // 10_000 < _OLDEST_VERSION:
        why = f"its makers mend {_OLDEST_VERSION} and newer, and we test on those"
        return DoctorFinding("database", Level.WARN, f"{what} is old", why, "upgrade the server")
    return DoctorFinding("database", Level.OK, what)


def _durability(server: ServerSettings) -> Iterator[DoctorFinding]:
    lost = "a crash of the server loses what was acknowledged"
    fix = "alter system set {} = on; select pg_reload_conf()"
    if not server.fsync:
        yield DoctorFinding("durability", Level.BAD, "fsync is off", f"{lost}, or all of it", fix.format("fsync"))
    if not server.waits_for_disk:
        yield DoctorFinding(
            "durability", Level.BAD, "synchronous_commit is off", lost, fix.format("synchronous_commit")
        )
    if not server.full_page_writes:
        why = "a power cut in the midst of a write can break pages"
        yield DoctorFinding("durability", Level.WARN, "full_page_writes is off", why, fix.format("full_page_writes"))
    if server.fsync and server.waits_for_disk and server.full_page_writes:
        yield DoctorFinding("durability", Level.OK, "fsync and synchronous_commit are on")


def _clock(theirs: float, before: float, after: float) -> DoctorFinding:
    """Whatever the way there and back took is not held against the clock."""
    apart = max(before - theirs, theirs - after, 0.0)
    if apart <= _SKEW_SECONDS:
        return DoctorFinding("clock", Level.OK, f"this machine and the server are {apart:.1f} s apart")
    which = "behind" if theirs > after else "ahead of"
    return DoctorFinding(
        "clock",
        Level.WARN,
        f"the clock of this machine is {format_duration(apart)} {which} the server's",
        "the server's decides; times that are made here (run_at, logs) are off by that",
        "set the clock by NTP on both machines",
    )


async def _encryption(store: Store) -> DoctorFinding:
    line = await diagnostics.line(await store.ready())
    if line.encrypted:
        return DoctorFinding("encryption", Level.OK, "the connection is encrypted")
    if not line.address or ipaddress.ip_address(line.address).is_loopback:
        return DoctorFinding("encryption", Level.OK, "the server is on this machine")
    return DoctorFinding(
        "encryption",
        Level.WARN,
        f"the connection to {line.address} is not encrypted",
        "whoever is on the way can read payloads, and the password",
        "add ?sslmode=verify-full to the DSN",
    )


async def _cleaning(store: Store, server: ServerSettings) -> DoctorFinding:
    if not server.autovacuum:
        return DoctorFinding(
            "autovacuum",
            Level.BAD,
            "autovacuum is off",
            "every lease leaves a dead row behind: without it each lease reads more of them",
            "alter system set autovacuum = on; select pg_reload_conf()",
        )
    tables = await diagnostics.dead_rows(await store.ready())
    switched_off = [each.table for each in tables if "autovacuum_enabled=false" in each.options]
    if switched_off:
        why = "dead rows pile up there"
        fix = f"alter table {store.config.schema}.{switched_off[0]} reset (autovacuum_enabled)"
        return DoctorFinding("autovacuum", Level.BAD, f"autovacuum is off for {switched_off[0]}", why, fix)
    piled = [each for each in tables if each.dead > max(_MANY_DEAD, each.live)]
    if piled:
        first = piled[0]
        return DoctorFinding(
            "autovacuum",
            Level.WARN,
            f"{first.table} has {first.dead:,} dead rows beside {first.live:,} live ones",
            "autovacuum is too slow, or a long transaction holds it up",
            f"vacuum (verbose) {store.config.schema}.{first.table}",
        )
    return DoctorFinding("autovacuum", Level.OK, "autovacuum is on and keeps up")


async def _transactions(store: Store) -> DoctorFinding:
    found = await diagnostics.oldest_transactions(await store.ready())
    oldest = max(found, key=lambda each: each.seconds, default=None)
    if oldest is None or oldest.seconds < _LONG_SECONDS:
        return DoctorFinding("transactions", Level.OK, "no long transaction is open")
    return DoctorFinding(
        "transactions",
        Level.BAD if oldest.seconds > _VERY_LONG_SECONDS else Level.WARN,
        f"a transaction is open for {format_duration(oldest.seconds)}: {oldest.who}",
        "no row that it may still see can be cleaned up, so leases get slower",
        oldest.ended_by,
    )


def _connections(server: ServerSettings, pool_size: int) -> DoctorFinding:
    what = f"{server.connections} of {server.most_connections} connections are in use; a store may open {pool_size}"
    if server.connections + pool_size < server.most_connections:
        return DoctorFinding("connections", Level.OK, what)
    return DoctorFinding(
        "connections",
        Level.WARN,
        what,
        "the next process may be refused",
        "a smaller PGQRS_POOL_SIZE, a larger max_connections, or PgBouncer before it",
    )


async def _hints(db: Any) -> DoctorFinding:
    """Sends one and listens for it: a pooler may take LISTEN and never deliver."""
    if await db.hears_hints(seconds=_HINT_SECONDS):
        return DoctorFinding("hints", Level.OK, "hints arrive: waiting workers hear of new work at once")
    what = "behind a transaction pooler, without listen_dsn" if db.pooled else "a hint was sent and did not arrive"
    return DoctorFinding(
        "hints",
        Level.WARN,
        what,
        "new work is found by polling alone, up to poll_interval_seconds late",
        "set PGQRS_LISTEN_DSN to the server itself, without a pooler between",
    )
