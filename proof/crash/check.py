"""What must hold of the effects, and what a stalled process may not have changed."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from typing import Any

import pgqrs
from pgqrs.db.queries import TABLES
from proof.crash.faults import Fault
from proof.crash.scenarios import Scenario, rows


def effects_of(lines: list[dict[str, Any]]) -> dict[str, int]:
    return dict(Counter(line["what"] for line in lines if line["kind"] == "effect"))


def observations_of(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {line["what"]: line["value"] for line in lines if line["kind"] == "saw"}


def wrong_observations(lines: list[dict[str, Any]], expected: dict[str, Any]) -> list[str]:
    """Return what a handler saw in one pass and not in another, or not without faults."""
    first: dict[tuple[str, str], Any] = {}
    wrong = []
    for line in lines:
        if line["kind"] != "saw":
            continue
        what, value = line["what"], line["value"]
        before = first.setdefault((line["key"], what), value)
        if value != before:
            wrong.append(f"a pass saw {what!r} as {value}, another one as {before}")
        elif what not in expected:
            wrong.append(f"a handler saw {what!r} as {value}, and without faults nothing")
        elif _without_ids(value) != _without_ids(expected[what]):
            wrong.append(f"a handler saw {what!r} as {value}, and without faults as {expected[what]}")
    return wrong


def _without_ids(value: Any) -> str:
    """Runs that were rolled back leave gaps in the ids of the others."""
    return re.sub(r"\brun \d+|\(\d+", "run #", repr(value))


def wrong_in_peace(lines: list[dict[str, Any]], kind: type[Scenario]) -> list[str]:
    """Return which effects happened more than once although nothing was struck."""
    return [
        f"{what!r} happened {count} times without a fault, not {kind.often.get(what, 1)}"
        for what, count in effects_of(lines).items()
        if count != kind.often.get(what, 1) and not kind.grows
    ]


def wrong_effects(lines: list[dict[str, Any]], expected: dict[str, int], kind: type[Scenario]) -> list[str]:
    """Each at least as often as without faults, and once more for each fault that overlapped it."""
    wrong = []
    seen = effects_of(lines)
    struck = [line for line in lines if line["kind"] == "fault" and not Fault.of(line["fault"]).recovers]
    for what, count in expected.items():
        if not kind.grows and seen.get(what, 0) < count:
            wrong.append(f"{what!r} happened {seen.get(what, 0)} times, not {count}")
    repeated = 0
    for what, count in seen.items():
        right = expected.get(what, 1 if kind.grows else 0)
        repeated += max(0, count - right)
        if count > right + len(struck) or (count and not right):
            wrong.append(f"{what!r} happened {count} times, with {len(struck)} faults, and {right} without")
    if repeated > kind.width * len(struck):
        wrong.append(f"{repeated} effects were repeated by {len(struck)} faults, with {kind.width} in flight at most")
    return [*wrong, *_changed_keys(lines), *_late_effects(lines, kind)]


def _changed_keys(lines: list[dict[str, Any]]) -> list[str]:
    """A receiver that deduplicates must be able to: the key of an effect never changes."""
    keys: dict[str, set[str]] = defaultdict(set)
    for line in lines:
        if line["kind"] == "effect":
            keys[line["what"]].add(line["key"])
    # Without a key for the trigger, a run that was not acknowledged may be there twice.
    given = {line["at"] for line in lines if line["kind"] == "fault" and line["giving"]}
    return [f"{what!r} had the keys {sorted(found)}" for what, found in keys.items() if len(found) > 1 and not given]


def _late_effects(lines: list[dict[str, Any]], kind: type[Scenario]) -> list[str]:
    """A process that was stalled begins no further step; one that cannot know it, no more than were in flight."""
    wrong = []
    if any(line["kind"] == "fault" and Fault.of(line["fault"]).recovers for line in lines):
        # The recovery is not done by then: who goes on may take what is there to be taken, under a lease of its own.
        return []
    mode_of = {line["pid"]: Fault.of(line["fault"]).mode for line in lines if line["kind"] == "fault"}
    for at, woken in enumerate(lines):
        if woken["kind"] != "woken":
            continue
        after = [line["what"] for line in lines[at:] if line["kind"] == "effect" and line["pid"] == woken["who"]]
        late = [what for what in after if what not in kind.outside]
        knows = mode_of[woken["who"]] == "freeze" and not kind.by_hand
        most = 0 if knows else kind.width
        if len(late) > most:
            wrong.append(f"a stalled process went on with {late}")
    return wrong


async def state_of(store: pgqrs.Store) -> dict[str, str]:
    """A digest of each table; workers may sign off when they like."""
    state = {}
    for table in TABLES:
        if table != "pgqrs_workers":
            found = sorted(repr(tuple(row)) for row in await rows(store, f"select * from {table}"))
            state[table] = hashlib.sha256("\n".join(found).encode()).hexdigest()[:16]
    return state
