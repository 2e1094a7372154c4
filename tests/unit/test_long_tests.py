"""The list of tests that `make test` leaves to `make test-all`."""

import re
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from rig import long_tests

ROOT = Path(__file__).parent.parent.parent


def test_a_test_is_long_when_its_cases_are_on_average():
    limit = long_tests.LONG_SECONDS
    slow = {"a.py::slow[sqlite]": 3 * limit, "a.py::slow[postgres]": 0.0}
    quick = {"a.py::quick[1]": 1.5 * limit, "a.py::quick[2]": 0.1 * limit}

    assert long_tests.long_ones(slow | quick) == ["a.py::slow"]


def test_the_tests_on_the_list_exist():
    """One that was renamed would run again in `make test`, unnoticed, until that takes too long."""
    for each in long_tests.listed():
        file, _, name = each.partition("::")
        assert re.search(rf"^(async )?def {re.escape(name)}\(", (ROOT / file).read_text(), re.MULTILINE), each


@pytest.mark.parametrize("case", ["", "[sqlite]", "[sqlite-a[0]]"])
def test_a_long_test_is_left_out_and_counted_as_left_out(case):
    long, short = min(long_tests.listed()) + case, "tests/unit/test_long_tests.py::test_short" + case
    items = [SimpleNamespace(nodeid=long), SimpleNamespace(nodeid=short)]
    told = Mock()

    long_tests.Leaver().pytest_collection_modifyitems(told, items)

    assert [item.nodeid for item in items] == [short]
    [left] = told.hook.pytest_deselected.call_args_list
    assert [item.nodeid for item in left.kwargs["items"]] == [long]
