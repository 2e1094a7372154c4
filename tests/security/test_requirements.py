"""What `make` installs: fixed versions with the hashes of their files, and nothing beside them."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools.requirements import wanted_by_set

ROOT = Path(__file__).parent.parent.parent
ENTRY = re.compile(r"([a-z0-9-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")


def pins(name):
    return {found[1]: found[2] for found in ENTRY.finditer(_text(name))}


def _text(name):
    return (ROOT / "requirements" / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", ["core", "web", "dev"])
def test_every_line_is_a_version_with_hashes_and_names_no_place(name):
    rest = ENTRY.sub("", _text(name))

    assert re.fullmatch(r"(#.*\n)*", rest)
    assert "://" not in _text(name)


@pytest.mark.parametrize("name", ["core", "web", "dev"])
def test_the_versions_are_those_that_pyproject_asks_for(name):
    found = pins(name)
    asked = [Requirement(each) for each in wanted_by_set()[name]]
    wrong = [str(each) for each in asked if not each.specifier.contains(Version(found[canonicalize_name(each.name)]))]

    assert wrong == []


def test_the_files_agree():
    core, web, dev = pins("core"), pins("web"), pins("dev")
    constraints = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())

    assert core.items() <= web.items() <= dev.items()
    assert constraints == dev


def test_make_installs_by_hash_or_the_package_itself_and_downloads_nothing_for_it():
    text = (ROOT / "Makefile").read_text()
    used = set(re.findall(r"\$\((INSTALL\w*)\)", text)) - {"INSTALL"}

    assert used == {"INSTALL_PINNED", "INSTALL_OURS"}
    assert re.findall(r".*\$\(INSTALL\).*", text) == [
        "INSTALL_PINNED = $(INSTALL) --require-hashes --requirement",
        "INSTALL_OURS = $(INSTALL) --no-deps --no-build-isolation --editable .",
    ]
