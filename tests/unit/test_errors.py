"""Copies of errors: one for each caller, the same in every respect, with a trace of its own."""

import errno
import traceback

import pytest

import pgqrs
from pgqrs.error_copies import copy_of


class Odd(Exception):
    """Cannot be made from its arguments."""

    def __init__(self, *, code, reason):
        super().__init__(f"{code}: {reason}")
        self.code = code


class Stubborn(Exception):
    def __new__(cls, *_):
        if getattr(cls, "made", False):
            raise RuntimeError("there is only one")
        cls.made = True
        return super().__new__(cls, "only")


def shown(error):
    return type(error), str(error), repr(error), vars(error)


@pytest.mark.parametrize(
    "error",
    [
        pgqrs.ConnectionFailed("the reply was lost", ambiguous=True),
        pgqrs.SchemaMismatch("too old", found=1, expected=2),
        pgqrs.QueueNotFound("tasks", known=["task"]),
        pgqrs.ExecutionFailed(7, "why"),
        OSError(errno.ENOSPC, "no space", "/data"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "why"),
        KeyError("k"),
        Odd(code=3, reason="why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_copy_is_the_same_but_for_its_identity(error):
    error.add_note("while testing")
    mine = copy_of(error)

    assert mine is not error
    assert shown(mine) == shown(error)


def test_a_copy_keeps_its_cause_and_has_a_trace_of_its_own():
    try:
        try:
            raise OSError("the cause")
        except OSError as cause:
            raise pgqrs.ConnectionFailed("lost") from cause
    except pgqrs.ConnectionFailed as error:
        original = error
    before = len(traceback.extract_tb(original.__traceback__))

    copies = [copy_of(original) for _ in range(3)]
    for each in copies:
        with pytest.raises(pgqrs.ConnectionFailed):
            raise each

    assert all(each.__cause__ is original.__cause__ for each in copies)
    assert len(traceback.extract_tb(original.__traceback__)) == before
    assert {len(traceback.extract_tb(each.__traceback__)) for each in copies} == {before + 1}


def test_what_cannot_be_copied_is_shared():
    error = Stubborn()

    assert copy_of(error) is error
