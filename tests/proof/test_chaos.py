"""Chaos in small: a few real processes, broken for a moment; and whether the checker sees what it must."""

import os
import signal
from urllib.parse import urlsplit

import pytest

import pgqrs
from proof.chaos.check import compared
from proof.chaos.faults import Fault
from proof.chaos.ledger import Line
from proof.chaos.recovery import after_signal
from proof.chaos.soak import Size, soaked
from rig import standby
from rig.proxy import proxying

FELT = Fault("kill", 1.0, 1.0, frozenset({7}))


def line(at, pid, verb, *words):
    return Line(at, pid, verb, tuple(map(str, words)))


def found(lines=(), faults=(), **tables):
    """What the checker says of a database that holds just these rows, by a word of the question."""

    def asked(sql):
        return next((rows for word, rows in tables.items() if word in sql), [])

    return compared(asked, list(lines), list(faults), aftermath=1.0)


async def test_a_crew_on_one_file_loses_nothing_when_it_is_killed_and_stopped(tmp_path):
    soak = await soaked("sqlite", tmp_path / "soak", seconds=2, seed=7, size=Size(2, producers=1, dispatchers=1))

    assert soak.findings.bad == []
    assert soak.findings.runs > 0
    assert soak.findings.writes > 0
    assert soak.counts["kill"] > 0


@pytest.mark.backends("sqlite")
async def test_a_stopped_worker_hands_over_in_less_than_a_lease(config, tmp_path):
    times = await after_signal(config, tmp_path / "crew", signal.SIGTERM, samples=1, seed=7)

    assert max(times.samples) < config.lease_seconds


def test_an_acknowledged_run_that_is_not_there_is_lost():
    assert found([line(1, 7, "acked", 5, "plain", 1)]).lost == ["run 5 was acknowledged at 1.000, and is not there"]


def test_a_result_that_is_not_the_one_that_was_seen_is_changed():
    rows = [(5, "plain", "SUCCESS", "1", "3")]

    assert not found([line(1, 7, "result", 5, 3)], output=rows).changed
    assert found([line(1, 7, "result", 5, 4)], output=rows).changed == ["run 5 had the result 4, and has 3"]


def test_a_step_may_be_done_again_for_a_fault_that_its_process_felt_and_for_no_other():
    twice = [line(0.9, 7, "effect", 5, "one", 1), line(1.5, 8, "effect", 5, "one", 2)]
    late = Fault("kill", 1.6, 1.6, None)
    others = Fault("kill", 1.0, 1.0, frozenset({8}))

    assert not found(twice, [FELT]).unexplained
    assert len(found(twice, [late, others]).unexplained) == 1
    assert len(found([*twice, line(1.7, 9, "effect", 5, "one", 3)], [FELT]).unexplained) == 1


def test_whoever_was_stopped_in_the_middle_may_do_it_after_the_last_holder():
    twice = [line(1.2, 8, "effect", 5, "one", 2), line(1.5, 7, "effect", 5, "one", 1)]
    stopped = Fault("stall", 0.5, 1.5, frozenset({7}))
    others = Fault("stall", 0.5, 1.5, frozenset({8}))

    assert not found(twice, [stopped]).unexplained
    assert len(found(twice, [others]).unexplained) == 1


def test_what_is_written_under_a_lease_was_done_under_it():
    did = [line(1, 7, "effect", 5, "one", 1), line(1, 7, "ending", 5, 1)]

    assert not found(did, chaos_notes=[(5, "one", 1), (5, "(end)", 1)]).stale
    assert len(found(did, chaos_notes=[(5, "one", 2)]).stale) == 1
    assert len(found(did, chaos_notes=[(5, "(end)", 2)]).stale) == 1


@pytest.mark.backends("postgres")
async def test_a_run_is_triggered_once_though_the_replies_are_lost(live_store, config):
    """Through the proxy; what arrives is counted by another way."""
    await live_store.create_workflow("plain")
    server = urlsplit(config.dsn)
    async with proxying(server.port) as proxy:
        where = f"{server.username}@127.0.0.1:{proxy.port}"
        lossy = config.with_changes(dsn=server._replace(netloc=where).geturl())
        async with pgqrs.connect_with(lossy) as store:
            await pgqrs.workflow("plain").trigger(1).execute(store)
            proxy.lose_replies()
            run_id = await pgqrs.workflow("plain").trigger(2, idempotency_key="once").execute(store)

    assert proxy.lost == 1
    assert [run.run_id for run in await pgqrs.admin(live_store).runs("key:once")] == [run_id]


@pytest.mark.skipif(standby.find() is None and not os.environ.get("CI"), reason=standby.HINT)
def test_a_promoted_standby_has_what_was_acknowledged():
    with standby.start() as pair:
        pair.primary.sql("create table there (a int)")
        pair.follow()
        pair.primary.sql("insert into there values (1)")

        pair.fail_over()
        rows = pair.primary.sql("select * from there")

    assert rows == [(1,)]
