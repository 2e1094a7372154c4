"""The kit for plain tests: the same verbs, without `await`."""

from __future__ import annotations

import inspect
from typing import Any, Self

from pgqrs.blocking import Blocking, _portal
from pgqrs.clock import ManualClock
from pgqrs.config import Config
from pgqrs.testing.kit import AsyncKit


class Kit:
    """What the fixture `pgqrs` gives. See AsyncKit for its verbs."""

    def __init__(self, config: Config | None = None, *, clock: ManualClock | None = None) -> None:
        self._kit = self._make(config, clock)

    def _make(self, config: Config | None, clock: ManualClock | None) -> AsyncKit:
        return AsyncKit(config, clock=clock)

    @property
    def store(self) -> Any:
        """For all that the kit has no verb for, as `pgqrs.blocking` has it."""
        return Blocking(_portal.run(self._kit.open()))

    def __getattr__(self, name: str) -> Any:
        __tracebackhide__ = True
        value = getattr(self._kit, name)
        if not inspect.iscoroutinefunction(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            try:
                return _portal.run(value(*args, **kwargs))
            except AssertionError as error:
                # Where it was raised, on the loop's thread, helps nobody: the test is the place.
                raise error.with_traceback(None) from None

        return call

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *(name for name in dir(self._kit) if not name.startswith("_"))})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Kit at {self._kit.now():%Y-%m-%d %H:%M:%S}>"

    @staticmethod
    def closing(kit: AsyncKit) -> None:
        """Closes the kit of an async test from outside of its loop."""
        _portal.run(kit.close())
