"""`ctx.emit` outside of steps: a step of its own, whose record and event go in together."""

from __future__ import annotations

from pgqrs.db.runs.history import Emission
from pgqrs.db.runs.records import StepRecord
from pgqrs.engine.ctx.steps import apart
from pgqrs.engine.replay.branches import BranchPlace
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.types import StepStatus


async def emit(run_pass: RunPass, place: BranchPlace, emission: Emission) -> None:
    """Returns when the event is in the outbox, once however often this is replayed."""
    recorded = run_pass.recorded(place)
    if recorded is not None and recorded.status is StepStatus.SUCCESS:
        await run_pass.order.turn(place.step_id)
        return
    await run_pass.leave_behind()
    run_pass.in_flight.begin()
    record = StepRecord(place.step_id, place.ordinal, StepStatus.SUCCESS, output="null")
    await apart(run_pass, run_pass.recorder.record(record, [emission]), place.step_id)
