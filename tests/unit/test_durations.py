"""Durations: seconds and timedeltas within a century, and nothing else."""

from datetime import timedelta

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

import pgqrs
from pgqrs.text.durations import LONGEST, LONGEST_SECONDS, checked_seconds, parse_duration, write_duration


@pytest.mark.parametrize(
    ("given", "seconds"), [(0, 0.0), (3, 3.0), (0.5, 0.5), (timedelta(minutes=2), 120.0), (LONGEST_SECONDS,) * 2]
)
def test_seconds_and_timedeltas_are_taken(given, seconds):
    assert checked_seconds(given, "timeout") == seconds
    assert type(checked_seconds(given, "timeout")) is float


BAD = [
    float("nan"), float("inf"), float("-inf"), -1, -0.001, LONGEST_SECONDS * 1.01, 10**400, timedelta(days=-1),
    timedelta.max, True, "5", None, [1],
]  # fmt: skip


@pytest.mark.parametrize("given", BAD, ids=lambda given: repr(given)[:20])
def test_other_values_are_refused_by_name_and_value(given):
    with pytest.raises(pgqrs.ConfigError, match=r"step\(timeout=\) must be seconds .* got ") as caught:
        checked_seconds(given, "step(timeout=)")

    assert repr(given)[:50] in str(caught.value)
    assert len(str(caught.value)) < 200


def test_zero_is_refused_where_it_means_nothing():
    with pytest.raises(pgqrs.ConfigError, match=r"timeout must be seconds .* above 0, up to 100 years, got 0"):
        checked_seconds(0, "timeout", allow_zero=False)


def test_a_repr_that_raises_does_not_hide_the_error():
    class Odd:
        def __repr__(self):
            raise ValueError("no")

    with pytest.raises(pgqrs.ConfigError, match="got a test_a_repr"):
        checked_seconds(Odd(), "delay")


@drawn(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_a_length_that_is_written_is_read_back(length):
    assert parse_duration(write_duration(length)) == length


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(weeks=2), "2w"),
        (timedelta(days=8), "8d"),
        (timedelta(minutes=90), "90m"),
        (timedelta(milliseconds=1_500), "1500ms"),
        (timedelta(microseconds=1), "0.000001s"),
        (timedelta(0), "0s"),
    ],
)
def test_a_length_is_written_in_its_largest_whole_unit(length, text):
    assert write_duration(length) == text


def test_a_filter_and_a_command_read_the_same_lengths():
    for text in ("90s", "15m", "2h", "7d", "2w", "1.5h", "250ms"):
        assert pgqrs.RunFilter.parse(f"since:{text}").created_after == parse_duration(text)
