"""Errors say the problem and, apart from it, the way to fix it."""

import copy

import pytest

import pgqrs
from pgqrs.error_copies import copy_of
from pgqrs.errors import (
    ConfigError,
    ConnectionFailed,
    InvalidArguments,
    PayloadTooLarge,
    PermanentError,
    QueueNotFound,
    SerializationError,
)
from pgqrs.text.durations import parse_duration


def test_an_error_carries_its_problem_and_its_hint():
    with pytest.raises(ConfigError) as raised:
        parse_duration("soon")

    assert raised.value.problem == "'soon' is no length of time"
    assert raised.value.hint == "write 90s, 15m, 2h, 7d or 2w"
    assert str(raised.value) == "'soon' is no length of time; write 90s, 15m, 2h, 7d or 2w"


def test_an_error_without_a_hint_is_all_problem():
    error = PermanentError("declined; ask the bank")

    assert (error.problem, error.hint) == ("declined; ask the bank", None)


def test_a_semicolon_in_the_problem_stays_there():
    error = ConfigError("'a; b' is no name", hint="leave the ; out")

    assert (error.problem, error.hint) == ("'a; b' is no name", "leave the ; out")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            QueueNotFound("mails", known=["mail"]),
            "create it with store.create_queue('mails'), or did you mean 'mail'?",
        ),
        (InvalidArguments("order", "there is no parameter 'itms'", suggestion="items"), "did you mean 'items'?"),
        (PayloadTooLarge(10, 5), "store it elsewhere and pass a reference, or raise the limit"),
        (ConnectionFailed("gone", ambiguous=True, hint="try again"), "try again"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_with_fields_have_a_hint_too(error, hint):
    assert error.hint == hint
    assert str(error) == f"{error.problem}; {hint}"


def test_what_is_told_later_belongs_to_the_problem():
    error = SerializationError("cannot store a set", hint="use a list").about("the result of 'order'").of_item(3)

    assert error.problem == "item 3: the result of 'order': cannot store a set"
    assert error.hint == "use a list"


@pytest.mark.parametrize("again", [copy.copy, copy_of], ids=["copy", "copy_of"])
def test_a_copy_has_the_same_hint(again):
    error = pgqrs.ConfigError("no", hint="yes")

    assert (again(error).problem, again(error).hint, str(again(error))) == ("no", "yes", "no; yes")
