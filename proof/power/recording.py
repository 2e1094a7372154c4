"""What a program asked of its disk, in order, with the data: read from a trace of strace."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from proof.power.tracing import FAULTED
from proof.power.workload import PLACES, SAID

_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"\d+<((?:\\x[0-9a-f]{2})*)>")
_UNFINISHED = " <unfinished ...>"


@dataclass(frozen=True, slots=True)
class Event:
    """One call that succeeded; a line of the ledger is the call `say`."""

    thread: int
    call: str
    # Of the file in its folder, "" for the folder itself; of `say`, what was said.
    name: str
    # How many events were over when it was called: a sync covers those, and not what another thread did meanwhile.
    began: int
    # Where it writes, or the length it truncates to.
    offset: int = 0
    data: bytes = b""


def read(trace: Path, folder: Path) -> list[Event]:
    """In the order in which the calls returned."""
    events: list[Event] = []
    begun: dict[int, tuple[str, int]] = {}
    for line in trace.read_text().splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            continue
        thread, call, text, began = int(match[1]), match[2] or match[3], match[4], len(events)
        if text.endswith(_UNFINISHED):
            # Another thread's call came in between.
            begun[thread] = (text.removesuffix(_UNFINISHED), began)
            continue
        if match[2]:
            first, began = begun.pop(thread)
            text = first + text
        arguments, _, result = text.rpartition(" = ")
        if not result.startswith("-"):
            events += _parsed(thread, call, arguments.rstrip().removesuffix(")"), began, folder)
    return events


def points(events: Iterable[Event]) -> dict[tuple[str, str], int]:
    """For each place and call: how many of them the busiest thread makes until the next place."""
    place = ""
    seen: Counter[tuple[str, str, int]] = Counter()
    for event in events:
        if event.call == "say" and event.name.startswith("= "):
            place = event.name[2:]
        elif event.call in FAULTED and event.name:
            seen[place, event.call, event.thread] += 1
    return {
        (place, call): max(number for (p, c, _), number in seen.items() if (p, c) == (place, call))
        for place in PLACES
        for call in FAULTED
        if any((p, c) == (place, call) for p, c, _ in seen)
    }


def _parsed(thread: int, call: str, arguments: str, began: int, folder: Path) -> list[Event]:
    strings = [_bytes(found) for found in _STRING.findall(arguments)]
    descriptors = [_bytes(found).decode() for found in _DESCRIPTOR.findall(arguments)]
    match call:
        case "openat":
            # Every opening is kept: whether it makes the file depends on what is there.
            name = Path(strings[0].decode()).name
            created = "O_CREAT" in arguments and name != SAID
            return [Event(thread, "create", name, began)] if created else []
        case "unlink":
            return [Event(thread, "unlink", Path(strings[0].decode()).name, began)]
        case "write" | "pwrite64" if Path(descriptors[0]).name == SAID:
            return [Event(thread, "say", line, began) for line in strings[0].decode().splitlines()]
        case "pwrite64":
            offset = int(arguments.rpartition(", ")[2])
            return [Event(thread, "pwrite64", _name(descriptors[0], folder), began, offset, strings[0])]
        case "ftruncate":
            length = int(arguments.rpartition(", ")[2])
            return [Event(thread, "ftruncate", _name(descriptors[0], folder), began, length)]
        case "fsync" | "fdatasync":
            return [Event(thread, call, _name(descriptors[0], folder), began)]
        case _:
            # What SQLite has never been seen to use must not be left out of the model in silence.
            raise NotImplementedError(f"{call} on the database's files: teach proof/power/recording.py")


def _name(path: str, folder: Path) -> str:
    return "" if Path(path) == folder else Path(path).name


def _bytes(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))
