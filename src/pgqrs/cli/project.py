"""`[tool.pgqrs]` of the project that a command is called in: which file counts, and which does not.

The file names the database, and code that is loaded. So it must be the user's own project's: a file that another
user has put into a folder above, such as /tmp, would decide both.
"""

from __future__ import annotations

import os
import stat
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from pgqrs.errors import ConfigError

_FILE = "pyproject.toml"
# Where a project ends, whether or not it has the file.
_ROOTS = (".git", ".hg")


class Project(NamedTuple):
    settings: dict[str, Any]
    path: Path | None = None
    # A file that would have counted if others could not have written it.
    distrusted: Path | None = None


def project() -> Project:
    """The nearest file, in the current folder or above, but not above the project or the home directory."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        if folder not in (here, *_below_home(here)):
            break
        path = folder / _FILE
        if path.is_file():
            return Project(_read(path), path) if _is_trusted(path, here) else Project({}, distrusted=path)
        if any((folder / name).exists() for name in _ROOTS):
            break
    return Project({})


def _below_home(here: Path) -> tuple[Path, ...]:
    """The parents that may be asked: all of them, or those below the user's home if that is one."""
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises where there is none
    parents = tuple(here.parents)
    return parents[: parents.index(home)] if home in parents else parents


def _is_trusted(path: Path, here: Path) -> bool:
    """The user chose the current folder by calling the command there; one above must be the user's own, or root's."""
    if not hasattr(os, "geteuid"):
        return True
    file, folder = path.stat(), path.parent.stat()
    # A link that another user has planted may lead to a file of ours.
    owners = {file.st_uid, path.lstat().st_uid}
    if file.st_mode & stat.S_IWOTH or (folder.st_mode & stat.S_IWOTH and owners != {os.geteuid()}):
        return False
    return path.parent == here or owners | {folder.st_uid} <= {os.geteuid(), 0}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {}).get("pgqrs", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    return dict(found)
