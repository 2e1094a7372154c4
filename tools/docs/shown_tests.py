"""The tests that pages name: `file::name` below tests/. Names are written by hand, files and a row's tests are not."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.docs.pages import DOCS, ROOT

TESTS = ROOT / "tests"
FAULTS = DOCS / "reference/faults.md"
ROW = re.compile(r"^\| (?P<row>B\d+\.\d+) \| (?P<fault>.+?) \| (?P<holds>.+?) \| (?P<shown>.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<test>test_\w+)`")
_TEST = re.compile(r"^(?:async )?def (test_\w+)\(", re.MULTILINE)


def pages() -> list[Path]:
    """The pages that name tests."""
    return [page for page in sorted(DOCS.rglob("*.md")) if NAMED.search(page.read_text(encoding="utf-8"))]


def page(path: Path) -> str:
    """The page as it is, with the files that its tests are in now; LookupError when there is no such test."""
    text = path.read_text(encoding="utf-8")
    if path == FAULTS:
        return ROW.sub(row_with_its_tests, text)
    return NAMED.sub(lambda named: _named(path, named), text)


@cache
def marked() -> list[tuple[str, str, str]]:
    """(row, file, test) for each row that the marker of a test names."""
    return [
        (ast.literal_eval(row), file, node.name)
        for file, text in _texts()
        if "mark.row(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for mark in node.decorator_list
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.row"
        for row in mark.args
    ]


def row_with_its_tests(found: re.Match[str]) -> str:
    """The row with the tests that carry it, and then what else the page says there."""
    carriers = [f"`{file}::{test}`" for row, file, test in marked() if row == found["row"]]
    remarks = [each for each in found["shown"].split("<br>") if not NAMED.fullmatch(each)]
    return f"| {found['row']} | {found['fault']} | {found['holds']} | {'<br>'.join([*carriers, *remarks])} |"


def _named(path: Path, named: re.Match[str]) -> str:
    files = _files()[named["test"]]
    if named["file"] in files:
        return named.group()
    if len(files) != 1:
        where = f"in {', '.join(sorted(files))}" if files else "nowhere in tests/"
        raise LookupError(f"{path.name} names {named['test']} in {named['file']}; it is {where}")
    return f"`{next(iter(files))}::{named['test']}`"


@cache
def _files() -> dict[str, set[str]]:
    """The files that have a test of that name."""
    files: dict[str, set[str]] = defaultdict(set)
    for file, text in _texts():
        # Not parsed: that takes seconds for all the tests that there are.
        for test in _TEST.findall(text):
            files[test].add(file)
    return files


def _texts() -> Iterator[tuple[str, str]]:
    for file in sorted(TESTS.rglob("test_*.py")):
        yield file.relative_to(TESTS).as_posix(), file.read_text(encoding="utf-8")
