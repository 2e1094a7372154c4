"""The kit for plain tests: the same verbs, without `await`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self, cast

from pgqrs.blocking import Blocking, _portal
from pgqrs.clock import ManualClock
from pgqrs.config import Config
from pgqrs.testing import assertions
from pgqrs.testing.kit import AsyncKit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgqrs.blocking import Store
    from pgqrs.testing.handle import RunHandle
    from pgqrs.testing.kit import Step


class Kit:
    """What the fixture `pgqrs` gives. See AsyncKit for its verbs."""

    def __init__(self, config: Config | None = None, *, clock: ManualClock | None = None) -> None:
        self._kit = self._make(config, clock)

    def _make(self, config: Config | None, clock: ManualClock | None) -> AsyncKit:
        return AsyncKit(config, clock=clock)

    @property
    def store(self) -> Store:
        """For all that the kit has no verb for, as `pgqrs.blocking` has it."""
        return cast("Store", Blocking(_portal.run(self._kit.open())))

    if TYPE_CHECKING:
        # The verbs of AsyncKit, without `await`; a test compares them. `__getattr__` would let every name pass.
        config: Config
        clock: ManualClock

        def close(self) -> None: ...

        def now(self) -> Any: ...

        def advance(self, seconds: float = 0, **parts: float) -> None: ...

        def serve(self, *given: Any) -> None: ...

        def trigger(self, workflow: Any, *args: Any, **kwargs: Any) -> RunHandle: ...

        def run(self, run_id: int) -> RunHandle: ...

        def runs(self, workflow: Any) -> list[RunHandle]: ...

        def drain(self, *, skip_time: bool = False) -> None: ...

        def refresh(self) -> None: ...

        def signal(self, run: RunHandle, name: str, data: Any = None, *, actor: str | None = None) -> None: ...

        def resume(
            self, run: RunHandle, *, step: str | None = None, data: Any = None, actor: str | None = None
        ) -> None: ...

        def cancel(self, run: RunHandle, *, reason: str | None = None) -> None: ...

        def restart(self, run: RunHandle) -> None: ...

        def retry_children(self, run: RunHandle, *, actor: str | None = None) -> list[RunHandle]: ...

        def export(self, run: RunHandle) -> dict[str, Any]: ...

        def fail_step(self, step: Step, error: BaseException | type[BaseException], *, times: int = 1) -> None: ...

        def stub_step(self, step: Step, value: Any, *, optional: bool = False) -> None: ...

        def assert_stubs_used(self) -> None: ...

        def assert_enqueued(
            self,
            queue: str | None = None,
            *,
            workflow: Any = None,
            matching: Any = assertions.ANYTHING,
            times: int = 1,
        ) -> None: ...

        def refute_enqueued(
            self, queue: str | None = None, *, workflow: Any = None, matching: Any = assertions.ANYTHING
        ) -> None: ...

        def assert_steps(self, run: RunHandle, expected: Iterable[str]) -> None: ...

        def assert_emitted(
            self,
            event_type: str,
            *,
            matching: Any = assertions.ANYTHING,
            run: RunHandle | None = None,
            times: int = 1,
        ) -> None: ...

    else:

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
                    # Without the frames of the loop's thread: the reader looks for the line of the test.
                    raise error.with_traceback(None) from None

            return call

    def __dir__(self) -> list[str]:
        return sorted({*dir(type(self)), *(name for name in dir(self._kit) if not name.startswith("_"))})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        self.close()
        if kind is None:
            self.assert_stubs_used()

    def __repr__(self) -> str:
        return f"<Kit at {self._kit.now():%Y-%m-%d %H:%M:%S}>"

    @staticmethod
    def closing(kit: AsyncKit) -> None:
        """Closes the kit of an async test from outside of its loop."""
        _portal.run(kit.close())
