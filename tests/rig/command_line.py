"""The command line within the test's process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

import pgqrs
from pgqrs.cli import exit_codes, state


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def invoke(
    tree: Typer, words: Sequence[object], patch: pytest.MonkeyPatch, *, given: str | None = None
) -> Said:
    """What the command prints, and its exit code. Errors are told as the program itself tells them."""
    patch.setattr(state, "_state", state.State())
    done = await asyncio.to_thread(CliRunner().invoke, tree, [str(word) for word in words], input=given)
    if isinstance(done.exception, pgqrs.PgqrsError):
        told = "\n".join([done.stderr, *exit_codes.words(done.exception)])
        return Said(exit_codes.code_of(done.exception), done.stdout, told)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Said(done.exit_code, done.stdout, done.stderr)
