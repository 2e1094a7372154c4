"""What a step's function is, remembered: of this very function, and not of one that it was copied from."""

import functools
from typing import Any

from pgqrs.engine.definitions.handlers import shape_of


async def fetch() -> int:
    return 1


def test_a_shape_is_the_same_when_it_is_asked_for_again():
    assert shape_of(fetch) == (True, int)
    assert shape_of(fetch) == (True, int)


def test_a_wrapper_has_a_shape_of_its_own():
    shape_of(fetch)

    @functools.wraps(fetch)
    def plain():
        return 1

    assert shape_of(plain).is_async is False
    assert shape_of(fetch).is_async is True


def test_lambdas_and_methods_and_objects_have_shapes():
    class Caller:
        async def method(self) -> str:
            return ""

        def __call__(self):
            return 1

    assert shape_of(lambda: 1) == (False, Any)
    assert shape_of(Caller().method) == (True, str)
    assert shape_of(Caller()).is_async is False
    assert shape_of(functools.partial(fetch)).is_async is True
