"""The distribution that brings this package: its name, the command that installs it, and a conflict with another one.

The distribution `pgqrs` of the package index is another project, and its package has the same name. Installed beside
ours, it overwrites some of our files; uninstalled later, it takes them along. See docs/decisions/0030.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from pgqrs.text.shell import quoted

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "pgqrs-durable"
# The package and the command. The package index has a distribution of that name, which is another project.
PACKAGE = "pgqrs"
_FORMER_COMMAND = "pgqrs.cli:main"


class Conflict(NamedTuple):
    """Another distribution that claims our files. `is_former` is one of ours, by the name that it had before."""

    what: str
    why: str
    fix: str
    is_former: bool = False


def install_command(*extras: str) -> str:
    """Return the command for a shell that installs the package with these extras.

    Where the package is installed already, from a clone or from an index, pip only adds what the extras need.
    """
    return f"pip install {_with_extras(extras)}"


def _with_extras(extras: tuple[str, ...]) -> str:
    return quoted(f"{NAME}[{','.join(extras)}]") if extras else NAME


def version() -> str:
    """Return the version of this code, also when another distribution has overwritten `pgqrs/__init__.py`."""
    if _package_is_ours():
        return str(sys.modules[PACKAGE].__version__)
    return next((each.version for each in _installed(NAME)), "unknown")


def conflict() -> Conflict | None:
    """Return what another distribution does to this installation; None when there is none."""
    found = _installed(PACKAGE)
    others = [each for each in found if not _is_former(each)]
    fix = f"pip uninstall --yes {PACKAGE} {NAME} && {_install_again()}"
    if others:
        return Conflict(
            f"another project's distribution {PACKAGE!r} ({others[0].version}) is installed "
            f"{'beside' if _installed(NAME) else 'instead of'} {NAME}",
            f"both bring the package {PACKAGE!r}: files of one overwrite those of the other, and names are missing",
            fix,
        )
    if not _package_is_ours():
        return Conflict(
            f"{PACKAGE}/__init__.py of {NAME} is missing, or another project's",
            f"a distribution {PACKAGE!r} was installed over {NAME}, or uninstalled from above it",
            fix,
        )
    if found:
        return Conflict(
            f"{NAME} is also installed under its former name, {PACKAGE!r} ({found[0].version})",
            f"uninstalling one removes files of the other, and {PACKAGE!r} is another project on the package index",
            fix,
            is_former=True,
        )
    return None


def _is_former(found: Distribution) -> bool:
    return any(each.value == _FORMER_COMMAND for each in found.entry_points)


def _installed(name: str) -> list[Distribution]:
    from importlib import metadata  # noqa: PLC0415 - every command imports this module, and few ask

    return list(metadata.distributions(name=name))


def _package_is_ours() -> bool:
    # The other project's has no table of names; the rest of a package without __init__.py has nothing at all.
    return hasattr(sys.modules.get(PACKAGE), "_HOMES")


def _install_again() -> str:
    """The command that repeats the installation: from the same folder, if it came from one."""
    for ours in _installed(NAME):
        origin = json.loads(ours.read_text("direct_url.json") or "{}")
        place = urlsplit(origin.get("url", ""))
        if place.scheme == "file":
            editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
            return f"pip install {editable}{quoted(unquote(place.path))}"
    return install_command()
