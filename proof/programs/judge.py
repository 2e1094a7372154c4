"""Compares what came of an execution with what the oracle says, and what one pass observed with the others."""

from __future__ import annotations

import json
from collections import Counter

from proof.programs.answers import Answer, Life, Outcome
from proof.programs.grammar import Doing, Emit, Step, Transact, parts
from proof.programs.logs import Observation, Pass
from proof.programs.results import Result, Row

# By branch and key: what the oracle has seen there.
Known = dict[tuple[str, str], list[Observation]]


def divergences(result: Result, answer: Answer) -> list[str]:
    """What is not as it must be, each with the kind of it as its first word; empty when all is well."""
    found = list(result.wrong)
    if any(each.startswith(("hangs", "stuck", "parked")) for each in found):
        return found + _all_unequal_passes(result)
    found += _wrong_ends(result, answer)
    found += _all_unequal_passes(result)
    found += _unforeseen(result, answer)
    found += _wrong_effects(result, answer)
    found += _wrong_rows(result, answer)
    return found


def _wrong_ends(result: Result, answer: Answer) -> list[str]:
    found = []
    for label, row in result.rows.items():
        if row.status in ("PENDING", "RUNNING"):
            found.append(f"left: {label or 'the run'} is {row.status}")
    row = result.rows[""]
    if result.cancelled:
        return found if row.status == "CANCELLED" else [*found, f"outcome: cancelled, but it is {row.status}"]
    seen = outcome_of(row)
    if result.struck_last and answer.outcome.status == "ERROR" and seen == Outcome("ERROR", error="worker_lost"):
        # Attempts are bounded: no other worker takes up a run whose last one was lost.
        return found
    if not answer.outcome.agrees(seen):
        found.append(f"outcome: {seen}, not {answer.outcome}")
    return found


def outcome_of(row: Row) -> Outcome:
    if row.status == "SUCCESS":
        return Outcome("SUCCESS", json.loads(row.output or "null"))
    return Outcome(row.status, error=row.last_error)


# -- observations ------------------------------------------------------------------------------------------------


def _all_unequal_passes(result: Result) -> list[str]:
    found = []
    for label, passes in result.case.passes.items():
        found += unequal_passes(label, sorted(passes, key=lambda one: one.token))
    return found


def unequal_passes(label: str, passes: list[Pass]) -> list[str]:
    """A value never changes from one pass to the next; an error only after a pass that ended with one."""
    found = []
    known: dict[tuple[str, str], Observation] = {}
    for number, each in enumerate(passes, 1):
        for path, seen in each.seen.items():
            for observation in seen:
                before = known.get((path, observation.key))
                if before is not None and not is_same(before, observation):
                    found.append(f"changed: {run_of(label)} saw {before}; and {observation} in pass {number}")
                known[path, observation.key] = observation
        if each.end == "raised":
            # What left the handler may be tried again; and with it whatever was made of it.
            known = {place: o for place, o in known.items() if o.error is None and not holds_errors(o.value)}
    return found


def is_same(one: Observation, other: Observation) -> bool:
    if (one.error is None) != (other.error is None):
        return False
    if one.error is not None and other.error is not None:
        return one.error == other.error or bool(one.error.parts and one.error.agrees(other.error))
    return bool(one.value == other.value)


def holds_errors(value: object) -> bool:
    return "Seen(" in repr(value)


def _unforeseen(result: Result, answer: Answer) -> list[str]:
    """Every pass is one that the oracle knows, as far as it came."""
    found = []
    for label, passes in result.case.passes.items():
        life = answer.lives.get(label)
        if life is None:
            if not _is_optional(label, answer):
                found.append(f"unforeseen: {run_of(label)} was never started in the oracle")
            continue
        lives = [life, *answer.alternatives.get(label, ())]
        known = _known(lives)
        for number, each in enumerate(passes, 1):
            if not any(_foreseen(each, one, joined, known) for way in lives for one, joined in _attempts(way)):
                found.append(f"unforeseen: pass {number} of {run_of(label)} {_difference(each, life)}")
            found += [
                f"unforeseen: pass {number} of {run_of(label)} saw {observation} on its way out"
                for path, observation in each.on_the_way_out
                if not _may_be(observation, known.get((path, observation.key)))
            ]
    return found


def _attempts(life: Life) -> list[tuple[Pass, set[str]]]:
    return list(zip(life.passes, life.joined, strict=True))


def _foreseen(seen: Pass, expected: Pass, joined: set[str], known: Known) -> bool:
    for path, observed in seen.seen.items():
        if path in joined:
            right = expected.seen.get(path, [])
            if len(observed) > len(right) or not all(map(Observation.agrees, observed, right)):
                return False
        elif not all(_may_be(observation, known.get((path, observation.key))) for observation in observed):
            return False
    return True


def _may_be(observation: Observation, known: list[Observation] | None) -> bool:
    """A branch that is ended anywhere sees one of the things that it can see there."""
    return known is None or any(observation.agrees(each) for each in known)


def _known(lives: list[Life]) -> Known:
    found: Known = {}
    for life in lives:
        for one in life.passes:
            for path, observed in one.seen.items():
                for observation in observed:
                    found.setdefault((path, observation.key), []).append(observation)
    return found


def _difference(seen: Pass, life: Life) -> str:
    """Against the oracle's pass that agrees for longest."""
    best = (-1, "")
    for one in life.passes:
        agreed = 0
        said = ""
        for path, observed in seen.seen.items():
            right = one.seen.get(path, [])
            for index, observation in enumerate(observed):
                expected = right[index] if index < len(right) else None
                if expected is None or not observation.agrees(expected):
                    said = said or f"saw {observation}, not {expected or 'anything more'}"
                    break
                agreed += 1
        best = max(best, (agreed, said))
    return best[1]


# -- effects -----------------------------------------------------------------------------------------------------


def _wrong_effects(result: Result, answer: Answer) -> list[str]:
    found = []
    counts = result.case.ledger.counts()
    struck = 1 if result.struck and result.fault.mode != "restart" else 0
    paths = {effect.key: effect.path for effect in result.case.ledger.effects}
    for key, count in sorted(counts.items()):
        most = answer.most.get(key, 0)
        if not most:
            if not _is_optional_path(paths[key], answer):
                found.append(f"effects: the body of {key} began, and never does in the oracle")
        elif count > most + struck:
            found.append(f"effects: the body of {key} began {count} times; {most} and {struck} fault at most")
    if result.cancelled:
        return found
    missing = sorted(key for key in answer.required if key in answer.most and not counts[key])
    found += [f"effects: the body of {key} never began" for key in missing]
    return found + _wrong_order(result, answer, counts)


def _wrong_order(result: Result, answer: Answer, counts: Counter[str]) -> list[str]:
    first: dict[str, int] = {}
    for index, effect in enumerate(result.case.ledger.effects):
        first.setdefault(effect.key, index)
    found = []
    checked = set()
    for effect in answer.effects:
        if effect.key in checked or not counts[effect.key]:
            continue
        checked.add(effect.key)
        late = sorted(before for before in effect.after if counts[before] and first[before] > first[effect.key])
        found += [f"order: the body of {effect.key} began before that of {before}" for before in late]
    return found


def _wrong_rows(result: Result, answer: Answer) -> list[str]:
    """Transactions and events: once, or never."""
    found = []
    for what, seen, expected in (("row", result.written, answer.rows), ("event", result.emitted, answer.emitted)):
        for key, count in sorted(seen.items()):
            if count > 1:
                found.append(f"{what}: {key} is there {count} times")
            elif key not in expected and not _may_be_there(key, result, answer):
                found.append(f"{what}: {key} is there, and never is in the oracle")
        if not result.cancelled:
            found += [f"{what}: {key} is not there" for key in sorted(expected) if expected[key] and not seen[key]]
    return found + unwritten(result) + _started_twice(result)


def _started_twice(result: Result) -> list[str]:
    """A child is started once: its parent's record remembers it. A restarted parent may start another."""
    if result.fault.mode == "restart":
        return []
    return [f"child: {label} was started {count} times" for label, count in result.started.items() if count > 1]


def unwritten(result: Result) -> list[str]:
    """What a handler was told was written is there, whatever struck: it was told when that had been committed."""
    found = []
    for label, passes in result.case.passes.items():
        told = {
            observation.key
            for each in passes
            for seen in each.seen.values()
            for observation in seen
            if observation.error is None
        }
        nodes = {node.name: node for node in parts(result.case.programs[label]) if isinstance(node, Doing)}
        for key in sorted(told):
            match nodes.get(key.partition("[")[0]):
                case Transact() if not result.written[f"{label}:{key}"]:
                    found.append(f"row: {label}:{key} is not there, and {run_of(label)} saw its value")
                case Emit() | Step(emits=True) if not result.emitted[f"{label}:{key}"]:
                    found.append(f"event: {label}:{key} is not there, and {run_of(label)} saw its value")
    return found


def _may_be_there(key: str, result: Result, answer: Answer) -> bool:
    paths = {effect.key: effect.path for effect in result.case.ledger.effects}
    # An event of its own is no body: where it stands, the ledger does not know.
    return key not in paths or _is_optional_path(paths[key], answer)


def _is_optional_path(path: str, answer: Answer) -> bool:
    """It belongs to a branch that nobody waits for in the oracle, or to a run that such a branch has started."""
    label, _, branch = path.rpartition(":")
    life = answer.lives.get(label)
    if life is None:
        return _is_optional(label, answer)
    return any(branch not in joined for joined in life.joined)


def _is_optional(label: str, answer: Answer) -> bool:
    parent, _, _ = label.rpartition("/")
    life = answer.lives.get(parent)
    if life is None:
        return bool(parent) and _is_optional(parent, answer)
    return any(path not in joined for one, joined in _attempts(life) for path in one.seen) or _has_loose(life)


def _has_loose(life: Life) -> bool:
    return any(len(joined) == 1 for joined in life.joined)


def run_of(label: str) -> str:
    return f"run {label!r}" if label else "the handler"
