"""What the committer puts into one transaction, and what has to wait for the next."""

import asyncio

import pytest

from pgqrs.audit import AuditPolicy
from pgqrs.db.runs import settlement
from pgqrs.db.runs.records import Ended, RunWrite, StepRecord
from pgqrs.engine.runs.committer import Committer
from pgqrs.types import RunStatus, StepStatus

END = Ended(RunStatus.SUCCESS)


class Db:
    audit_policy = AuditPolicy()

    class hints:  # noqa: N801 - stands for an object
        @staticmethod
        def announce(topics):
            pass


@pytest.fixture
def batches(monkeypatch):
    """The batches that were committed; each waits until the test lets it go."""
    seen = []

    async def commit(_db, writes):
        seen.append(list(writes))
        await asyncio.sleep(0)
        return {write.fence for write in writes}

    monkeypatch.setattr(settlement, "commit", commit)
    return seen


def step(run_id, name):
    return RunWrite((run_id, run_id, 1), (StepRecord(name, 0, StepStatus.SUCCESS),))


def end(run_id):
    return RunWrite((run_id, run_id, 1), end=END, has_parent=False)


async def committed(*writes):
    committer = Committer(Db())
    await asyncio.gather(*(committer.write(write) for write in writes))


async def test_steps_of_one_run_go_together(batches):
    await committed(step(1, "a"), step(1, "b"), step(2, "a"))

    assert [len(batch) for batch in batches] == [3]


async def test_a_step_that_is_written_twice_goes_twice_in_its_order(batches):
    again = step(1, "a")

    await committed(step(1, "a"), again, step(2, "a"))

    assert [len(batch) for batch in batches] == [2, 1]
    assert batches[1] == [again]


async def test_nothing_goes_with_the_end_that_it_follows(batches):
    await committed(step(1, "a"), end(1), step(1, "b"), step(2, "a"))

    assert [[write.fence[0] for write in batch] for batch in batches] == [[1, 1, 2], [1]]


async def test_of_many_that_are_about_half_go_at_a_time(batches):
    await committed(*(step(run_id, "a") for run_id in range(100)))

    assert [len(batch) for batch in batches] == [50, 50]


async def test_a_few_go_at_once(batches):
    await committed(*(step(run_id, "a") for run_id in range(20)))

    assert [len(batch) for batch in batches] == [20]
