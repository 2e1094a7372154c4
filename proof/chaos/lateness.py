"""What nobody ordered: processes that wait for a processor, a database that is slow, because the machine is busy.

Leases are lost then, too, and steps are done again. So it is measured, by us and not by the library's own word,
and counts as a fault that those felt who were there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from proof.chaos.ledger import Ledger, Line

GLANCE_SECONDS = 0.25
# So long waiting for a processor: what takes 50 ms by itself takes 250 then, and a heartbeat of several such things
# misses its third of a lease.
LATE_SECONDS = 0.2
SLOW_COMMIT_SECONDS = 0.3


def watch(ledger: Ledger, ended: threading.Event) -> None:
    """Notes when this process was not let run, until it is told to end."""
    waits = _waits()
    while True:
        before = time.monotonic()
        if ended.wait(GLANCE_SECONDS):
            return
        late = time.monotonic() - before - GLANCE_SECONDS
        former, waits = waits, _waits()
        late = max([late, *(seconds - former.get(thread, 0.0) for thread, seconds in waits.items())])
        if late > LATE_SECONDS:
            ledger.note("late", f"{time.monotonic() - before:.3f}")


def pulse(ledger: Ledger, ended: threading.Event, written: Callable[[], object]) -> None:
    """Notes when one small commit took long; when it failed, that was ordered."""
    while not ended.wait(GLANCE_SECONDS):
        before = time.monotonic()
        try:
            written()
        except Exception:  # noqa: BLE001 - the server is away: the director knows
            continue
        late = time.monotonic() - before
        if late > SLOW_COMMIT_SECONDS:
            ledger.note("late", f"{late:.3f}")


def busy_times(lines: Iterable[Line], *, most: float) -> dict[int, list[tuple[float, float]]]:
    """By process, what was noted without a gap as one, but none longer than `most`: one may cost one lease each."""
    found: dict[int, list[tuple[float, float]]] = {}
    for line in lines:
        if line.verb != "late":
            continue
        times = found.setdefault(line.pid, [])
        began = line.at - float(line.words[0])
        if times and began - times[-1][1] < GLANCE_SECONDS and line.at - times[-1][0] < most:
            times[-1] = (times[-1][0], line.at)
        else:
            times.append((began, line.at))
    return found


def _waits() -> dict[str, float]:
    """Seconds that each thread of ours has waited for a processor; nothing where the kernel does not tell."""
    found = {}
    for folder in Path("/proc/self/task").glob("*"):
        try:
            found[folder.name] = int((folder / "schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError):
            continue
    return found
