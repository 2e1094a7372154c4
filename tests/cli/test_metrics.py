"""`pgqrs metrics`, and how `worker run` logs."""

import logging

import pytest

import pgqrs
from rig.exposition import values_of


async def test_metrics_are_printed_as_prometheus_reads_them(live_store, command):
    await live_store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger(None).execute(live_store)

    said = await command("metrics")

    labels = frozenset({("queue", "flow"), ("state", "ready")})
    assert (said.code, values_of(said.out)["pgqrs_queue_depth", labels]) == (0, 1)


async def test_metrics_as_json_are_one_object_for_each_value(store, command):
    await store.create_queue("tasks")

    items = (await command("metrics", "-o", "json")).json["items"]

    assert {"name": "pgqrs_queue_depth", "labels": {"queue": "tasks", "state": "ready"}, "value": 0} in items


@pytest.fixture
def shop(tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(
        "import pgqrs\n\n@pgqrs.workflow\nasync def order(ctx, text: str):\n    ctx.log.warning(text)\n"
    )
    monkeypatch.chdir(tmp_path)


@pytest.mark.backends("sqlite")
async def test_text_that_a_terminal_would_obey_is_logged_as_its_escape(live_store, command, shop):
    await live_store.create_workflow("order")
    await pgqrs.workflow("order").trigger("\x1b]0;owned\x07").execute(live_store)

    said = await command("worker", "run", "shop.py", "--drain")

    assert said.code == 0
    assert "\\x1b]0;owned\\x07" in said.err
    assert "\x1b" not in said.err


@pytest.mark.backends("sqlite")
async def test_a_command_leaves_no_logging_behind(store, command, shop):
    before = list(logging.getLogger().handlers), logging.getLogger().level, logging.getLogger("pgqrs").level

    await command("worker", "run", "shop.py", "--drain", "--verbose", "--log-format", "json")

    assert (list(logging.getLogger().handlers), logging.getLogger().level, logging.getLogger("pgqrs").level) == before


@pytest.mark.backends("sqlite")
async def test_a_log_format_that_there_is_not_is_refused(store, command, shop):
    said = await command("worker", "run", "shop.py", "--log-format", "xml")

    assert said.code == 2
    assert "'text', 'json'" in said.err
