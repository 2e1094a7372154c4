"""A run as a document: what it was given, what is on record of it, how it ended; for people, and for replay."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from pgqrs.api.operations.stored_json import stored
from pgqrs.db.tables import runs
from pgqrs.db.tables.runs import FIRST_STEP, RunRow, StepRow
from pgqrs.db.views import inspection
from pgqrs.db.views.inspection import SentSignal
from pgqrs.serialization import broken

if TYPE_CHECKING:
    from pgqrs.api.store import Store

FORMAT = 1
# What is read at once, of steps or signals: as few as have that many characters together, but at least one.
MOST_CHARACTERS = 2 * 2**20
MOST_ROWS = 1_000

Key = TypeVar("Key")
_encode = msgspec.json.Encoder().encode


async def export_run(store: Store, run_id: int) -> dict[str, Any]:
    """Plain data that JSON holds; values stand as they are stored, tags included.

    A stored text that is broken stands as `{"$broken": text}`.
    """
    text = b"".join([piece async for piece in export_pieces(store, run_id)])
    whole: dict[str, Any] = json.loads(text, parse_float=_number)
    return whole


def _number(text: str) -> Any:
    """A number that Python's floats have no room for is shown as the text that it is."""
    number = float(text)
    return number if math.isfinite(number) else broken(text)


async def export_pieces(store: Store, run_id: int) -> AsyncIterator[bytes]:
    """The text of the document, piece by piece: however large a run is, little of it is in memory."""
    db = await store.ready()
    run = await runs.get(db, run_id)
    yield _encode(_head(run))[:-1] + b',"steps":['
    is_first, after = True, FIRST_STEP
    # Each step once and to an end, in whatever order a row that was changed by hand is sorted.
    seen: set[str] = set()
    while sizes := await runs.step_sizes(db, run_id, limit=MOST_ROWS, after=after):
        new = [each for each in sizes if each[0].step_id not in seen]
        if not new:
            break
        seen.update(place.step_id for place, _ in new)
        for places in _batches(new):
            found = await runs.steps_named(db, run_id, [place.step_id for place in places])
            yield _joined((_step(step) for step in found), is_first=is_first)
            is_first = is_first and not found
        after = sizes[-1][0]
    yield b'],"signals":['
    is_first, last = True, 0
    while numbers := await inspection.signal_sizes(db, run_id, limit=MOST_ROWS, after=last):
        for ids in _batches(numbers):
            sent = await inspection.signals(db, run_id, ids)
            yield _joined((_signal(each) for each in sent), is_first=is_first)
            is_first = is_first and not sent
        last = numbers[-1][0]
    yield b"]}"


def _head(run: RunRow) -> dict[str, Any]:
    return {
        "pgqrs": FORMAT,
        "run_id": run.run_id,
        "workflow": run.workflow,
        "status": str(run.status),
        "input": stored(run.input, raw=True),
        "output": stored(run.output, raw=True),
        "error": run.last_error,
        "waiting_for": run.waiting_for,
        "attempt": run.attempt,
    }


def _step(step: StepRow) -> dict[str, Any]:
    return {
        "step_id": step.step_id,
        "ordinal": step.ordinal,
        "status": str(step.status),
        "input": stored(step.input, raw=True),
        "output": stored(step.output, raw=True),
        "error": stored(step.error, raw=True),
        "attempts": step.attempts,
        "sequence": step.sequence,
    }


def _signal(signal: SentSignal) -> dict[str, Any]:
    return {
        "name": signal.name,
        "payload": stored(signal.payload, raw=True),
        "actor": signal.actor,
        "consumed": signal.consumed_at is not None,
    }


def _joined(things: Iterable[Any], *, is_first: bool) -> bytes:
    """Items of a list, a line each; behind others a comma comes first."""
    text = b",\n".join(_encode(each) for each in things)
    return text if is_first or not text else b",\n" + text


def _batches(sizes: Iterable[tuple[Key, int]]) -> Iterator[list[Key]]:
    """Neighbours that are small enough together."""
    batch: list[Key] = []
    held = 0
    for key, size in sizes:
        if batch and held + size > MOST_CHARACTERS:
            yield batch
            batch, held = [], 0
        batch.append(key)
        held += size
    if batch:
        yield batch
