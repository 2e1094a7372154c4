"""Which history a server writes on: a promotion begins a new timeline, and an old primary is still on the old one.

A client cannot prevent two primaries. It can say that it has seen them.
"""

from __future__ import annotations

import logging
from typing import Any

import asyncpg

log: logging.Logger = logging.getLogger("pgqrs.db")

# The first eight digits of the name of the log file that is being written; a standby writes none.
_TIMELINE = """
select case when not pg_is_in_recovery() then substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) end
"""


class TimelineWatch:
    """Asked with each new connection; remembers the newest timeline that any of them was on."""

    def __init__(self) -> None:
        self._newest: int | None = None
        self._can_be_asked = True

    async def looked_at(self, connection: Any) -> Any:
        """The connection; warns when its server is on another timeline than the one before."""
        try:
            if self._can_be_asked:
                await self._look(connection)
        except BaseException:
            # Cancelled, or broken: nobody gets it, so nobody would close it.
            connection.terminate()
            raise
        return connection

    async def _look(self, connection: Any) -> None:
        try:
            digits: str | None = await connection.fetchval(_TIMELINE)
        except asyncpg.OperatorInterventionError:
            # It is ending, or coming up: the next connection shall be asked.
            raise
        except asyncpg.PostgresError as error:
            # Some services keep these functions to themselves.
            log.debug("the server does not say on which timeline it is: %s", error)
            self._can_be_asked = False
            return
        if digits is not None:
            self._compare(int(digits, 16))

    def _compare(self, timeline: int) -> None:
        newest = self._newest
        if newest is not None and timeline > newest:
            log.warning(
                "a standby was promoted (timeline %d, before %d): what the old primary had not sent to it is lost",
                *(timeline, newest),
            )
        elif newest is not None and timeline < newest:
            log.error(
                "this server is on timeline %d, but another was on %d already: an old primary accepts writes, which "
                "will be lost or have to be merged by hand; stop it now, and see docs/guides/failover.md",
                *(timeline, newest),
            )
        self._newest = max(timeline, newest or 0)
