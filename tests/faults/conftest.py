"""What several tests of lost replies need."""

import pytest

from pgqrs import faults


@pytest.fixture
def lose_commit(monkeypatch):
    """Arms one loss: the next unit of work that runs this statement commits, and then its connection breaks."""
    from pgqrs.db.drivers import postgres

    armed: list[str] = []
    perform = postgres.PostgresDriver._perform_once

    async def losing(self, work, kind, *, retried):
        seen = []

        async def watched(session):
            with faults.injected(lambda point: seen.append(point.name) if point.phase == "sql" else None):
                return await work(session)

        result = await perform(self, watched, kind, retried=retried)
        if armed and armed[0] in seen:
            armed.clear()
            raise postgres._Failed(ConnectionResetError("the reply was lost"), reply_lost=True)
        return result

    monkeypatch.setattr(postgres.PostgresDriver, "_perform_once", losing)
    yield armed.append
    assert not armed, f"nobody ran {armed}: no reply was lost, so nothing was tested"
