"""The same programs for `pgqrs.testing`: its instruments must pass what is deterministic, and catch what is not.

replay                 the code against the history of a run
assert_deterministic   the code against each prefix of that history
crash_everywhere       killed at each boundary
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from pgqrs.testing import Kit, assert_deterministic, crash_everywhere, replay
from proof.programs.execution import waits_of
from proof.programs.generator import generate
from proof.programs.grammar import Child, First, Flip, Join, Map, Pause, Program, Start, Step, parts
from proof.programs.handlers import ASYNC, HANDLERS, Case, program_handler, signal_name


def suitable(seed: int) -> Iterator[Program]:
    """Programs that the instruments can drive: nobody has to cancel a child, or send a signal that is waited for.

    And those that come to their end in one attempt: a run that is killed in its last one is rightly `worker_lost`.
    And those that await every task: how much of another is recorded when the handler ends is a matter of timing.
    """
    for number in itertools.count():
        program, answer = generate(seed, number)
        waits = waits_of(program)
        children = any(
            isinstance(part, Child | Map | Pause) or (isinstance(part, First) and part.how == "pause")
            for part in parts(program)
        )
        at_once = answer.outcome.status == "SUCCESS" and len(answer.lives[""].passes) == 1
        if at_once and not children and awaits_its_tasks(program) and all(wait.sent != "late" for wait in waits):
            yield program


def awaits_its_tasks(program: Program) -> bool:
    nodes = list(parts(program))
    started = {node.name for node in nodes if isinstance(node, Start)}
    return started <= {node.name for node in nodes if isinstance(node, Join)}


def flipped(program: Program) -> Program:
    """The same, but which step comes last is chance that nobody records."""
    flip = Flip("f", (Step("heads", called="heads"),), (Step("tails", called="tails"),))
    return Program((flip, *program.body), program.plain, program.attempts)


def disagreements(program: Program, *, crashes: bool = True) -> list[str]:
    """What the instruments say against a deterministic program, each with the instrument's name; empty: nothing."""
    found = []
    for name, instrument in _INSTRUMENTS.items():
        if name == "crash_everywhere" and not crashes:
            continue
        if said := _said(instrument, program):
            found.append(f"{name}: {said}")
    return found


def unnoticed(program: Program) -> list[str]:
    """The instruments that do not catch the chance in a flipped program."""
    return [name for name in ("replay", "assert_deterministic") if not _said(_INSTRUMENTS[name], flipped(program))]


def _said(instrument: Callable[[Program, Case], None], program: Program) -> str:
    case = Case(program, makes_table=True)
    logging.getLogger("pgqrs").setLevel(logging.CRITICAL)
    try:
        # Reports are for people who run one.
        with contextlib.redirect_stdout(io.StringIO()):
            instrument(program, case)
    except Exception as error:  # noqa: BLE001 - whatever it raises, it has raised it
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"
    finally:
        case.close()
    return ""


def _drive(program: Program) -> Callable[[Any, Any], None]:
    def drive(kit: Any, run: Any) -> None:
        for node in waits_of(program):
            if node.sent == "before" and not run.has_ended:
                for name in (node.name, *(f"{node.name}.{number}" for number in range(3))):
                    kit.signal(run, signal_name(name), node.value)
        kit.drain(skip_time=True)

    return drive


def _replay(program: Program, case: Case) -> None:
    handler = program_handler(case)
    with Kit() as kit:
        run = kit.trigger(handler, max_attempts=program.attempts)
        _drive(program)(kit, run)
        assert run.has_ended, f"drain(skip_time=True) has stopped early: {run.status}"
        exported = kit.export(run)
    replay(exported, handler)


def _assert_deterministic(program: Program, case: Case) -> None:
    assert_deterministic(program_handler(case), drive=_drive(program))


def _crash_everywhere(program: Program, case: Case) -> None:
    def forget() -> None:
        case.forget()

    report = crash_everywhere(
        program_handler(case), setup=forget, drive=_drive(program), serve={ASYNC: HANDLERS[ASYNC]}, compare=_same
    )
    assert report.survived + report.missed == report.boundaries, report


def _same(one: Any, other: Any) -> bool:
    return bool(one == other)


_INSTRUMENTS: dict[str, Callable[[Program, Case], None]] = {
    "replay": _replay,
    "assert_deterministic": _assert_deterministic,
    "crash_everywhere": _crash_everywhere,
}
