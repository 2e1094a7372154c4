"""The command line within the test's process, on the test's database."""

import pytest

from pgqrs.cli import app
from rig.command_line import invoke


@pytest.fixture(scope="session")
def tree():
    """The whole tree of commands: built once, as it takes a while."""
    return app.tree()


@pytest.fixture
def command(store, config, tree, monkeypatch):
    """`await command("run", "list", "-o", "json")`."""
    monkeypatch.setenv("PGQRS_DSN", config.dsn)
    monkeypatch.setenv("PGQRS_SCHEMA", config.schema)
    monkeypatch.setenv("PGQRS_ACTOR", "ann")

    async def run(*words, given=None):
        return await invoke(tree, words, monkeypatch, given=given)

    return run
