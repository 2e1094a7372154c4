"""The power is cut: every state that the disk may hold then is opened, and asked for what was acknowledged."""

import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.power import nursery, recording, tracing
from proof.power.calls import finished
from proof.power.checking import Said, Verdict, judge
from proof.power.disk import Disk, State
from proof.power.recording import Event
from proof.power.workload import DATABASE, SAID

# Of the states that are opened, one in so many is also given to a fresh program to go on with, which takes longer.
FINISHED_ONE_IN = 20
# Random choices at each cut, of what had not been synced.
SUBSETS = 3


@dataclass(slots=True)
class Count:
    """What was seen of the states of one recording."""

    cuts: int = 0
    made: int = 0
    opened: int = 0
    finished: int = 0
    lost: int = 0
    corrupt: int = 0


def record(folder: Path, synchronous: str = "full") -> list[Event]:
    """Everything that the work asks of the disk, from before the file was there."""
    folder.mkdir()
    with nursery.nursery() as parent:
        child = parent.fork(folder, synchronous=synchronous)
        with tracing.watched(child, folder, tracing.recording(folder)) as trace:
            nursery.let_go(folder)
            assert parent.wait() == 0, "the work itself failed, without any fault"
        return recording.read(trace, folder)


def sample(events: list[Event], number: int, seed: int) -> list[int]:
    return random.Random(seed).sample(range(len(events) + 1), min(number, len(events) + 1))


def states(events: list[Event], cuts: Sequence[int], seed: int, count: Count) -> list[State]:
    """Those that differ. Of equal ones the latest is kept, as by then the most had been acknowledged."""
    different: dict[bytes, State] = {}
    for state in Disk(seed, subsets=SUBSETS).after(events, frozenset(cuts)):
        count.made += 1
        different[state.digest] = state
    count.cuts = len(cuts)
    return list(different.values())


def examine(
    chosen: list[State], events: list[Event], folder: Path, count: Count, *, finish: bool = True
) -> Iterator[tuple[State, str]]:
    """Those with something wrong, and what; `count` is kept on the way."""
    for number, state in enumerate(chosen):
        scratch = folder / f"state-{number}"
        _write(state, scratch, stale=number % 3 == 0)
        verdict = judge(scratch, Said.of(event.name for event in events[: state.cut] if event.call == "say"))
        count.opened += 1
        if finish and not verdict and number % FINISHED_ONE_IN == 0:
            count.finished += 1
            wrong = finished(scratch)
            verdict = Verdict(corrupt=(wrong,)) if wrong else verdict
        count.lost += bool(verdict.lost)
        count.corrupt += bool(verdict.corrupt)
        shutil.rmtree(scratch)
        if verdict:
            yield state, str(verdict)


def _write(state: State, folder: Path, *, stale: bool) -> None:
    folder.mkdir()
    for name, data in state.files.items():
        (folder / name).write_bytes(data)
    if stale:
        # What power loss leaves of shared memory is anything at all.
        (folder / f"{DATABASE}-shm").write_bytes(random.Random(state.cut).randbytes(32768))
    (folder / SAID).touch()
