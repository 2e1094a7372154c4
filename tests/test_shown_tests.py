"""Pages name tests by name; the files come from the tests."""

import pytest

from tools.docs import shown_tests

_HERE = "test_a_page_follows_a_test_to_its_file"


def test_a_page_follows_a_test_to_its_file(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"Shown by `old/place.py::{_HERE}`.", encoding="utf-8")

    assert shown_tests.page(page) == f"Shown by `test_shown_tests.py::{_HERE}`."


def test_a_test_that_is_gone_is_named_with_its_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Shown by `old/place.py::test_that_is_gone`.", encoding="utf-8")

    with pytest.raises(
        LookupError, match=r"^page.md names test_that_is_gone in old/place.py; it is nowhere in tests/$"
    ):
        shown_tests.page(page)


def test_a_row_shows_the_tests_that_carry_it_and_keeps_its_remarks():
    row = "| B1.12 | all killed | they go on | `old/place.py::test_x`<br>a remark |"

    written = shown_tests.ROW.sub(shown_tests.row_with_its_tests, row)

    (file,) = [file for each, file, _ in shown_tests.marked() if each == "B1.12"]
    test = "test_when_all_workers_are_killed_at_once_the_next_ones_go_on"
    assert written == f"| B1.12 | all killed | they go on | `{file}::{test}`<br>a remark |"
