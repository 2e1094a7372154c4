"""On which timeline a server is: asked with each connection, and what does not answer is no reason to fail."""

import asyncio
import logging

import asyncpg
import pytest

from pgqrs.db.drivers.postgres.timeline import TimelineWatch


class Connection:
    """Answers with the digits of a timeline, or raises."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = self.terminated = False

    async def fetchval(self, _sql):
        self.asked = True
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def terminate(self):
        self.terminated = True


@pytest.mark.parametrize(
    "error", [asyncpg.AdminShutdownError("ended"), OSError("broken"), TimeoutError(), asyncio.CancelledError()]
)
async def test_a_connection_that_breaks_meanwhile_is_ended_and_the_next_is_asked(error, caplog):
    caplog.set_level(logging.WARNING, "pgqrs.db")
    lineage = TimelineWatch()
    await lineage.looked_at(Connection("00000001"))
    broken = Connection(error)
    with pytest.raises(type(error)):
        await lineage.looked_at(broken)
    await lineage.looked_at(Connection("0000000B"))

    assert broken.terminated
    assert "timeline 11, before 1" in caplog.text


async def test_a_server_that_does_not_say_is_asked_once():
    lineage = TimelineWatch()
    first, second = Connection(asyncpg.InsufficientPrivilegeError("no")), Connection("00000001")

    assert await lineage.looked_at(first) is first
    assert await lineage.looked_at(second) is second
    assert (first.asked, first.terminated, second.asked) == (True, False, False)


async def test_a_standby_writes_on_none(caplog):
    caplog.set_level(logging.WARNING, "pgqrs.db")
    lineage = TimelineWatch()
    for answer in ("00000002", None, "00000002"):
        await lineage.looked_at(Connection(answer))

    assert caplog.text == ""
