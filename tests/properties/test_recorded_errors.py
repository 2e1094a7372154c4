"""Generated errors through their records: what comes back stays as it is from then on, and is what went in."""

import os
from types import GetSetDescriptorType, MemberDescriptorType

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pgqrs.engine.recorded_errors import Program, raised_again, record_of
from pgqrs.engine.recorded_errors.builtin import _descriptors, builtin_base
from rig import raisables
from rig.lengths import by_length
from rig.raisables import BUILTINS, Errors, observed

COUNT = 20_000 if os.environ.get("PGQRS_SOAK") else by_length(short=100, long=400)
PROGRAM = Program.of(raisables.handler)


def again(error):
    return raised_again(record_of(error, program=PROGRAM), program=PROGRAM, step_id="pay")


@pytest.mark.timeout(900)
@settings(max_examples=COUNT, deadline=None, database=None)
@given(st.integers(0, 2**32))
def test_what_can_be_recorded_comes_back_equal_in_every_observable_respect(seed):
    error = Errors(seed, odd=False).one(2)
    assume(not isinstance(error, StopIteration | StopAsyncIteration))

    assert observed(again(error)) == observed(error)


@pytest.mark.timeout(900)
@settings(max_examples=COUNT, deadline=None, database=None)
@given(st.integers(0, 2**32))
def test_whatever_came_back_once_comes_back_the_same_each_time(seed):
    first = again(Errors(seed, odd=True).one())

    assert observed(again(first)) == observed(first)


@pytest.mark.timeout(900)
@settings(max_examples=COUNT, deadline=None, database=None)
@given(st.integers(0, 2**32))
def test_whatever_is_raised_can_be_caught_by_its_builtin_class_afterwards(seed):
    error = Errors(seed, odd=True).one()
    assume(not isinstance(error, StopIteration | StopAsyncIteration))

    back = again(error)

    assert isinstance(back, builtin_base(type(error)))
    assert isinstance(back, type(error)) or type(error).__name__ == "Local"


def test_every_field_that_python_keeps_in_c_is_recorded():
    kept_by_all = {
        "args",
        "__dict__",
        "__traceback__",
        "__context__",
        "__cause__",
        "__suppress_context__",
        "__weakref__",
    }
    descriptors = (MemberDescriptorType, GetSetDescriptorType)
    group = {"message", "exceptions"}
    for kind in BUILTINS:
        members = {name for each in kind.__mro__ for name, it in vars(each).items() if type(it) in descriptors}

        assert members - kept_by_all - {"__class__"} - group == set(_descriptors(kind)), kind
