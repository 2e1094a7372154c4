"""Errors come back from their records as they went in, and no record makes anything run."""

import json

import pytest

from pgqrs import errors
from pgqrs.engine.recorded_errors import Program, raised_again, record_of


def handler(ctx):
    """Stand for a handler of this module."""


PROGRAM = Program.of(handler)


def again(error):
    return raised_again(record_of(error, program=PROGRAM), program=PROGRAM, step_id="pay")


def test_an_error_of_the_standard_library_keeps_its_attributes():
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("[1,")

    back = again(caught.value)

    assert type(back) is json.JSONDecodeError
    assert (back.pos, back.doc, back.lineno, str(back)) == (3, "[1,", 1, str(caught.value))


def test_a_class_that_cannot_be_found_has_a_stand_in_below_the_same_bases():
    class Declined(errors.PermanentError):
        pass

    back = again(Declined("no"))

    assert isinstance(back, errors.StepFailed)
    assert isinstance(back, errors.PermanentError)
    assert (back.step_id, back.kind, back.message) == ("pay", "Declined", "no")
