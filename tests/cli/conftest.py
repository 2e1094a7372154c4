"""The command line within the test's process, on the test's database."""

import asyncio
import json
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

import pgqrs
from pgqrs.cli import commands, failing, state


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(scope="session")
def tree():
    """The whole tree of commands: built once, as it takes a while."""
    return commands.tree()


@pytest.fixture
def command(store, config, tree, monkeypatch):
    """`await command("run", "list", "-o", "json")`."""
    monkeypatch.setenv("PGQRS_DSN", config.dsn)
    monkeypatch.setenv("PGQRS_SCHEMA", config.schema)
    monkeypatch.setenv("PGQRS_ACTOR", "ann")

    async def run(*words, given=None):
        monkeypatch.setattr(state, "_state", state.State())
        done = await asyncio.to_thread(CliRunner().invoke, tree, [str(word) for word in words], input=given)
        if isinstance(done.exception, pgqrs.PgqrsError):
            told = "\n".join([done.stderr, *failing.words(done.exception)])
            return Said(failing.code_of(done.exception), done.stdout, told)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    return run
