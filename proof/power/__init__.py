"""System calls that fail, and power that is cut: SQLite keeps what was acknowledged.

    workload.py    work through the public API, and the program that comes after
    nursery.py     forks it, and holds it until it is watched          tracing.py   strace beside it
    calls.py       the k-th write or sync is killed, EIO or ENOSPC
    recording.py   what was asked of the disk                          disk.py      what it may hold after a cut
    cuts.py        each such state, opened                             checking.py  what must hold

Short: a sample of both. CASE=work/fdatasync/EIO/5 runs that system call alone, CASE=cut/123 every state of that cut.
Controls: the same work with a driver that syncs less must be seen to lose what it acknowledged.
"""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator

from proof.order import Order
from proof.power import calls, cuts, recording, tracing
from proof.power.calls import Case
from proof.power.recording import Event
from proof.table import Row

ENOUGH_STATES = 1_000
# In the short form: system calls, cuts, and cuts of each control.
_SHORT_CALLS, _SHORT_CUTS, _SHORT_CONTROL = 96, 120, 40


def prove(order: Order) -> Iterator[Row]:
    if not order.asks_for("sqlite"):
        return
    try:
        tracing.check()
    except tracing.NoTracer as error:
        yield Row(
            2, "power loss and system calls", "sqlite", str(error), "strace", good=False, command=_command(order)
        )
        return
    events = cuts.record(order.folder / "full")
    case = os.environ.get("CASE", "")
    if not case or not case.startswith("cut/"):
        yield _calls(order, events, case)
    if not case or case.startswith("cut/"):
        yield _cuts(order, events, case)
    if not case:
        for synchronous in ("normal", "off"):
            yield _control(order, synchronous)


def _calls(order: Order, events: list[Event], case: str) -> Row:
    began = time.monotonic()
    every = calls.cases(recording.points(events))
    rng = random.Random(order.seed)
    chosen = [Case.named(case)] if case else every if order.full else calls.sample(every, _SHORT_CALLS, rng)
    (order.folder / "calls").mkdir()
    survived, ended = 0, Counter[str]()
    for result in calls.survive(chosen, order.folder / "calls"):
        if not result.reached and not result.wrong:
            ended["not reached"] += 1
            continue
        ended[result.ended] += 1
        survived += not result.wrong
        if result.wrong:
            print(f"    {result.case}: {result.wrong}; repeat with: {_command(order, str(result.case))}", flush=True)
    reached = len(chosen) - ended["not reached"]
    how = ", ".join(f"{number} {name}" for name, number in sorted(ended.items()))
    return Row(
        2,
        f"system calls: kill, EIO, ENOSPC ({len(chosen)} of {len(every)})",
        "sqlite",
        f"{survived}/{reached} survived; {how}",
        "all",
        # Threads share their commits as they come, so a few calls of the recording may not come again.
        good=survived == reached and reached >= 0.9 * len(chosen),
        command=_command(order),
        seconds=time.monotonic() - began,
    )


def _cuts(order: Order, events: list[Event], case: str) -> Row:
    began = time.monotonic()
    count = cuts.Count()
    chosen = [int(case.removeprefix("cut/"))] if case else _some(order, events, _SHORT_CUTS)
    different = cuts.states(events, chosen, order.seed, count)
    for state, wrong in cuts.examine(different, events, order.folder, count):
        print(
            f"    cut {state.cut}, {state.how}: {wrong}; repeat with: {_command(order, f'cut/{state.cut}')}",
            flush=True,
        )
    return Row(
        2,
        f"power cut: {count.opened} states, {count.cuts} of {len(events) + 1} cuts",
        "sqlite",
        f"lost {count.lost}, corrupt {count.corrupt}; {count.finished} went on",
        f"0, 0; {ENOUGH_STATES:,} states" if order.full else "0, 0",
        good=not count.lost and not count.corrupt and count.opened >= (ENOUGH_STATES if order.full else 1),
        command=_command(order),
        seconds=time.monotonic() - began,
    )


def _control(order: Order, synchronous: str) -> Row:
    """A method that never finds anything proves nothing."""
    began = time.monotonic()
    events = cuts.record(order.folder / synchronous, synchronous)
    count = cuts.Count()
    different = cuts.states(events, _some(order, events, _SHORT_CONTROL), order.seed, count)
    for _ in cuts.examine(different, events, order.folder, count, finish=False):
        pass
    return Row(
        2,
        f"control: synchronous={synchronous.upper()}, {count.opened} states",
        "sqlite",
        f"lost in {count.lost}, corrupt {count.corrupt}",
        "flagged as losing",
        good=count.lost > 0,
        command=_command(order),
        seconds=time.monotonic() - began,
    )


def _some(order: Order, events: list[Event], number: int) -> list[int]:
    return list(range(len(events) + 1)) if order.full else cuts.sample(events, number, order.seed)


def _command(order: Order, case: str = "") -> str:
    full = " FULL=1" if order.full and not case else ""
    return f"make proof LAYERS=power ON=sqlite SEED={order.seed}{full}{f' CASE={case}' if case else ''}"
