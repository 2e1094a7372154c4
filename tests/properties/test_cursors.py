"""Cursors: each is read back as it was written, and no other text is taken for one."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgqrs.api.cursors import from_cursor, from_named_cursor, moment_of, to_cursor
from pgqrs.errors import ConfigError

NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
TIMES = st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the zone is given beside it


@given(NUMBERS, NAMES)
def test_a_cursor_is_read_back(numbers, name):
    assert from_named_cursor(to_cursor(*numbers, name=name), len(numbers)) == (name, tuple(numbers))
    assert from_cursor(to_cursor(*numbers), len(numbers)) == tuple(numbers)


@given(TIMES)
def test_a_time_in_a_cursor_is_read_back(moment):
    assert moment_of(from_cursor(to_cursor(moment), 1)[0]) == moment


@given(NUMBERS, NAMES.filter(bool))
def test_a_name_where_none_is_expected_is_refused(numbers, name):
    with pytest.raises(ConfigError, match="broken"):
        from_cursor(to_cursor(*numbers, name=name), len(numbers))


@given(NUMBERS, NAMES, st.data())
def test_a_changed_cursor_is_refused(numbers, name, data):
    cursor = to_cursor(*numbers, name=name)
    at = data.draw(st.integers(0, len(cursor) - 1))
    # The last characters may hold bits that stand for nothing.
    other = (
        data.draw(st.sampled_from("ABCDxyz019-_").filter(lambda c: c != cursor[at])) if at < len(cursor) - 4 else "!"
    )

    with pytest.raises(ConfigError, match="broken"):
        from_named_cursor(cursor[:at] + other + cursor[at + 1 :], len(numbers))
