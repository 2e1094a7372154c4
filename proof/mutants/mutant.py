"""A mutant: the library with one promise taken out, and the tests that must notice."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from proof import ROOT
from proof.mutants import source
from proof.mutants.source import NoLongerApplies

LIBRARY = ROOT / "src" / "pgqrs"


@dataclass(frozen=True, slots=True)
class Edit:
    """A text that occurs once in a part of the library, and its replacement; source.py tells how to name the part."""

    where: str
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


def found(mutant: Mutant, library: Path = LIBRARY) -> Iterator[tuple[Path, str]]:
    """The files as the mutant has them; NoLongerApplies when a part or its text is gone."""
    texts: dict[Path, str] = {}
    for edit in mutant.edits:
        try:
            file = source.file_of(edit.where, library)
            text = texts.get(file) or file.read_text(encoding="utf-8")
            texts[file] = source.replaced(text, edit.where, edit.before, edit.after)
        except NoLongerApplies as error:
            raise NoLongerApplies(f"{mutant.name}: {error}") from None
    yield from texts.items()


def copy_of(mutant: Mutant | None, folder: Path) -> Path:
    """The library in a folder of its own, with the mutant's changes; None: as it is. Gives what goes on the path."""
    # With the compiled files: their sources keep their times, so only what is changed is compiled anew.
    shutil.copytree(LIBRARY, folder / LIBRARY.name)
    for file, text in found(mutant, folder / LIBRARY.name) if mutant is not None else ():
        file.write_text(text, encoding="utf-8")
    return folder
