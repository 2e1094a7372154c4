"""The outbox: events claimed in the order of their run, published or tried again, every write fenced by a token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgqrs.clock import EPOCH
from pgqrs.db.database import WHOLE, Database, Kind, Row, store_call
from pgqrs.db.queries import load
from pgqrs.db.readable import most_behind
from pgqrs.reports import OutboxCounts
from pgqrs.types import OutboxEvent

_SQL = load(__package__, "outbox")


@dataclass(frozen=True, slots=True)
class VisibleEvent:
    """An event that is visible; it may be claimed when it is the first of its run that is neither sent nor dead."""

    event_id: int
    run_id: int
    event_type: str
    is_head: bool


@dataclass(frozen=True, slots=True)
class ClaimedEvent:
    """An event in the hands of one dispatcher, under the token of its claim."""

    event: OutboxEvent
    token: int


@store_call(Kind.READ, idempotent=True)
async def look(db: Database, *, most: int) -> list[VisibleEvent]:
    """The first of what is visible, longest visible first."""
    rows = await db.fetch(_SQL["look"], most=most)
    return [
        VisibleEvent(event_id, run_id, event_type, bool(is_head)) for event_id, run_id, event_type, is_head in rows
    ]


@store_call(Kind.STATEMENT, idempotent=True)
async def claim(
    db: Database, event_ids: Sequence[int], *, token: int, lease_seconds: float, source: str
) -> list[ClaimedEvent]:
    """Those of the events that nobody else has taken since they were seen.

    The token is the caller's, made for this one claim: so a claim whose reply was lost finds what it took.
    """
    await db.fetch(_SQL["claim_events"], ids=event_ids, token=token, lease_seconds=lease_seconds)
    held = await db.fetch(_SQL["events_held"], ids=event_ids, token=token)
    return [ClaimedEvent(_event(row, source), row[-1]) for row in held]


@store_call(Kind.STATEMENT, idempotent=True)
async def published(db: Database, claimed: ClaimedEvent) -> bool:
    """It was sent, and the next of its run may go; False when somebody else holds it by now."""
    event, token = claimed.event, claimed.token
    done = bool(await db.execute(_SQL["mark_published"], event_id=event.event_id, token=token))
    if not done and db.retried:
        state = await _state(db, event.event_id)
        done = state is not None and state[0] == token and state[1] is not None
    if done:
        # Not needed for anything but speed: what was set aside comes back by itself.
        await db.execute(_SQL["pull_next"], run_id=event.run_id)
    return done


@store_call(Kind.STATEMENT, idempotent=True)
async def failed(db: Database, claimed: ClaimedEvent, *, error: str, delay: float, max_attempts: int) -> bool:
    """It is tried again after `delay` seconds, and what waits behind it waits as long; after the last attempt it is
    dead, and what waits behind it goes on. False when somebody else holds it by now."""
    event, token = claimed.event, claimed.token
    done = bool(
        await db.execute(
            _SQL["mark_failed"],
            event_id=event.event_id,
            token=token,
            error=error,
            delay=delay,
            max_attempts=max_attempts,
        )
    )
    state = await _state(db, event.event_id)
    if not done and db.retried:
        done = state is not None and state[0] == -token
    if done and state is not None:
        if state[2] is None:
            await db.execute(_SQL["push_later"], run_id=event.run_id, event_id=event.event_id, delay=delay)
        else:
            await db.execute(_SQL["pull_next"], run_id=event.run_id)
    return done


@store_call(Kind.STATEMENT, idempotent=True)
async def give_back(db: Database, claimed: ClaimedEvent) -> None:
    """Visible again at once, no attempt counted: its dispatcher is stopping."""
    await db.execute(_SQL["give_back"], event_id=claimed.event.event_id, token=claimed.token)


@store_call(Kind.STATEMENT, idempotent=True)
async def set_aside(db: Database, event_ids: Sequence[int], *, seconds: float) -> None:
    """Events that cannot be claimed now leave the head of the line, so that others are seen."""
    await db.execute(_SQL["set_aside"], ids=event_ids, seconds=seconds)


@store_call(Kind.READ, idempotent=True)
async def next_due(db: Database) -> float | None:
    """Seconds until the next event becomes visible that is not yet; None when there is none."""
    rows = await db.fetch(_SQL["next_due"])
    return rows[0][0] if rows else None


@store_call(Kind.READ, idempotent=True)
async def counts(db: Database) -> OutboxCounts:
    return OutboxCounts(*(await db.fetch(_SQL["count_events"]))[0])


@store_call(Kind.READ, idempotent=True)
async def unpublished(
    db: Database, *, limit: int, after: OutboxEvent | None, source: str, cut: int = WHOLE
) -> list[OutboxEvent]:
    """By run and in its order, a page at a time; texts are cut."""
    rows = await db.fetch(
        _SQL["list_unpublished"],
        most=limit,
        after_run=after.run_id if after else 0,
        after_id=after.event_id if after else 0,
        cut=cut,
    )
    return [_event(row, source) for row in rows]


@store_call(Kind.READ, idempotent=True)
async def dead(
    db: Database, *, limit: int, after: OutboxEvent | None, source: str, cut: int = WHOLE
) -> list[OutboxEvent]:
    """Longest dead first, a page at a time; texts are cut."""
    rows = await db.fetch(
        _SQL["list_dead"],
        most=most_behind(after.dead_at, limit) if after and after.dead_at else limit,
        after_time=(after.dead_at if after else None) or EPOCH,
        after_id=after.event_id if after else 0,
        cut=cut,
    )
    return [_event(row, source) for row in rows]


@store_call(Kind.STATEMENT, idempotent=True)
async def replay(db: Database, event_ids: Sequence[int]) -> int:
    """Dead ones among the given start anew; returns how many."""
    return await db.execute(_SQL["replay_events"], ids=event_ids)


@store_call(Kind.STATEMENT, idempotent=True)
async def notify(db: Database, *, channel: str, payload: str) -> None:
    """PostgreSQL only."""
    await db.fetch(_SQL["notify"], channel=channel, payload=payload)


async def _state(db: Database, event_id: int) -> Row | None:
    rows = await db.fetch(_SQL["how_it_stands"], event_id=event_id)
    return rows[0] if rows else None


def _event(row: Row, source: str) -> OutboxEvent:
    event_id, uuid, run_id, workflow, event_type, payload, created_at, attempts, error, sent_at, dead_at, _ = row
    return OutboxEvent(
        id=uuid,
        type=event_type,
        source=source,
        run_id=run_id,
        workflow=workflow,
        payload_text=payload,
        created_at=created_at,
        attempts=attempts,
        last_error=error,
        published_at=sent_at,
        dead_at=dead_at,
        event_id=event_id,
    )
