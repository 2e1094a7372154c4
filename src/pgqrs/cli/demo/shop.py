"""The demo's application: what a small shop does all day. A worker of the demo serves this module."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pgqrs

# Where each beginning of a step is written down, so that the demo can tell what was run again and what was not.
LEDGER = "PGQRS_DEMO_LEDGER"

RETRY = pgqrs.RetryPolicy(max_attempts=3, base=1.0, jitter=0.0)
APPROVAL_FROM_EUROS = 100


class CardDeclined(Exception):
    """The bank says no, and will say so again."""


# -- workflows -----------------------------------------------------------------------------------------------


@pgqrs.workflow(name="order")
async def order(ctx: pgqrs.Context, sku: str, euros: int, trouble: str = "") -> dict[str, Any]:
    """Reserve, charge, have large ones approved, ship."""
    await ctx.step("reserve", reserve, ctx.run_id, sku)
    await ctx.step("charge", charge, ctx.run_id, euros, trouble, retry=RETRY)
    if euros >= APPROVAL_FROM_EUROS:
        answer = await ctx.wait_for("approval", type=pgqrs.Answer)
        if not answer.value["approved"]:
            await ctx.step("refund", refund, ctx.run_id, euros)
            return {"refunded": euros, "by": answer.actor}
    parcel = await ctx.step("ship", ship, ctx.run_id, sku)
    await ctx.emit("order.shipped", {"sku": sku, "parcel": parcel})
    return {"parcel": parcel}


@pgqrs.workflow(name="trip")
async def trip(ctx: pgqrs.Context, city: str, cars: int = 0) -> dict[str, Any]:
    """A saga: what was booked is cancelled, last first, when the next cannot be had."""
    booked: list[str] = []
    try:
        for what in ("flight", "hotel", "car"):
            await ctx.step(f"book_{what}", book, ctx.run_id, what, city, cars)
            booked.append(what)
    except pgqrs.PermanentError as error:
        for what in reversed(booked):
            await ctx.step(f"cancel_{what}", unbook, ctx.run_id, what)
        return {"undone": str(error)}
    return {"booked": booked}


@pgqrs.workflow(name="gallery")
async def gallery(ctx: pgqrs.Context, pictures: int) -> dict[str, Any]:
    """A child run for each picture, three at a time."""
    names = [f"{n:02}.jpg" for n in range(pictures)]
    made = await ctx.map("thumbnail", names, limit=3)
    return {"thumbnails": len(made)}


@pgqrs.workflow(name="thumbnail")
async def thumbnail(ctx: pgqrs.Context, picture: str) -> str:
    return await ctx.step("resize", resize, ctx.run_id, picture)


@pgqrs.workflow(name="reminder")
async def reminder(ctx: pgqrs.Context, customer: str, seconds: float) -> str:
    """Sleeps for as long as it is told: a row in a table, and nothing else."""
    text = await ctx.step("compose", compose, ctx.run_id, customer)
    await ctx.sleep(seconds)
    return await ctx.step("send", send, ctx.run_id, text)


@pgqrs.workflow(name="import_feed")
async def import_feed(ctx: pgqrs.Context, file: str, rows: int, bad_row: int = 0) -> dict[str, int]:
    """Fails for good where the feed is broken: trying again would not mend it."""
    await ctx.step("download", download, ctx.run_id, file)
    await ctx.progress(0, rows, "parsing")
    read = await ctx.step("parse", parse, ctx.run_id, file, rows, bad_row)
    return {"rows": read}


@pgqrs.workflow(name="report")
async def report(ctx: pgqrs.Context) -> dict[str, int]:
    """What a schedule triggers."""
    return {"orders": await ctx.step("count_orders", count_orders, ctx.run_id)}


# -- steps ---------------------------------------------------------------------------------------------------


async def reserve(run_id: int, sku: str) -> str:
    await _works("reserve", run_id, 0.2)
    return f"reservation of {sku}"


async def charge(run_id: int, euros: int, trouble: str) -> str:
    tried = await _works("charge", run_id, 0.3)
    if trouble == "timeout" and tried == 1:
        raise TimeoutError("the bank did not answer within 0.3 s")
    if trouble == "declined":
        raise CardDeclined(f"card of run {run_id} was declined for {euros} EUR")
    return f"payment of {euros} EUR"


async def refund(run_id: int, euros: int) -> str:
    await _works("refund", run_id, 0.2)
    return f"refund of {euros} EUR"


async def ship(run_id: int, sku: str) -> str:
    # Long enough to be killed in the midst of it.
    await _works("ship", run_id, 1.2)
    return f"parcel {run_id} with {sku}"


async def book(run_id: int, what: str, city: str, cars: int) -> str:
    await _works(f"book_{what}", run_id, 0.2)
    if what == "car" and not cars:
        raise pgqrs.PermanentError(f"no car is left in {city}")
    return f"{what} in {city}"


async def unbook(run_id: int, what: str) -> str:
    await _works(f"cancel_{what}", run_id, 0.1)
    return f"{what} cancelled"


async def resize(run_id: int, picture: str) -> str:
    await _works("resize", run_id, 0.3)
    return picture.replace(".jpg", ".small.jpg")


async def compose(run_id: int, customer: str) -> str:
    await _works("compose", run_id, 0.1)
    return f"Dear {customer}, your basket waits."


async def send(run_id: int, text: str) -> str:
    await _works("send", run_id, 0.1)
    return f"sent: {text}"


async def download(run_id: int, file: str) -> str:
    await _works("download", run_id, 0.4)
    return f"/tmp/{file}"  # noqa: S108 - a name in a demo, no file


async def parse(run_id: int, file: str, rows: int, bad_row: int) -> int:
    await _works("parse", run_id, 0.3)
    if bad_row:
        raise pgqrs.PermanentError(f"{file}, row {bad_row}: the price is no number")
    return rows


async def count_orders(run_id: int) -> int:
    await _works("count_orders", run_id, 0.1)
    return 3


# -- what takes time, and what is written down ---------------------------------------------------------------

# How time passes: the seconds that a step takes, and which one it is.
Pace = Callable[[float, str], Awaitable[None]]


async def _asleep(seconds: float, _: str) -> None:
    await asyncio.sleep(seconds)


_pace: Pace = _asleep
_begun: Counter[tuple[str, int]] = Counter()


async def _works(step: str, run_id: int, seconds: float) -> int:
    """Takes that long; says how often this step of this run has begun."""
    times = _count(step, run_id)
    await _pace(seconds, f"{step} {run_id} {times}")
    return times


def _count(step: str, run_id: int) -> int:
    path = os.environ.get(LEDGER)
    if path is None:
        _begun[step, run_id] += 1
        return _begun[step, run_id]
    with Path(path).open("ab", buffering=0) as file:
        file.write(f"{step} {run_id} {os.getpid()}\n".encode())
    return sum(entry[:2] == (step, run_id) for entry in read_ledger(Path(path)))


def read_ledger(path: Path) -> list[tuple[str, int, int]]:
    """Each beginning of a step: its name, the run, the process."""
    lines = path.read_text(encoding="ascii").splitlines() if path.exists() else []
    return [(step, int(run_id), int(pid)) for step, run_id, pid in map(str.split, lines)]


@contextmanager
def paced(pace: Pace) -> Iterator[None]:
    """Time passes otherwise: for those who make up a past."""
    global _pace  # noqa: PLW0603 - the steps are functions of a module
    before, _pace = _pace, pace
    _begun.clear()
    try:
        yield
    finally:
        _pace = before
