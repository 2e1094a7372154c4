"""`ctx.first`: the first of several waits to come to an end. Its winner is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from pgqrs.clock import LATEST
from pgqrs.db.runs import claims
from pgqrs.db.runs.records import StepRecord
from pgqrs.engine.ctx.recorded_results import replayed_text
from pgqrs.engine.ctx.steps import Raise, apart
from pgqrs.engine.ctx.wait import Waiter
from pgqrs.engine.replay.branches import Branch, BranchPlace, current_branch
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.suspension import Wait
from pgqrs.errors import ConfigError
from pgqrs.serialization import decode, encode
from pgqrs.types import StepStatus

_ENDED = (StepStatus.SUCCESS, StepStatus.ERROR)


class First(NamedTuple):
    """Which wait of `ctx.first` won: its number, or its name where the waits were named; and what it gave."""

    key: int | str
    value: Any


def waiters(given: tuple[Any, ...], named: Mapping[str, Any]) -> dict[int | str, Waiter]:
    """The waits of one call, by number or name."""
    found: dict[int | str, Any] = dict(enumerate(given))
    found.update(named)
    if not found:
        raise ConfigError("ctx.first needs at least one wait, such as ctx.sleep(60) or ctx.wait_for('approval')")
    for key, each in found.items():
        if not isinstance(each, Waiter):
            raise ConfigError(
                f"ctx.first takes waits (ctx.sleep, wait_for, pause, child.result()), and argument {key!r} is "
                f"{type(each).__name__}",
                hint="run a step as a child workflow to race it",
            )
    return found


async def first(run_pass: RunPass, place: BranchPlace, given: Mapping[int | str, Waiter]) -> First:
    """Looks at one after the other until one has ended: no signal is taken by a wait that loses."""
    recorded = run_pass.recorded(place)
    for each in given.values():
        run_pass.unawaited.begun(each.place.step_id)
    if recorded is not None and recorded.status in _ENDED:
        key = decode(await replayed_text(run_pass, place) or "null")
        winner = given.get(key)
        if winner is None:
            raise run_pass.diverged(f"has recorded {key!r} as the winner of {place.step_id!r}, and asks without it")
        answer = await winner.replayed()
        if answer is None:
            raise AssertionError("the winner of a race has ended")
        return First(key, answer.given(run_pass))
    await run_pass.leave_behind()
    run_pass.in_flight.begin()
    ended = await apart(run_pass, _raced(run_pass, place, given, current_branch.get()), place.step_id)
    match ended:
        case Raise(error):
            raise run_pass.failures.raised(error)
        case First():
            return ended
        case waits:
            await run_pass.resting.wait(*waits)
    raise AssertionError("a wait does not return")


async def _raced(
    run_pass: RunPass, place: BranchPlace, given: Mapping[int | str, Waiter], branch: Branch | None
) -> First | Raise | list[Wait]:
    """The winner, or its error, which are recorded now; else what to wait for."""
    waits: list[Wait] = []
    for key in await _in_order(run_pass, given):
        looked = await given[key].look(branch)
        if isinstance(looked, Wait):
            waits.append(replace(looked, is_any=True))
            continue
        record = StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=encode(key))
        if looked.error is not None:
            # The failure of the race, too: if it leaves the handler, both are run again.
            error = await run_pass.recorder.fail(record, looked.error, branch=branch)
            run_pass.failures.failed_together([looked.error, error])
            return Raise(error)
        await run_pass.recorder.record(record)
        return First(key, looked.value)
    return waits


async def _in_order(run_pass: RunPass, given: Mapping[int | str, Waiter]) -> list[int | str]:
    """Those that have ended first, by the database's clock; among equals, and among the others, as they were given.

    One whose end is recorded has won, though that was not written before the worker was lost.
    """
    names = sorted({each.signal for each in given.values() if each.signal is not None})
    run_id = run_pass.claim.run_id
    sent: dict[str, datetime] = {}
    if names and len(given) > 1:
        sent = await run_pass.recorder.ask(lambda _again: claims.unread_signals(run_pass.db, run_id, names))
    ended = {key: await each.ended_at(sent) for key, each in given.items()} if len(given) > 1 else {}
    return sorted(given, key=lambda key: (_rank(run_pass, given[key]), ended.get(key) or LATEST))


def _rank(run_pass: RunPass, waiter: Waiter) -> int:
    """What an earlier pass has recorded comes first: the signal is used up. Then the answer of a person."""
    recorded = run_pass.claim.steps.get(waiter.place.step_id)
    if recorded is None or recorded.status not in _ENDED:
        return 2
    return 1 if recorded.sequence is None else 0
