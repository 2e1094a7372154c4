"""A mutant: the library with one promise taken out, and the tests that must notice."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proof import ROOT

LIBRARY = ROOT / "src" / "pgqrs"


@dataclass(frozen=True, slots=True)
class Edit:
    """In a file of the library, a text that stands there exactly once, and what stands there instead."""

    file: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """`breaks` says what is no longer so; `killers` are the tests of which at least one must fail on it."""

    name: str
    breaks: str
    edits: tuple[Edit, ...]
    killers: tuple[str, ...]
    # The database whose text is changed, or that notices.
    on: str = "sqlite"


class NoLongerApplies(Exception):
    """The library has changed: the mutant must be written anew, or it breaks nothing any more."""


def found(mutant: Mutant, library: Path = LIBRARY) -> Iterator[tuple[Path, str]]:
    """The files as the mutant has them; NoLongerApplies when a text is not there exactly once."""
    texts: dict[Path, str] = {}
    for edit in mutant.edits:
        file = library / edit.file
        text = texts.get(file) or file.read_text(encoding="utf-8")
        times = text.count(edit.before)
        if times != 1:
            raise NoLongerApplies(
                f"{mutant.name}: its text is {times} times in {edit.file}: {edit.before.strip()[:60]!r}"
            )
        texts[file] = text.replace(edit.before, edit.after)
    yield from texts.items()


def copy_of(mutant: Mutant | None, folder: Path) -> Path:
    """The library in a folder of its own, with the mutant's changes; None: as it is. Gives what goes on the path."""
    # With the compiled files: their sources keep their times, so only what is changed is compiled anew.
    shutil.copytree(LIBRARY, folder / LIBRARY.name)
    for file, text in found(mutant, folder / LIBRARY.name) if mutant is not None else ():
        file.write_text(text, encoding="utf-8")
    return folder
