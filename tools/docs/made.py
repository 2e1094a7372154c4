"""Every file that is made, and by whom; a test compares them with what is in the tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.docs import api, pages, schema, settings, shown_tests

ROOT = pages.ROOT

# In this order: the navigation reads the pages that the others make.
MADE: dict[Path, Callable[[], str]] = {
    ROOT / "docs/reference/settings.md": settings.page,
    ROOT / "docs/reference/schema.md": schema.page,
    ROOT / "docs/reference/python.md": api.page,
    **{page: partial(shown_tests.page, page) for page in shown_tests.pages()},
    ROOT / "docs/llms.txt": pages.llms,
    ROOT / "zensical.toml": pages.configuration,
}


def stale() -> list[Path]:
    return [path for path, make in MADE.items() if not path.is_file() or path.read_text(encoding="utf-8") != make()]


def write_all() -> list[Path]:
    """Those that were written: what is right already is not touched."""
    written = []
    for path, make in MADE.items():
        text = make()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            written.append(path)
    return written
