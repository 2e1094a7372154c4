"""A write that cannot be committed fails for whoever made it; those that were gathered with it go in."""

import asyncio

from pgqrs.audit import AuditPolicy
from pgqrs.db.runs import settlement
from pgqrs.db.runs.records import RunWrite, StepRecord
from pgqrs.engine.runs.committer import Committer
from pgqrs.errors import ConnectionFailed
from pgqrs.types import StepStatus

POISON = 13


class Db:
    audit_policy = AuditPolicy()


def step(run_id):
    return RunWrite((run_id, run_id, 1), (StepRecord("a", 0, StepStatus.SUCCESS),))


async def outcomes(monkeypatch, error):
    """What each of four writers hears when the batch that has the poison in it raises."""

    async def commit(_db, writes):
        if any(write.fence[0] == POISON for write in writes):
            raise error
        return {write.fence for write in writes}

    monkeypatch.setattr(settlement, "commit", commit)
    committer = Committer(Db())
    written = [committer.write(step(run_id)) for run_id in (1, 2, POISON, 3)]
    return await asyncio.gather(*written, return_exceptions=True)


async def test_a_write_that_no_database_takes_hurts_only_itself(monkeypatch):
    error = ValueError("no database takes this")

    assert await outcomes(monkeypatch, error) == [None, None, error, None]


async def test_a_database_that_is_away_is_not_asked_again_for_each_of_them(monkeypatch):
    error = ConnectionFailed("away")

    heard = await outcomes(monkeypatch, error)

    assert [str(each) for each in heard] == ["away"] * 4
    # Each its own: an exception that is raised in several tasks collects the traces of all.
    assert len({id(each) for each in heard}) == 4
