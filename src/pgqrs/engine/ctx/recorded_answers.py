"""The time and chance, as a handler asks for them: recorded, so that every pass gets the same."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from pgqrs.engine.replay.branches import StepCall, current_body
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.text import step_ids

T = TypeVar("T")


class RecordedAnswers:
    """The part of a context that answers what is another thing each time it is asked for."""

    _run_pass: RunPass

    def _step(self, call: StepCall) -> Coroutine[object, None, Any]:
        raise NotImplementedError

    def now(self) -> Coroutine[object, None, datetime]:
        """The database's time, recorded; in the body of a step, which is recorded as a whole, the time itself."""
        return self._answer(step_ids.NOW, self._run_pass.now, datetime)

    def uuid(self) -> Coroutine[object, None, uuid.UUID]:
        """A random UUID, recorded as `now` is."""
        return self._answer(step_ids.UUID, uuid.uuid4, uuid.UUID)

    def random(self) -> Coroutine[object, None, float]:
        """A random number from 0 to 1, recorded as `now` is."""
        return self._answer(step_ids.RANDOM, random.random, float)

    def _answer(self, name: str, function: Callable[[], T], kind: type[T]) -> Coroutine[object, None, T]:
        if current_body.get() is not None:
            return self._given(function())
        return self._step(StepCall(self._run_pass.place(name), _typed(function, kind), (), {}, None, None))

    def _given(self, value: T) -> Coroutine[object, None, T]:
        """What is known already, in the body of a step: the value itself where the code cannot await.

        That is in plain handlers, and in the thread of a plain step.
        """
        has_loop = asyncio._get_running_loop() is not None  # noqa: SLF001 - the other one raises where there is none
        return _done(value) if has_loop and self._run_pass.handler.is_async else value  # type: ignore[return-value]


async def _done(value: T) -> T:
    """For a caller that awaits what is known already."""
    return value


def _typed(function: Callable[[], T], kind: type[T]) -> Callable[[], Coroutine[Any, Any, T]]:
    """As an async function whose annotation brings the type back from the record."""

    async def answer() -> T:
        return function()

    answer.__annotations__["return"] = kind
    return answer
