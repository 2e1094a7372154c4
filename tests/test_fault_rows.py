"""The page of faults and the tests that it names agree, and no row is missing."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs/reference/faults.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (B\d+\.\d+) \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)::(\w+)`")
# Where there is no test: what shows it instead, or why nothing does.
INSTEAD = ("`make ", "no test: ", "not built yet: ")

rows = {found[0]: found[3] for found in ROW.findall(PAGE)}
named = {(row, file, test) for row, shown in rows.items() for file, test in TEST.findall(shown)}


def marked():
    """(row, file, test) for each marker."""
    for file in sorted(TESTS.rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if "mark.row(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.row":
                        for row in mark.args:
                            yield ast.literal_eval(row), file.relative_to(TESTS).as_posix(), node.name


def test_every_row_of_the_list_is_in_a_table_once():
    listed = re.findall(r"B\d+\.\d+", PAGE.partition("## The list")[2])

    assert len(listed) > 100
    assert [found[0] for found in ROW.findall(PAGE)] == listed
    assert len(set(listed)) == len(listed)


def test_the_tests_that_the_page_names_are_those_that_carry_its_rows():
    assert sorted(named) == sorted(marked())


def test_a_row_is_shown_by_a_test_or_says_what_there_is_instead():
    silent = [row for row, shown in rows.items() if not TEST.search(shown) and not shown.startswith(INSTEAD)]

    assert silent == []
