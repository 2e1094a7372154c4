"""A system call that fails, or is the last: every write and sync of the work in turn, then a fresh program."""

import asyncio
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from queue import SimpleQueue

from proof.power import nursery, tracing, workload
from proof.power.checking import EVERYTHING, Said, judge
from proof.power.nursery import Nursery

FAULTS = ("KILL", "EIO", "ENOSPC")
# The smallest machine we care about has two cores; programs wait for strace, and strace for them.
AT_ONCE = 3


@dataclass(frozen=True, slots=True)
class Case:
    """From that place on, the k-th such call of a thread on the database's files."""

    place: str
    call: str
    fault: str
    k: int

    def __str__(self) -> str:
        return f"{self.place}/{self.call}/{self.fault}/{self.k}"

    @classmethod
    def named(cls, text: str) -> "Case":
        place, call, fault, k = text.split("/")
        return cls(place, call, fault, int(k))


@dataclass(frozen=True, slots=True)
class Result:
    """`wrong` is empty when the case was survived; not `reached`: this time the work had fewer such calls."""

    case: Case
    reached: bool
    ended: str
    wrong: str


def cases(points: dict[tuple[str, str], int]) -> list[Case]:
    return [
        Case(place, call, fault, k)
        for (place, call), last in points.items()
        for fault in FAULTS
        for k in range(1, last + 1)
    ]


def sample(every: list[Case], number: int, rng: random.Random) -> list[Case]:
    """In turn from each kind, so that the many writes leave room for the few syncs."""
    kinds: dict[tuple[str, str, str], list[Case]] = {}
    for case in rng.sample(every, len(every)):
        kinds.setdefault((case.place, case.call, case.fault), []).append(case)
    turns = zip_longest(*kinds.values())
    return [case for turn in turns for case in turn if case is not None][:number]


def survive(chosen: Sequence[Case], folder: Path) -> Iterator[Result]:
    """Each of them broken, recovered and judged, a few at once."""
    with ExitStack() as stack:
        nurseries: SimpleQueue[Nursery] = SimpleQueue()
        for _ in range(AT_ONCE):
            nurseries.put(stack.enter_context(nursery.nursery()))

        def one(case: Case) -> Result:
            mine = nurseries.get()
            try:
                return _survive(case, mine, folder / str(case).replace("/", "-"))
            finally:
                nurseries.put(mine)

        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        yield from pool.map(one, chosen)


def _survive(case: Case, parent: Nursery, folder: Path) -> Result:
    folder.mkdir()
    child = parent.fork(folder, place=case.place)
    with tracing.watched(child, folder, tracing.refusing(folder, case.call, case.fault, case.k)) as trace:
        nursery.let_go(folder)
        code = parent.wait()
    reached = bool(tracing.refused(trace))
    wrong = _first_program(case, folder, code) if reached else ""
    wrong = wrong or str(judge(folder, Said.in_folder(folder))) or finished(folder)
    if not wrong:
        shutil.rmtree(folder)
    return Result(case, reached, _ended(code), wrong)


def finished(folder: Path) -> str:
    """What is wrong after a fresh program has tried to do the rest; empty when all of the work is done."""
    try:
        asyncio.run(workload.finish(folder))
    except Exception as error:  # noqa: BLE001 - whatever it is, it did not finish
        return f"the fresh program: {type(error).__name__}: {error}"
    said = Said.in_folder(folder)
    return str(judge(folder, Said(said.acknowledged | EVERYTHING, frozenset())))


def _first_program(case: Case, folder: Path, code: int) -> str:
    """What is wrong with how it ended."""
    if case.fault == "KILL":
        return "" if code == -9 else f"killed, but it ended with {code}"
    if code == 0:
        return ""
    if code != nursery.SAW_AN_ERROR:
        return f"it ended with {code}: it hung, or fell over"
    saw = json.loads((folder / workload.SAW).read_text())
    if not saw["ours"]:
        return f"it saw a {saw['type']} that is not ours: {saw['text']}"
    return (
        "" if str(folder / workload.DATABASE) in saw["text"] else f"its error does not name the file: {saw['text']}"
    )


def _ended(code: int) -> str:
    return {0: "went on", nursery.SAW_AN_ERROR: "told", -9: "killed"}.get(code, str(code))
