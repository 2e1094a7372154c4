"""What several tests of lost replies need."""

from contextvars import ContextVar

import pytest

from pgqrs import faults

_statements: ContextVar[list[str] | None] = ContextVar("statements", default=None)


@pytest.fixture
def lose_commit(monkeypatch):
    """Arms one loss: the next unit of work that runs this statement commits, and then its connection breaks."""
    from pgqrs.db.drivers.postgres import driver

    armed: list[str] = []
    perform = driver.PostgresDriver._perform_once

    def note(point):
        # Of the task that runs it: a hint that is sent meanwhile must not be taken for the unit that is meant.
        if point.phase == "sql" and (seen := _statements.get()) is not None:
            seen.append(point.name)

    async def losing(self, work, kind, *, retried):
        seen = []
        before = _statements.set(seen)
        try:
            result = await perform(self, work, kind, retried=retried)
        finally:
            _statements.reset(before)
        if armed and armed[0] in seen:
            armed.clear()
            raise driver.Failed(ConnectionResetError("the reply was lost"), reply_lost=True)
        return result

    monkeypatch.setattr(driver.PostgresDriver, "_perform_once", losing)
    with faults.injected(note):
        yield armed.append
    assert not armed, f"nobody ran {armed}: no reply was lost, so nothing was tested"
