"""Keeps the leases of slow messages, whatever they do to the event loop; quick ones cost it nothing."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.tables.messages import Lease
from pgqrs.engine.heartbeat import Heartbeat, HeldLease
from pgqrs.engine.queues.leases import LeaseHolder


class MessageSlot:
    """A place for one message in work."""

    __slots__ = ("lease",)

    def __init__(self) -> None:
        self.lease: Lease | None = None


class LeaseRenewer:
    """A thread that looks at the slots now and then: what has used up a third of its lease is renewed from then."""

    def __init__(
        self, db: Driver, config: Config, holder: LeaseHolder, slots: Sequence[MessageSlot], lease_seconds: float
    ) -> None:
        self._holder = holder
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._loop = asyncio.get_running_loop()
        self._heartbeat = Heartbeat(db, config, worker_id=holder.worker_id, lease_seconds=lease_seconds)
        self._kept: dict[int, HeldLease] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pgqrs-keeper", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for the thread."""
        self._stop.set()
        self._thread.join()
        self._heartbeat.close()

    def _run(self) -> None:
        while not self._stop.wait(self._lease_seconds / 9):
            self._look()

    def _look(self) -> None:
        slow = {lease.message_id: lease for slot in self._slots if (lease := slot.lease) is not None}
        for message_id, held in list(self._kept.items()):
            if message_id not in slow or slow[message_id].lease_token != held.token:
                del self._kept[message_id]
                self._heartbeat.let_go(held)
        late = time.monotonic() + self._lease_seconds * 2 / 3
        for message_id, lease in slow.items():
            token, ends = self._holder.known(message_id)
            # A token of another lease, or none: the handler has settled it.
            if token == lease.lease_token and message_id not in self._kept and ends < late:
                # A lease that was lost shows when its message is settled: that changes nothing then, and says so.
                self._kept[message_id] = self._heartbeat.hold(
                    message_id, lease.lease_token, run_id=0, lease_seconds=self._lease_seconds
                )
                self._loop.call_soon_threadsafe(self._holder.renewed_by_others, lease)
