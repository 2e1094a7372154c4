"""Building the site, and looking at what was built: nothing may be fetched from another host."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from tools.docs import pages

SITE = pages.ROOT / "site"
# What a browser loads by itself; a link that a person follows may lead anywhere.
_LOADED = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
_LINKED = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
_IMPORTED = re.compile(r"(?:@import\s+|url\()\s*['\"]?((?:https?:)?//[^'\")\s]+)")


def build() -> int:
    """0 when it was built, no link is dead and nothing comes from elsewhere."""
    shutil.rmtree(SITE, ignore_errors=True)
    program = Path(sys.executable).with_name("zensical")
    if not program.exists():
        print("zensical is not installed; `make docs` brings it (dependency group `docs`)", file=sys.stderr)
        return 1
    done = subprocess.run([program, "build", "--strict"], cwd=pages.ROOT, check=False)
    if done.returncode:
        return done.returncode
    add_plain_texts(SITE)
    found = sorted(set(fetched_from_elsewhere(SITE)))
    for file, address in found:
        print(f"{file.relative_to(SITE)} loads {address}", file=sys.stderr)
    print(f"{sum(1 for _ in SITE.rglob('*.html'))} pages in {SITE.name}/, {len(found)} things fetched from elsewhere")
    return 1 if found else 0


def add_plain_texts(site: Path) -> None:
    """The pages as they were written, and all in one: for programs that read."""
    for file in pages.DOCS.rglob("*.md"):
        copy = site / file.relative_to(pages.DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    (site / "llms-full.txt").write_text(pages.whole(), encoding="utf-8")


def fetched_from_elsewhere(site: Path) -> Iterator[tuple[Path, str]]:
    for file in site.rglob("*.html"):
        parser = _Assets()
        parser.feed(file.read_text(encoding="utf-8"))
        yield from ((file, address) for address in parser.found)
    for file in site.rglob("*.css"):
        yield from ((file, address) for address in _IMPORTED.findall(file.read_text(encoding="utf-8")))


class _Assets(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        address = given.get(_LOADED.get(tag, ""))
        if tag == "link" and _LINKED & set((given.get("rel") or "").split()):
            address = given.get("href")
        if address and re.match(r"(https?:)?//", address):
            self.found.append(address)
        self.found += _IMPORTED.findall(given.get("style") or "")
