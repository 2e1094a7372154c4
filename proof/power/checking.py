"""What must hold of the file after any fault: whole, nothing acknowledged lost, nothing denied there."""

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pgqrs.audit import AuditPolicy
from pgqrs.clock import DatabaseClock
from pgqrs.db.database import drive
from pgqrs.db.drivers.sqlite.session import SqliteSession
from pgqrs.db.upkeep import invariants
from proof.power.workload import DATABASE, DOOMED, KEYS, PAYLOADS, SAID

# Rows of one transaction of which only some are there; the invariants ask for the other kinds.
_UNTOLD = """
    select 'run ' || run_id || ' does not tell of its creation' from pgqrs_workflow_runs
    where run_id not in (select run_id from pgqrs_workflow_events where event_type = 'created')"""
# The rows that a user's transaction wrote, and the checkpoints that went with them.
_MOVES = """
    select key from moves
    union all
    select '-' || r.idempotency_key from pgqrs_workflow_steps as s
    join pgqrs_workflow_runs as r on r.run_id = s.run_id
    where s.step_id = 'move' and s.status = 'SUCCESS'"""
_FACTS = """
    select 'run ' || idempotency_key from pgqrs_workflow_runs
    union all select 'ended ' || idempotency_key from pgqrs_workflow_runs where status = 'SUCCESS'
    union all select 'cancelled ' || idempotency_key from pgqrs_workflow_runs where status = 'CANCELLED'
    union all select 'signal ' || idempotency_key from pgqrs_signals join pgqrs_workflow_runs using (run_id)
    union all select 'step ' || idempotency_key || ' ' || step_id
        from pgqrs_workflow_steps as s join pgqrs_workflow_runs as r on r.run_id = s.run_id where s.status = 'SUCCESS'
    union all select 'queued ' || json_extract(payload, '$[0]') from pgqrs_messages where run_id is null
    union all select 'queued ' || json_extract(payload, '$[0]') from pgqrs_archived_messages
    union all select 'archived ' || json_extract(payload, '$[0]') from pgqrs_archived_messages
    union all select 'installed' from pgqrs_queues where name = 'tasks'"""
# What is there once all of the work is done.
EVERYTHING = frozenset(
    (
        "installed",
        f"run {DOOMED}",
        f"cancelled {DOOMED}",
        *(f"{fact} {key}" for key in KEYS for fact in ("run", "signal", "moved", "ended")),
        *(f"step {key} {step}" for key in KEYS for step in ("pick", "ship")),
        *(f"{fact} {payload}" for payload in PAYLOADS for fact in ("queued", "archived")),
    )
)


@dataclass(frozen=True, slots=True)
class Said:
    """What the first program was promised, and what it was told is not there."""

    acknowledged: frozenset[str]
    denied: frozenset[str]

    @classmethod
    def of(cls, lines: Iterable[str]) -> "Said":
        lines = list(lines)
        return cls(
            frozenset(line[2:] for line in lines if line.startswith("+ ")),
            frozenset(line[2:] for line in lines if line.startswith("- ")),
        )

    @classmethod
    def in_folder(cls, folder: Path) -> "Said":
        return cls.of((folder / SAID).read_text().splitlines())


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything empty: nothing is wrong."""

    lost: tuple[str, ...] = ()
    corrupt: tuple[str, ...] = ()
    phantom: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lost or self.corrupt or self.phantom)

    def __str__(self) -> str:
        parts = {"lost": self.lost, "corrupt": self.corrupt, "denied, but there": self.phantom}
        return "; ".join(f"{name}: {', '.join(what)}" for name, what in parts.items() if what)


def judge(folder: Path, said: Said) -> Verdict:
    """On a plain connection of SQLite's: no driver of ours has touched the file before."""
    if not (folder / DATABASE).exists():
        return Verdict(lost=tuple(sorted(said.acknowledged)))
    connection = sqlite3.connect(folder / DATABASE, isolation_level=None)
    try:
        # The state is looked at once and thrown away: nothing of it needs a disk.
        connection.execute("pragma synchronous = off")
        found, corrupt = _examined(connection)
    except Exception as error:  # noqa: BLE001 - a damaged file may answer with anything, and break whoever reads it
        return Verdict(corrupt=(f"it cannot be read: {type(error).__name__}: {error}",))
    finally:
        connection.close()
    return Verdict(tuple(sorted(said.acknowledged - found)), corrupt, tuple(sorted(said.denied & found)))


def _examined(connection: sqlite3.Connection) -> tuple[set[str], tuple[str, ...]]:
    corrupt = [text for (text,) in connection.execute("pragma integrity_check") if text != "ok"]
    tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    if "pgqrs_queues" not in tables:
        # The tables come all together, or not at all.
        return set(), (*corrupt, *(f"half a schema: {name}" for name in tables if name.startswith("pgqrs")))
    corrupt += map(str, drive(invariants.check(SqliteSession(connection, DatabaseClock(), AuditPolicy()))))
    corrupt += [text for (text,) in connection.execute(_UNTOLD)]
    found = {fact for (fact,) in connection.execute(_FACTS)}
    moves = [key for (key,) in connection.execute(_MOVES)] if "moves" in tables else []
    written = sorted(key for key in moves if not key.startswith("-"))
    recorded = sorted(key[1:] for key in moves if key.startswith("-"))
    if written != recorded:
        corrupt.append(f"moved {written}, on record {recorded}")
    return found | {f"moved {key}" for key in written}, tuple(corrupt)
