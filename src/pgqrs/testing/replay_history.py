"""`replay`: the present code against the recorded history of a run, for golden files in CI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pgqrs.api.operations.export import FORMAT
from pgqrs.blocking import _portal
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.engine.runs.outcome import described
from pgqrs.errors import ConfigError, NonDeterminism
from pgqrs.serialization import decode
from pgqrs.testing.handle import shown
from pgqrs.testing.kit import handler_of
from pgqrs.testing.replay_pass import ReplayedPass, passed
from pgqrs.types import RunStatus, StepStatus

_ADVICE = "the code has changed since; give the new code another name, or record a new history"


def replay(exported: Mapping[str, Any] | str | Path, workflow: Any) -> Any:
    """Runs the workflow's code against what `run.export()` gave, or a file with it; no step body runs.

    Gives the result. Raises NonDeterminism when the code asks for different steps than the recorded ones, and
    AssertionError when it ends in another way. Of a run that had not ended, the code must get as far as the record
    does.
    """
    __tracebackhide__ = True
    history = _read(exported)
    handler = handler_of(workflow)
    record = [recorded(step) for step in history["steps"]]
    done = _portal.run(passed(handler, _text(history["input"]), record, run_id=history["run_id"]))
    if isinstance(done.error, NonDeterminism):
        raise done.error.with_traceback(None)
    return _compared(history, handler, done)


def _compared(history: Mapping[str, Any], handler: Handler, done: ReplayedPass) -> Any:
    __tracebackhide__ = True
    status = RunStatus(history["status"])
    name = f"run {history['run_id']} of {history['workflow']!r}"
    if done.missing is not None:
        raise NonDeterminism(
            f"the present code comes to its end, or to a wait, without step {done.missing!r}, which is on the record "
            f"of {name}: {_ADVICE}"
        )
    if status not in (RunStatus.SUCCESS, RunStatus.ERROR):
        return None
    if done.went_beyond:
        known = {step["step_id"] for step in history["steps"]}
        new = [asked.step_id for asked in done.asked if asked.step_id not in known]
        more = f"asks for step {new[0]!r}, which is not on its record" if new else "waits"
        raise NonDeterminism(f"{name} ended in {status}, but the present code {more}: {_ADVICE}")
    if done.error is not None:
        _, line = described(done.error)
        if status is RunStatus.SUCCESS or line != history["error"]:
            raise AssertionError(f"{name} ended in {status}, the present code in {line}") from done.error
        return None
    if status is RunStatus.ERROR:
        raise AssertionError(f"{name} ended in {history['error']}, the present code gives {shown(done.output)}")
    output = _text(history["output"]) or "null"
    if json.loads(done.output or "null") != history["output"]:
        raise AssertionError(f"{name} gave {shown(decode(output))}, the present code gives {shown(done.output)}")
    return decode(output, handler.returns)


def recorded(step: Mapping[str, Any]) -> RecordedStep:
    return RecordedStep(
        step["step_id"],
        step["ordinal"],
        StepStatus(step["status"]),
        _text(step["output"]),
        _text(step["error"]),
        step["attempts"],
        _text(step.get("input")),
        step.get("sequence"),
    )


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value)


def _read(exported: Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    history = exported
    if isinstance(history, Path):
        history = history.read_text(encoding="utf-8")
    if isinstance(history, str):
        history = json.loads(history)
    if not isinstance(history, Mapping) or history.get("pgqrs") != FORMAT:
        raise ConfigError(f"this is no exported run of format {FORMAT}", hint="make one with `await run.export()`")
    return history
