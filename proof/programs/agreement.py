"""Programs that go by the order of results: no oracle knows what comes of them, but all passes of a run must agree.

    order      each pass observes what the passes before it observed, in the same order across all branches
    replay     what the handler made of that order is what it makes of it in memory (`replaying.py`)
    outcome    the run ends with what its last pass returned or raised
    effects    no body, row or event more often than faults and failed attempts explain

A pass that raised may be followed by another attempt: the steps whose error left the handler run again, and whatever
came after the first error may come in another order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from proof.programs.errors import Seen
from proof.programs.grammar import Child, Doing, Emit, Gives, Map, Program, Step, Transact, parts
from proof.programs.judge import holds_errors, is_same, outcome_of, run_of, unequal_passes, unwritten
from proof.programs.logs import Observation, Pass
from proof.programs.memory import CHILD_ATTEMPTS
from proof.programs.replaying import Impossible, replayed
from proof.programs.results import Result, Row

_Order = list[tuple[str, Observation]]


def disagreements(result: Result) -> list[str]:
    """What is not as it must be, each with the kind of it as its first word; empty when all is well."""
    found = list(result.wrong)
    for label, passes in result.case.passes.items():
        in_order = sorted(passes, key=lambda one: one.token)
        program = result.case.programs[label]
        if program.plain:
            # Threads come in no order.
            found += unequal_passes(label, in_order)
            continue
        found += _unequal_orders(label, in_order)
        found += _not_led_to(label, in_order, program)
    if any(each.startswith(("hangs", "stuck", "parked")) for each in result.wrong):
        return found
    found += _wrong_ends(result)
    found += _wrong_children(result)
    found += _too_many_bodies(result)
    found += _too_many_rows(result)
    return found + unwritten(result)


# -- observations ------------------------------------------------------------------------------------------------


def _unequal_orders(label: str, passes: list[Pass]) -> list[str]:
    found = []
    known: _Order = []
    for number, each in enumerate(passes, 1):
        for index, (before, now) in enumerate(zip(known, each.order, strict=False)):
            if before[0] != now[0] or before[1].key != now[1].key or not is_same(before[1], now[1]):
                found.append(
                    f"order: {run_of(label)} saw {_at(before)} as number {index + 1}; and {_at(now)} in pass {number}"
                )
                break
        known = max(known, each.order, key=len)
        if each.end == "raised":
            known = list(_up_to_an_error(known))
    return found


def _up_to_an_error(order: _Order) -> Iterator[tuple[str, Observation]]:
    for path, observation in order:
        if observation.error is not None or holds_errors(observation.value):
            return
        yield path, observation


def _at(place: tuple[str, Observation]) -> str:
    path, observation = place
    return f"{observation} in branch {path}" if path else str(observation)


def _not_led_to(label: str, passes: list[Pass], program: Program) -> list[str]:
    """What these results lead to in memory, in this order, is what the pass came to."""
    found = []
    for number, each in enumerate(passes, 1):
        try:
            right = replayed(program, each)
        except Impossible as error:
            found.append(f"replay: pass {number} of {run_of(label)}: {error}")
            continue
        wrong = _difference(each, right)
        if wrong:
            found.append(f"replay: pass {number} of {run_of(label)} {wrong}")
    return found


def _difference(seen: Pass, right: Pass) -> str:
    for index, one in enumerate(seen.order):
        expected = right.order[index] if index < len(right.order) else None
        if expected is None or one[0] != expected[0] or not one[1].agrees(expected[1]):
            return f"saw {_at(one)}, not {_at(expected) if expected else 'anything more'}"
    if seen.gave is None:
        # What followed from the last result may have been cut off.
        return ""
    if len(right.order) > len(seen.order):
        return f"did not see {_at(right.order[len(seen.order)])}"
    if seen.end != right.end or right.gave is None or not seen.gave.agrees(right.gave):
        return f"{seen.end}{seen.gave}, and {right.end or 'does not end'}{right.gave or ''} in memory"
    return ""


# -- ends --------------------------------------------------------------------------------------------------------


def _wrong_ends(result: Result) -> list[str]:
    found = []
    for label, row in result.rows.items():
        last = max(result.case.passes.get(label, ()), key=lambda one: one.token, default=None)
        wrong = _wrong_end(result, label, row, last)
        if wrong:
            found.append(wrong)
    return found


def _wrong_end(result: Result, label: str, row: Row, last: Pass | None) -> str:
    match row.status:
        case "SUCCESS" | "ERROR" if result.cancelled and not label:
            return f"outcome: cancelled, but it is {row.status}"
        case "SUCCESS":
            right = last is not None and last.end == "returned" and last.gave is not None
            right = right and _as_json(last.gave.value) == outcome_of(row).result  # type: ignore[union-attr]
        case "ERROR":
            right = (last is not None and last.end == "raised" and _is_line_of(last, row)) or _is_lost(
                result, label, row
            )
        case "CANCELLED":
            right = result.cancelled or label in result.case.doomed
        case _:
            return f"left: {label or 'the run'} is {row.status}"
    ended = "no pass" if last is None else f"its last pass {last.end or 'did not end'}{last.gave or ''}"
    return "" if right else f"outcome: {run_of(label)} is {outcome_of(row)}; {ended}"


def _is_lost(result: Result, label: str, row: Row) -> bool:
    """Attempts are bounded: no other worker takes up a run whose last one was lost."""
    # A lease whose reply was lost is an attempt as well.
    is_last = row.attempt >= CHILD_ATTEMPTS if label else result.struck_last or "claims.claim" in result.struck_at
    return row.last_error == "worker_lost" and result.struck and is_last


def _is_line_of(last: Pass, row: Row) -> bool:
    error = last.gave.error if last.gave is not None else None
    if error is None:
        return False
    kind = error.kind.rpartition(".")[2]
    if error.parts or not error.details:
        return (row.last_error or "").startswith(kind)
    text = error.details[0]
    return row.last_error == (f"{kind}: {text}" if text else kind)


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _wrong_children(result: Result) -> list[str]:
    """A parent sees the ends that its children came to."""
    if result.fault.mode == "restart":
        # Children are restarted, too: what the parent saw of them before is gone.
        return []
    found = []
    for label, passes in result.case.passes.items():
        nodes = {node.name: node for node in parts(result.case.programs[label]) if isinstance(node, Child | Map)}
        for path, observation in {
            (path, str(seen)): (path, seen) for one in passes for path, seen in one.order
        }.values():
            node = nodes.get(observation.key.partition("[")[0])
            for key, seen in _ends(node, observation):
                row = result.rows.get(result.case.label_of_child(label, key, path))
                if row is None or not _is_end_of(row, seen):
                    status = "not there" if row is None else str(outcome_of(row))
                    found.append(f"child: {run_of(label)} saw {seen} of {key}, which is {status}")
    return found


def _ends(node: Child | Map | None, observation: Observation) -> Iterator[tuple[str, Any]]:
    match node:
        case Child():
            yield observation.key, observation.value if observation.error is None else observation.error
        case Map() if observation.error is None:
            for number, each in enumerate(observation.value):
                yield f"{observation.key}.{number}", each


def _is_end_of(row: Row, seen: Any) -> bool:
    if isinstance(seen, Seen):
        return row.status == {"RunCancelled": "CANCELLED"}.get(seen.kind.rpartition(".")[2], "ERROR")
    return row.status == "SUCCESS" and outcome_of(row).result == seen


# -- effects -----------------------------------------------------------------------------------------------------


def _too_many_bodies(result: Result) -> list[str]:
    found = []
    struck = 1 if result.struck and result.fault.mode != "restart" else 0
    counts = Counter((effect.key, effect.path) for effect in result.case.ledger.effects)
    for (full, path), count in sorted(counts.items()):
        label, _, key = full.rpartition(":")
        node = _nodes(result, label)[key.partition("[")[0]]
        most = _most(result, label, node)
        if count > most + struck:
            where = path.rpartition(":")[2] or "the handler"
            found.append(f"effects: the body of {full} began {count} times in {where}; {most} and {struck} at most")
    return found


def _most(result: Result, label: str, node: Doing) -> int:
    """How often the body may begin in one branch, but for the fault."""
    body = node.body if isinstance(node, Step | Transact) else Gives()
    if isinstance(body, Gives):
        return 1
    if isinstance(node, Step) and node.retry:
        return node.retry * (2 if result.fault.mode == "restart" else 1)
    return 1 + _raised(result, label)


def _raised(result: Result, label: str) -> int:
    return sum(one.end == "raised" for one in result.case.passes.get(label, ()))


def _too_many_rows(result: Result) -> list[str]:
    """Transactions and events: once in each branch that asks for them, which can be several in several attempts."""
    found = []
    branches: dict[str, set[str]] = {}
    for effect in result.case.ledger.effects:
        branches.setdefault(effect.key, set()).add(effect.path)
    for what, seen in (("row", result.written), ("event", result.emitted)):
        for full, count in sorted(seen.items()):
            label, _, key = full.rpartition(":")
            node = _nodes(result, label).get(key.partition("[")[0])
            most = 1 + _raised(result, label) if isinstance(node, Emit) else len(branches.get(full, ()))
            if count > most:
                found.append(f"{what}: {full} is there {count} times")
    return found


def _nodes(result: Result, label: str) -> dict[str, Doing]:
    return {node.name: node for node in parts(result.case.programs[label]) if isinstance(node, Doing)}
