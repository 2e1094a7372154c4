"""What nobody ordered: processes that are not let run, a database that is slow, because the machine is busy.

Leases are lost then, too, and steps are done again. So it is measured, by us and not by the library's own word,
and counts as a fault that those felt who were there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from proof.chaos.ledger import Ledger

# A heartbeat has a third of a lease, which is 3 s here.
LATE_SECONDS = 0.3
GLANCE_SECONDS = 0.1


def watch(ledger: Ledger, ended: threading.Event) -> None:
    """Notes when this process was not let run, until it is told to end."""
    while True:
        before = time.monotonic()
        if ended.wait(GLANCE_SECONDS):
            return
        _note(ledger, time.monotonic() - before - GLANCE_SECONDS)


def pulse(ledger: Ledger, ended: threading.Event, written: Callable[[], object]) -> None:
    """Notes when one small commit took long; when it failed, that was ordered."""
    while not ended.wait(GLANCE_SECONDS):
        before = time.monotonic()
        try:
            written()
        except Exception:  # noqa: BLE001 - the server is away: the director knows
            continue
        _note(ledger, time.monotonic() - before)


def _note(ledger: Ledger, late: float) -> None:
    if late > LATE_SECONDS:
        ledger.note("late", f"{late:.3f}")
