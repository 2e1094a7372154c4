"""Durations: seconds and timedeltas within a century, and nothing else."""

from datetime import timedelta

import pytest

import pgqrs
from pgqrs.text.durations import LONGEST_SECONDS, checked_seconds


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
