"""Backoff: doubles, is capped, is spread."""

import pytest

import pgqrs
from pgqrs.retry import Backoff, RetryPolicy


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


GOOD = [
    {},
    {"max_attempts": 1, "base": 0, "cap": 0, "jitter": 0},
    {"base": 0.5, "cap": 3600, "retry_on": OSError},
    {"give_up_on": (ValueError, TypeError)},
]
BAD = [
    ("max_attempts", 0), ("max_attempts", -1), ("max_attempts", 2.5), ("max_attempts", True), ("max_attempts", None),
    ("base", float("nan")), ("base", float("inf")), ("base", -1), ("base", "1"), ("base", 1e12), ("base", 10**400),
    ("cap", -1), ("cap", float("nan")), ("cap", float("inf")), ("cap", None),
    ("jitter", float("inf")), ("jitter", -0.1), ("jitter", float("nan")), ("jitter", 101),
    ("retry_on", "OSError"), ("retry_on", (OSError, "x")), ("give_up_on", [ValueError]), ("give_up_on", int),
]  # fmt: skip


@pytest.mark.parametrize("fields", GOOD, ids=str)
def test_a_policy_takes_what_a_wait_can_have(fields):
    assert RetryPolicy(**fields).delay(3) >= 0


@pytest.mark.parametrize(("field", "value"), BAD, ids=lambda each: repr(each)[:20])
def test_a_policy_refuses_other_values_by_field_and_value(field, value):
    with pytest.raises(pgqrs.ConfigError, match=rf"RetryPolicy\({field}=\) must be .*, got ") as caught:
        RetryPolicy(**{field: value})

    assert repr(value)[:50] in str(caught.value)


def test_a_workflow_refuses_what_is_no_policy():
    with pytest.raises(pgqrs.ConfigError, match=r"workflow\(retry=\) must be a pgqrs.RetryPolicy, got 3"):
        pgqrs.workflow("flow", retry=3)
