"""Backoff: doubles, is capped, is spread."""

import pytest

from pgqrs.retry import Backoff


def test_each_wait_is_twice_the_one_before_until_the_cap():
    backoff = Backoff(base=1, cap=300)

    assert [backoff.delay(n, chance=0) for n in (1, 2, 3, 9, 10, 10_000)] == [1, 2, 4, 256, 300, 300]


@pytest.mark.row("B8.8")
def test_jitter_adds_up_to_half():
    assert Backoff(base=2).delay(1, chance=1) == 3


@pytest.mark.parametrize("attempt", [1, 5, 50])
def test_the_dice_are_thrown_when_nobody_says(attempt):
    waits = {Backoff().delay(attempt) for _ in range(20)}

    assert len(waits) > 1
