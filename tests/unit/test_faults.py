"""Fault points: reached around every store call and before every statement, and free when not armed."""

import pgqrs
from pgqrs import faults


async def test_a_store_call_is_surrounded_by_its_points():
    async with pgqrs.connect("sqlite://:memory:") as store:
        with faults.recorded() as points:
            await store.create_queue("tasks")

    assert [str(point) for point in points][-4:] == [
        "before queues.create",
        "sql create_queue",
        "sql get_queue",
        "after queues.create",
    ]


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
