"""The page of faults and the tests that it names agree, and no row is missing."""

import re

from tools.docs.shown_tests import FAULTS, NAMED, ROW, marked

PAGE = FAULTS.read_text(encoding="utf-8")
# Where there is no test: what shows it instead, or why nothing does.
INSTEAD = ("`make ", "no test: ", "not built yet: ")

rows = {found["row"]: found["shown"] for found in ROW.finditer(PAGE)}
named = {(row, *test) for row, shown in rows.items() for test in NAMED.findall(shown)}


def test_every_row_of_the_list_is_in_a_table_once():
    listed = re.findall(r"B\d+\.\d+", PAGE.partition("## The list")[2])

    assert len(listed) > 100
    assert [found["row"] for found in ROW.finditer(PAGE)] == listed
    assert len(set(listed)) == len(listed)


def test_the_tests_that_the_page_names_are_those_that_carry_its_rows():
    assert sorted(named) == sorted(marked())


def test_a_row_is_shown_by_a_test_or_says_what_there_is_instead():
    silent = [row for row, shown in rows.items() if not NAMED.search(shown) and not shown.startswith(INSTEAD)]

    assert silent == []
