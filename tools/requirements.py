"""Write requirements/*.txt: every package that `make` installs, with its version and the hashes of all its files.

`python -m tools.requirements` takes the versions of constraints.txt, and adds packages that are new;
`--upgrade` takes the newest that pyproject.toml allows, and writes constraints.txt, too. The index is pip's own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "requirements"
CONSTRAINTS = ROOT / "constraints.txt"
# What builds the package, since `make` gives it no environment of its own to download into. Hatchling needs editables
# for `--editable`.
_BUILD = ["editables"]
_LINK = re.compile(r'href="[^"#]*?([^"#/]+)#sha256=([0-9a-f]{64})', re.IGNORECASE)
_HEAD = "# Made by `python -m tools.requirements`; `make` installs it with --require-hashes.\n"

Pins = dict[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true")
    upgrade = parser.parse_args().upgrade
    sets = {name: _resolved(wanted, upgrade=upgrade) for name, wanted in wanted_by_set().items()}
    with ThreadPoolExecutor(8) as pool:
        pins = sorted(sets["dev"].items())
        hashes = dict(zip(sets["dev"], pool.map(lambda pin: _hashes(*pin), sets["dev"].items()), strict=True))
    FOLDER.mkdir(exist_ok=True)
    for name, chosen in sets.items():
        text = _HEAD + "".join(_entry(each, chosen[each], hashes[each]) for each in sorted(chosen))
        (FOLDER / f"{name}.txt").write_text(text)
        print(f"requirements/{name}.txt: {len(chosen)} packages")
    CONSTRAINTS.write_text("".join(f"{name}=={version}\n" for name, version in pins))


def wanted_by_set() -> dict[str, list[str]]:
    """What pyproject.toml asks for: the package alone, with the dashboard, and all of it with the tools."""
    told = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = told["project"]["optional-dependencies"]
    core = [*told["project"]["dependencies"], *told["build-system"]["requires"], *_BUILD]
    every = [each for name, extra in extras.items() if name != "all" for each in extra]
    return {"core": core, "web": core + extras["web"], "dev": core + every + list(_group("dev", told))}


def _group(name: str, told: dict[str, Any]) -> Iterator[str]:
    for each in told["dependency-groups"][name]:
        if isinstance(each, dict):
            yield from _group(each["include-group"], told)
        else:
            yield each


def _resolved(wanted: list[str], *, upgrade: bool) -> Pins:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    limits = [] if upgrade else ["--constraint", str(CONSTRAINTS)]
    done = subprocess.run([*command, *limits, *wanted], stdout=subprocess.PIPE, check=True)
    found = [each["metadata"] for each in json.loads(done.stdout)["install"]]
    return {canonicalize_name(each["name"]): each["version"] for each in found}


def _hashes(name: str, version: str) -> list[str]:
    """Of the release's wheels for every platform, and of its source."""
    request = urllib.request.Request(
        f"{_index().rstrip('/')}/{name}/", headers={"Accept": "application/vnd.pypi.simple.v1+json, text/html;q=0.5"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        page = answer.read().decode()
    found = {digest for file, digest in _files(page) if _version_of(file) == version}
    if not found:
        sys.exit(f"the index has no hashes for {name} {version}; is constraints.txt of another index?")
    return sorted(found)


def _files(page: str) -> Iterator[tuple[str, str]]:
    if page.lstrip().startswith("{"):
        for each in json.loads(page)["files"]:
            yield each["filename"], each["hashes"].get("sha256", "")
        return
    for file, digest in _LINK.findall(page):
        yield unquote(unescape(file)), digest


def _version_of(file: str) -> str | None:
    try:
        return str(parse_wheel_filename(file)[1] if file.endswith(".whl") else parse_sdist_filename(file)[1])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def _index() -> str:
    # pip's, and only here: a virtual environment that uv has made has no pip.
    from pip._internal.models.index import PyPI  # noqa: PLC0415

    told = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    return os.environ.get("PIP_INDEX_URL") or told.stdout.strip() or PyPI.simple_url


def _entry(name: str, version: str, hashes: list[str]) -> str:
    return f"{name}=={version} \\\n" + " \\\n".join(f"    --hash=sha256:{each}" for each in hashes) + "\n"


if __name__ == "__main__":
    main()
