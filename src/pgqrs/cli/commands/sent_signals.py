"""What was sent with the signals of a run, beside its events: an event has only the signal's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgqrs.api.store import Store
    from pgqrs.types import Event

# A table shows what people have written, not documents; of a run that was sent more, the first.
_LONGEST_SIGNAL = 1_000
_MOST_SIGNALS = 1_000


async def show_signals(store: Store, run_id: int, found: Sequence[Event], told: list[dict[str, Any]]) -> None:
    """Add to each signal what was sent with it, such as the comment of an approval: the event has only its name."""
    from pgqrs.api.operations.stored_json import stored
    from pgqrs.db.views import inspection

    signalled = [(event, shown) for event, shown in zip(found, told, strict=True) if event.event_type == "signalled"]
    if not signalled:
        return
    db = await store.ready()
    sizes = await inspection.signal_sizes(db, run_id, limit=_MOST_SIGNALS, after=0)
    short = [signal_id for signal_id, size in sizes if size <= _LONGEST_SIGNAL]
    sent = {(each.name, each.created_at, each.actor): each for each in await inspection.signals(db, run_id, short)}
    for event, shown in signalled:
        name = event.data.get("name") if isinstance(event.data, dict) else None
        # They are written in one transaction, at one time.
        signal = sent.get((str(name), event.created_at, event.actor))
        if signal is not None and signal.payload not in (None, "null"):
            shown["data"] = {**shown["data"], "payload": stored(signal.payload)}
