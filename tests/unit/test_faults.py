"""Fault points: reached around every store call and before every statement, and free when not armed."""

import pytest

import pgqrs
from pgqrs import faults


async def test_a_store_call_is_surrounded_by_its_points():
    async with pgqrs.connect("sqlite://:memory:") as store:
        with faults.recorded() as points:
            await store.create_queue("tasks")

    assert [str(point) for point in points][-5:] == [
        "before queues.create",
        "sql create_queue",
        "sql get_queue",
        "commit all",
        "after queues.create",
    ]


@pytest.mark.backends("postgres")
async def test_postgresql_commits_for_one_call_and_its_reply_can_get_lost(store):
    await store.ready()
    with faults.recorded() as points:
        await store.create_workflow("flow")

    told = [str(point) for point in points]
    assert told[0] == "before workflows.create"
    # A call that another one is made of has points, but no transaction of its own.
    assert "before queues.create" in told
    assert told[-3:] == ["commit workflows.create", "reply workflows.create", "after workflows.create"]


async def test_an_action_learns_what_it_was_reached_in(store):
    await store.ready()
    seen = []
    with faults.injected(lambda point: seen.append((point, faults.call_under_way(), faults.connection.get()))):
        await store.create_queue("tasks")

    assert [call for point, call, _ in seen if point.phase in ("before", "after")] == ["", ""]
    assert all(connection is not None for point, _, connection in seen if point.phase in ("sql", "commit", "reply"))


async def test_an_action_strikes_only_as_often_as_it_was_told_to():
    def strike():
        raise ConnectionAbortedError

    async with pgqrs.connect("sqlite://:memory:") as store:
        outcomes = []
        with faults.injected(faults.at("before", "queues.create", strike, times=2)):
            for _ in range(3):
                try:
                    await store.create_queue("tasks")
                    outcomes.append("ok")
                except ConnectionAbortedError:
                    outcomes.append("struck")

    assert outcomes == ["struck", "struck", "ok"]


def test_nothing_is_armed_outside_a_test():
    assert not faults.armed
    with faults.recorded(), faults.recorded():
        assert faults.armed
    assert not faults.armed
