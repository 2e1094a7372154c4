"""Waiting for time, a person or a signal: nothing is held meanwhile, and a replay goes on where the record says."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from pgqrs.db import claims
from pgqrs.db.writes import StepRecord
from pgqrs.engine.branches import Place, outside
from pgqrs.engine.execution import Execution, Wait
from pgqrs.engine.outcome import described
from pgqrs.errors import WaitTimeout
from pgqrs.serialization import decode, encode
from pgqrs.types import StepStatus


async def sleep(execution: Execution, place: Place, length: timedelta) -> None:
    """Until the time that was fixed when this was first asked for."""
    recorded = execution.recorded(place)
    if recorded is not None and recorded.status is StepStatus.SUCCESS:
        return
    until = decode(recorded.output, datetime) if recorded and recorded.output else execution.now() + length
    if until > execution.now():
        record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=encode(until))
        await execution.wait(Wait(f"sleep until {until:%Y-%m-%d %H:%M:%S}", record, until=until))
    await execution.record(StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output=encode(until)))


async def pause(execution: Execution, place: Place, message: str) -> Any:
    """Until somebody resumes the run; gives the data that they resume it with."""
    recorded = execution.recorded(place)
    if recorded is not None and recorded.status is StepStatus.SUCCESS:
        return decode(recorded.output or "null")
    record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED)
    await execution.wait(Wait(message, record))
    raise AssertionError("a wait does not return")


async def wait_for(execution: Execution, place: Place, name: str, *, seconds: float | None, as_type: Any) -> Any:
    """The oldest unread signal of that name; WaitTimeout after so many seconds."""
    recorded = execution.recorded(place)
    if recorded is not None and recorded.status is StepStatus.SUCCESS:
        return decode(recorded.output or "null", as_type)
    if recorded is not None and recorded.status is StepStatus.ERROR:
        raise WaitTimeout(f"no signal {name!r} came in time")
    pending = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED)
    execution.begin()
    try:
        held, payload = await outside(claims.take_signal(execution.db, execution.claim.fence, pending, name=name))
    finally:
        execution.finish()
    if not held:
        execution.lost = True
        execution.check_alive()
    if payload is not None:
        return decode(payload, as_type)
    until = decode(recorded.output, datetime) if recorded and recorded.output else None
    if until is None and seconds is not None:
        until = execution.now() + timedelta(seconds=seconds)
    if until is not None and until <= execution.now():
        text, _ = described(WaitTimeout(f"no signal {name!r} came in time"))
        await execution.record(StepRecord(place.step_id, place.ordinal, StepStatus.ERROR, error=text))
        raise WaitTimeout(f"no signal {name!r} came in time")
    output = None if until is None else encode(until)
    record = StepRecord(place.step_id, place.ordinal, StepStatus.PAUSED, output=output)
    await execution.wait(Wait(name, record, until=until, signal=name))
    raise AssertionError("a wait does not return")
