"""What a disk may hold after its power was cut: everything synced, and any part of what was not.

The model is harsher than most file systems. A file's writes and its length are certain only once the file was synced
after them, its name only once its folder was; whatever came later may be there or not, each write for itself, torn at
the borders of sectors. Names come and go in their order, as every journalling file system has it. Bytes that were not
written stay as they were: that is what SQLite asks of a disk, too ("powersafe overwrite").
"""

import random
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise

from proof.power.recording import Event

SECTORS = (512, 4096)
# What it says is made anew from the log by whoever opens the file first.
_NOT_KEPT = "-shm"

Files = dict[str, bytes]


@dataclass(slots=True)
class _Inode:
    durable: bytearray = field(default_factory=bytearray)
    # (number of the event, event): not synced yet.
    pending: list[tuple[int, Event]] = field(default_factory=list)

    def sync(self, before: int) -> None:
        for at, event in self.pending:
            if at < before:
                _apply(self.durable, event)
        self.pending = [each for each in self.pending if each[0] >= before]


@dataclass(frozen=True, slots=True)
class State:
    """The files that are found, and how many events were over when the power was cut."""

    files: Files
    cut: int
    how: str

    @property
    def digest(self) -> bytes:
        hasher = blake2b(digest_size=16)
        for name, data in sorted(self.files.items()):
            hasher.update(f"{name} {len(data)} ".encode() + data)
        return hasher.digest()


class Disk:
    """Follows a recording, and gives the states that a cut would leave now."""

    def __init__(self, seed: int, *, subsets: int) -> None:
        self._seed = seed
        self._subsets = subsets
        # What is certain of the folder, and what happened in it since.
        self._names: dict[str, _Inode] = {}
        self._renamed: list[tuple[int, str, _Inode | None]] = []
        # As the running program sees it.
        self._open: dict[str, _Inode] = {}

    def after(self, events: Sequence[Event], cuts: Container[int]) -> Iterator[State]:
        """The states of these cuts: 0 is before the first event, n after the n-th."""
        for number, event in enumerate(events):
            if number in cuts:
                yield from self._states(number)
            self._do(number, event)
        if len(events) in cuts:
            yield from self._states(len(events))

    def _do(self, number: int, event: Event) -> None:
        if event.name.endswith(_NOT_KEPT):
            return
        match event.call:
            case "create":
                if event.name not in self._open:
                    self._open[event.name] = _Inode()
                    self._renamed.append((number, event.name, self._open[event.name]))
            case "unlink":
                del self._open[event.name]
                self._renamed.append((number, event.name, None))
            case "pwrite64" | "ftruncate":
                self._open[event.name].pending.append((number, event))
            case "fsync" | "fdatasync" if not event.name:
                self._sync_folder(event.began)
            case "fsync" | "fdatasync":
                self._open[event.name].sync(event.began)

    def _sync_folder(self, before: int) -> None:
        for at, name, inode in self._renamed:
            if at < before:
                _rename(self._names, name, inode)
        self._renamed = [each for each in self._renamed if each[0] >= before]

    def _states(self, cut: int) -> Iterator[State]:
        # One for each cut, so that a cut alone gives the states that it gives among others.
        rng = random.Random(f"{self._seed} {cut}")
        pending = {at: event for inode in self._inodes() for at, event in inode.pending}
        yield State(self._files(0, {}), cut, "nothing unsynced")
        if not pending and not self._renamed:
            return
        every = len(self._renamed)
        whole = {at: [event] for at, event in pending.items()}
        yield State(self._files(every, whole), cut, "all of it")
        yield State(self._files(every, {}), cut, "names only")
        for _ in range(self._subsets):
            likely = rng.choice((0.1, 0.5, 0.9))
            some = {at: pieces for at, pieces in whole.items() if rng.random() < likely}
            yield State(self._files(rng.randint(0, every), some), cut, "some of it")
        for sector in SECTORS if pending else ():
            torn = rng.choice(list(pending))
            others = rng.choice(({}, whole, {at: pieces for at, pieces in whole.items() if at < torn}))
            kept = {**others, torn: list(_pieces(pending[torn], sector, rng))}
            yield State(self._files(every, kept), cut, f"torn at {sector}")

    def _inodes(self) -> list[_Inode]:
        found = [*self._names.values(), *(inode for _, _, inode in self._renamed if inode is not None)]
        return list({id(inode): inode for inode in found}.values())

    def _files(self, renamed: int, kept: dict[int, list[Event]]) -> Files:
        """With so many of the new names, and of the unsynced writes those pieces."""
        names = dict(self._names)
        for _, name, inode in self._renamed[:renamed]:
            _rename(names, name, inode)
        return {name: _content(inode, kept) for name, inode in names.items()}


def _content(inode: _Inode, kept: dict[int, list[Event]]) -> bytes:
    content = bytearray(inode.durable)
    for at, _ in inode.pending:
        for piece in kept.get(at, ()):
            _apply(content, piece)
    return bytes(content)


def _rename(names: dict[str, _Inode], name: str, inode: _Inode | None) -> None:
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _apply(content: bytearray, event: Event) -> None:
    if event.call == "ftruncate":
        del content[event.offset :]
        content.extend(bytes(event.offset - len(content)))
        return
    content.extend(bytes(max(0, event.offset - len(content))))
    content[event.offset : event.offset + len(event.data)] = event.data


def _pieces(event: Event, sector: int, rng: random.Random) -> Iterator[Event]:
    """What is left of a write of which some sectors went missing: its beginning, or any of them."""
    if event.call == "ftruncate":
        return
    end = event.offset + len(event.data)
    borders = [event.offset, *range(event.offset // sector * sector + sector, end, sector), end]
    pairs = list(pairwise(borders))
    chosen = pairs[: rng.randrange(len(pairs))] if rng.random() < 0.5 else [p for p in pairs if rng.random() < 0.5]
    for begin, stop in chosen:
        data = event.data[begin - event.offset : stop - event.offset]
        yield Event(event.thread, event.call, event.name, event.began, begin, data)
