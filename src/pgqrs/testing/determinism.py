"""`assert_deterministic`: the same record must lead a workflow to the same steps, each time it is replayed."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

from pgqrs.blocking import _portal
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.branches import branch_of
from pgqrs.engine.registry import Handler
from pgqrs.testing.handle import RunHandle, shown
from pgqrs.testing.kit import handler_of
from pgqrs.testing.passes import Pass, passed
from pgqrs.testing.plain import Kit
from pgqrs.testing.replaying import recorded
from pgqrs.testing.steps import Asked
from pgqrs.types import StepStatus

# What differs from one pass to the next, and what to use instead.
_CAUSES = {
    r"\b(?:datetime|date)\.(?:now|utcnow|today)\b|\btime\.(?:time|monotonic|time_ns|perf_counter)\b": "ctx.now()",
    r"\brandom\.\w+|\bsecrets\.\w+": "ctx.random()",
    r"\buuid\d?\.?uuid[14]\b|\buuid[14]\(": "ctx.uuid()",
    r"\bos\.(?:environ|getenv|getpid|urandom)\b": "a step, or the workflow's input",
    r"\bset\(|\bas_completed\b|FIRST_COMPLETED": "an order that does not depend on hashes or on who is first",
    r"\bnonlocal\b|\bglobal\b|\.pop\(|\bnext\(": "a step for what the process remembers between passes",
}


def assert_deterministic(
    workflow: Any, /, *args: Any, drive: Callable[[Any, RunHandle], Any] | None = None, **kwargs: Any
) -> None:
    """Runs the workflow once, then replays it twice from each prefix of what it recorded, and compares.

    Raises AssertionError with the first step that is asked for differently, and the line that is the likely cause.
    """
    __tracebackhide__ = True
    handler = handler_of(workflow)
    with Kit() as kit:
        run = kit.trigger(handler, *args, **kwargs)
        if drive is None:
            kit.drain(skip_time=True)
        else:
            drive(kit, run)
        history = kit.export(run)
    text = None if history["input"] is None else json.dumps(history["input"])
    steps = [recorded(step) for step in history["steps"]]
    known = {
        step["step_id"]: None if step["input"] is None else json.dumps(step["input"]) for step in history["steps"]
    }
    done = [step for step in steps if step.status in (StepStatus.SUCCESS, StepStatus.ERROR)]
    for count in range(len(done) + 1):
        passes = [_portal.run(passed(handler, text, done[:count], run_id=history["run_id"])) for _ in range(2)]
        for number, each in enumerate(passes, 1):
            if difference := _difference(each, known, steps):
                where = f"pass {number} from the first {count} of {len(done)} recorded steps"
                raise AssertionError(f"{handler.name!r} is not deterministic: {where} {difference}{_cause(handler)}")
    last = passes[-1]
    expected = history["output"]
    if last.output is not None and json.loads(last.output) != expected:
        raise AssertionError(
            f"{handler.name!r} is not deterministic: a replay of all its steps gives "
            f"{shown(json.loads(last.output))}, the first run gave {shown(expected)}{_cause(handler)}"
        )


def _difference(seen: Pass, known: dict[str, str | None], steps: list[RecordedStep]) -> str:
    if seen.error is not None and type(seen.error).__name__ == "NonDeterminism":
        return f"fails: {seen.error}"
    for asked in seen.asked:
        if asked.step_id not in known:
            return f"asks for step {asked.step_id!r}, where the first run asked for {_there(asked, steps)}"
        before = known[asked.step_id]
        if asked.given is not None and before is not None and json.loads(asked.given) != json.loads(before):
            return f"calls step {asked.step_id!r} with {asked.given}, the first run with {before}"
    return ""


def _there(asked: Asked, steps: list[RecordedStep]) -> str:
    branch = branch_of(asked.step_id)
    same = [s for s in steps if s.ordinal == asked.ordinal and branch_of(s.step_id) == branch]
    return repr(same[0].step_id) if same else "nothing more"


def _cause(handler: Handler) -> str:
    """The first line of the handler that looks like the cause; a guess, and called one."""
    try:
        lines, start = inspect.getsourcelines(handler.function)
    except (OSError, TypeError):
        return ""
    for number, line in enumerate(lines, start):
        for pattern, instead in _CAUSES.items():
            if found := re.search(pattern, line):
                return f"\nlikely because of {found[0]!r} in line {number}: {line.strip()}\nuse {instead} instead"
    return "\nsomething outside of its steps gives another value each time; put it into a step"
