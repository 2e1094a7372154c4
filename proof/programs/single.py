"""One program under one fault: what a printed test calls."""

from __future__ import annotations

import os
import secrets

import pgqrs
from proof.programs.bench import Bench, expected_under
from proof.programs.faults import Fault
from proof.programs.grammar import Program
from proof.programs.oracle import ask


def check(program: Program, fault: str = "none", *, on: str = "sqlite", dsn: str = "", is_racy: bool = False) -> None:
    """Raises AssertionError when the engine and the oracle disagree; of a racy program, when its passes do.

    PostgreSQL is PGQRS_TEST_POSTGRES_DSN.
    """
    bench = Bench(config_for(on, dsn or os.environ.get("PGQRS_TEST_POSTGRES_DSN", "")))
    given = Fault.of(fault)
    try:
        answer = None if is_racy else expected_under(program, ask(program), given)
        _, said = bench.judged(program, given, answer)
    finally:
        bench.close()
    assert not said, "\n".join(said)


def config_for(backend: str, postgres: str) -> pgqrs.Config:
    """An empty database: in memory, or a schema."""
    if backend == "postgres":
        return pgqrs.Config(postgres, schema=f"programs_{secrets.token_hex(4)}", pool_size=6)
    return pgqrs.Config(f"{backend}://:memory:")
