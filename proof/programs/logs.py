"""What programs leave behind outside of the database: effects of bodies, and what each pass of a handler observed."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from proof.programs.errors import Seen

# In the place of a value that differs from run to run, but not from pass to pass.
ANY = "<any>"
# In the place of the signal with which the engine ended a branch.
CUT = "<cut off>"


def agree(one: Any, other: Any) -> bool:
    """True when both could be the same value."""
    if isinstance(one, Seen):
        return one.agrees(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(agree, one, other))
    return any(wild in (one, other) for wild in (ANY, CUT)) or bool(one == other)


@dataclass(frozen=True, slots=True)
class Observation:
    """What one statement gave to the handler: a value, or an error."""

    key: str
    value: Any = None
    error: Seen | None = None

    def agrees(self, other: Observation) -> bool:
        if self.key != other.key or (self.error is None) != (other.error is None):
            return False
        if self.error is not None:
            return self.error.agrees(other.error)
        return agree(self.value, other.value)

    def __str__(self) -> str:
        return f"{self.key} {'= ' + repr(self.value) if self.error is None else '! ' + str(self.error)}"


@dataclass(slots=True)
class Pass:
    """One execution of a handler from its top: by branch, what it observed, in order."""

    seen: dict[str, list[Observation]] = field(default_factory=dict)
    # "" while it has not come to its end: it waits, was cut off, or is under way.
    end: str = ""
    # Of the lease under which it ran: a worker that stood still may begin a pass late, with what it read before.
    token: int = 0
    # What a `finally` observed, by branch, when the engine had ended the pass: out of order, and in part CUT.
    on_the_way_out: list[tuple[str, Observation]] = field(default_factory=list)
    # What all branches observed, in the order in which they did, until the engine or the handler ended the pass.
    order: list[tuple[str, Observation]] = field(default_factory=list)
    # What the handler returned, or raised; None when it did so on its way out, and nothing came of it.
    gave: Observation | None = None

    def add(self, path: str, observation: Observation, *, is_cut: bool = False, is_leaving: bool = False) -> None:
        if is_cut:
            self.on_the_way_out.append((path, observation))
        else:
            self.seen.setdefault(path, []).append(observation)
        if not is_cut and not is_leaving and not self.end:
            self.order.append((path, observation))


@dataclass(frozen=True, slots=True)
class Effect:
    """A body began."""

    key: str
    path: str
    # In the oracle: the effects that must come before it.
    after: frozenset[str] = frozenset()


class Ledger:
    """Effects in the order in which they happened, from any thread. A key begins with the label of its run."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def begin(self, effect: Effect) -> int:
        """How often this body has begun, with this time."""
        with self._lock:
            self.effects.append(effect)
            self._counts[effect.key] += 1
            return self._counts[effect.key]

    def count(self, key: str) -> int:
        return self._counts[key]

    def counts(self) -> Counter[str]:
        return Counter(self._counts)
