"""`assert_deterministic`: the same record must lead a workflow to the same steps, each time it is replayed."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from typing import Any

from pgqrs.blocking import _portal
from pgqrs.db.tables.runs import RecordedStep
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.testing.handle import RunHandle, shown
from pgqrs.testing.kit import handler_of
from pgqrs.testing.replay_history import recorded
from pgqrs.testing.replay_pass import ReplayedPass, passed
from pgqrs.testing.step_hooks import DONE, StepRequest
from pgqrs.testing.sync_kit import Kit
from pgqrs.text.step_ids import branch_of
from pgqrs.types import RunStatus

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
    if run.is_parked:
        raise _differs(handler, f"its second pass, which a wait led to, was parked: {run.waiting_for}")
    text = None if history["input"] is None else json.dumps(history["input"])
    steps = [recorded(step) for step in history["steps"]]
    known = {
        step["step_id"]: None if step["input"] is None else json.dumps(step["input"]) for step in history["steps"]
    }
    done = [step for step in steps if step.status in DONE]
    whole = _portal.run(passed(handler, text, done, run_id=history["run_id"]))
    # In the order in which the code asks for them: at one time of the hand-set clock the record has none.
    order = {asked.step_id: number for number, asked in reversed([*enumerate(whole.asked)])}
    done.sort(key=lambda step: order.get(step.step_id, len(order)))
    for count in range(len(done) + 1):
        passes = [_portal.run(passed(handler, text, done[:count], run_id=history["run_id"])) for _ in range(2)]
        for number, each in enumerate(passes, 1):
            if difference := _difference(each, known, steps) or _missing(each):
                where = f"pass {number} from the first {count} of {len(done)} recorded steps"
                raise _differs(handler, f"{where} {difference}")
    for last in passes:
        _check_end(handler, run, last)


def _check_end(handler: Handler, run: RunHandle, last: ReplayedPass) -> None:
    """Compare how a replay of all steps ends with how the run did."""
    __tracebackhide__ = True
    if not run.has_ended:
        return
    if last.went_beyond:
        raise _differs(handler, f"a replay of all its steps does not come to an end; the first run was {run.status}")
    if run.status is not RunStatus.SUCCESS:
        return
    if last.output is None:
        raise _differs(handler, f"a replay of all its steps raises {last.error!r}, the first run did not")
    seen, expected = json.loads(last.output), json.loads(run.row.output or "null")
    if seen != expected:
        raise _differs(
            handler, f"a replay of all its steps gives {shown(seen)}, the first run gave {shown(expected)}"
        )


def _differs(handler: Handler, how: str) -> AssertionError:
    return AssertionError(f"{handler.name!r} is not deterministic: {how}{_cause(handler)}")


def _difference(seen: ReplayedPass, known: dict[str, str | None], steps: list[RecordedStep]) -> str:
    if seen.error is not None and type(seen.error).__name__ == "NonDeterminism":
        return f"fails: {seen.error}"
    for asked in seen.asked:
        if asked.step_id not in known:
            return f"asks for step {asked.step_id!r}, where the first run asked for {_there(asked, steps)}"
        before = known[asked.step_id]
        if asked.given is not None and before is not None and json.loads(asked.given) != json.loads(before):
            return f"calls step {asked.step_id!r} with {asked.given}, the first run with {before}"
    return ""


def _missing(seen: ReplayedPass) -> str:
    return "" if seen.missing is None else f"does not ask for step {seen.missing!r}, which the first run recorded"


def _there(asked: StepRequest, steps: list[RecordedStep]) -> str:
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
