"""Step bodies as a test sees them: counted, made to fail, replaced; and none runs for a worker that was killed.

The handlers of a kit's worker are given a context of their own class, so nothing is patched and other workers of the
process notice nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pgqrs.engine.ctx.context import Context
from pgqrs.engine.ctx.steps import small_input
from pgqrs.engine.ctx.sync_context import SyncContext
from pgqrs.engine.definitions.handlers import Handler, shape_of
from pgqrs.engine.replay.branches import BranchPlace, current_context
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.unwinding import EngineSignal
from pgqrs.retry import RetryPolicy
from pgqrs.text.step_ids import branch_of, name_of
from pgqrs.types import StepStatus

# A replay answers these from the record.
DONE = frozenset({StepStatus.SUCCESS, StepStatus.ERROR})


class Killed(EngineSignal):
    """The worker is dead: its code goes no further. No `except Exception` stops it."""


class BodyWatcher(Protocol):
    """Who is asked about each body, and told of each workflow that a handler is about to start."""

    def body(self, step: BodyCall) -> Callable[..., Any]:
        """What is to be called in the place of the step's function."""
        ...

    async def met(self, workflow: str) -> None: ...

    @property
    def is_dead(self) -> bool:
        """True when the worker that it watches was killed."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class BodyCall:
    """One step body that is about to run."""

    run_id: int
    workflow: str
    step_id: str
    function: Callable[..., Any]

    @property
    def name(self) -> str:
        """As the code calls it: without the branch, and without the number of its repetition."""
        return name_of(self.step_id)

    def is_of(self, step: str | Callable[..., Any]) -> bool:
        if isinstance(step, str):
            return step in (self.name, self.step_id)
        return inspect.unwrap(self.function) is inspect.unwrap(step)


def watched(handler: Handler, watcher: BodyWatcher) -> Handler:
    """The same workflow, its steps seen by the watcher."""
    function = _Watched(handler, watcher)
    return dataclasses.replace(handler, function=function, takes_context=True)


class _Watched:
    """The handler's function, called with a context that the watcher looks through."""

    def __init__(self, handler: Handler, watcher: BodyWatcher) -> None:
        self._handler = handler
        self._watcher = watcher
        # By this a recorded error finds its class again: in the program of the handler, not in ours.
        self.__wrapped__ = handler.function

    def __call__(self, context: Any, **arguments: Any) -> Any:
        if isinstance(context, SyncContext):
            inner = context._context  # noqa: SLF001 - the other half of it
            context = _WatchedPlainContext(
                _WatchedContext(inner, self._watcher),
                context._loop,  # noqa: SLF001 - as above
                self._watcher,
            )
        else:
            context = _WatchedContext(context, self._watcher)
        # Steps that are called without a context find it here. Whoever called us sets it back.
        current_context.set(context)
        given = (context,) if self._handler.takes_context else ()
        return self._handler.function(*given, **arguments)


class _WatchedContext(Context):
    def __init__(self, context: Context, watcher: BodyWatcher) -> None:
        super().__init__(context._run_pass)  # noqa: SLF001 - of our own class
        self._watcher = watcher

    def step(  # type: ignore[override] # callers know it as a Context, which has the overloads
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Coroutine[object, None, Any]:
        asked = super().step(name, function, *args, retry=retry, timeout=timeout, **kwargs)
        if isinstance(self._run_pass, Observed):
            self._run_pass.given(small_input(args, kwargs))
        return asked

    def _seen(self, step_id: str, function: Callable[..., Any]) -> Callable[..., Any]:
        return self._watcher.body(BodyCall(self.run_id, self.workflow, step_id, function))

    def progress(self, done: int, total: int | None = None, note: str = "") -> Coroutine[object, None, None]:
        if isinstance(self._run_pass, Observed):
            # There is no database, and no person to show it to.
            return _nothing()
        return super().progress(done, total, note)

    async def _spawn_one(self, place: BranchPlace, workflow: str, params: Any) -> Any:
        await self._watcher.met(workflow)
        return await super()._spawn_one(place, workflow, params)

    async def _map(self, workflow: str, items: list[Any], limit: int | None, return_exceptions: bool) -> list[Any]:  # noqa: FBT001 - as in the class above
        await self._watcher.met(workflow)
        return await super()._map(workflow, items, limit, return_exceptions)


async def _nothing() -> None:
    """Stand for what is not done."""


class _WatchedPlainContext(SyncContext):
    """A plain handler of a dead worker learns it at its next verb, by an error that it cannot mistake for its own."""

    def __init__(self, context: _WatchedContext, loop: asyncio.AbstractEventLoop, watcher: BodyWatcher) -> None:
        super().__init__(context, loop)
        self._watcher = watcher

    def __getattr__(self, name: str) -> Any:
        verb = super().__getattr__(name)  # type: ignore[misc] # type checkers do not see it

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return verb(*args, **kwargs)
            except Exception:
                if self._watcher.is_dead:
                    raise Killed from None
                raise

        return call


class StepRequest(NamedTuple):
    """A step that a handler asked for, and what with."""

    step_id: str
    ordinal: int
    given: str | None = None


class Observed(RunPass):
    """A pass that remembers what it was asked for, in order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.asked: list[StepRequest] = []

    def place(self, name: str, *, does: bool = False) -> BranchPlace:
        place = super().place(name, does=does)
        self.asked.append(StepRequest(*place))
        return place

    def given(self, text: str | None) -> None:
        """What the last one is called with."""
        self.asked[-1] = self.asked[-1]._replace(given=text)

    def not_asked_for(self) -> str | None:
        """Return the first recorded step that the code, now at its end, has not asked for.

        Branches that are still at work might have. So might those that an error has cancelled: where one is recorded,
        only the handler's own branch counts.
        """
        asked = {each.step_id for each in self.asked}
        # The handler itself is at its end.
        at_work = [branch.path for branch in self.branches.live if branch.path]
        has_failed = any(step.status is StepStatus.ERROR for step in self.claim.steps.values())
        for step in sorted(self.claim.steps.values(), key=lambda step: step.ordinal):
            path = branch_of(step.step_id)
            excused = path and (has_failed or any(f"{path}.".startswith(f"{each}.") for each in at_work))
            if step.step_id not in asked and not excused:
                return step.step_id
        return None


class Interventions:
    """What a test has arranged for the bodies of steps."""

    def __init__(self) -> None:
        self._stubs: list[_Stub] = []
        # The names of the steps whose bodies were to run.
        self._ran: dict[str, None] = {}
        self._failures: list[_Failure] = []

    def stub(self, step: str | Callable[..., Any], value: Any, *, optional: bool) -> None:
        # The newest first: a test may change its mind.
        self._stubs.insert(0, _Stub(step, value, optional))

    def assert_all_used(self) -> None:
        """Raise AssertionError for the stubs of steps that never ran: the name of one may be misspelt."""
        __tracebackhide__ = True
        unused = [each.name for each in self._stubs if not each.is_used and not each.optional]
        if not unused:
            return
        told = ", ".join(f"stub_step({name}, ...)" for name in reversed(unused))
        raise AssertionError(
            f"{told} {'was' if len(unused) == 1 else 'were'} never used: no such step ran. "
            f"Steps that ran: {', '.join(self._ran) or 'none'}. Say optional=True if it need not run"
        )

    def fail(self, step: str | Callable[..., Any], error: BaseException | type[BaseException], times: int) -> None:
        self._failures.append(_Failure(step, error, times))

    def around(self, body: BodyCall) -> Callable[..., Any]:
        """What runs in the place of the body: its own function, unless something was arranged."""
        self._ran[body.name] = None
        stubs = [stub for stub in self._stubs if body.is_of(stub.step)]
        for stub in stubs:
            # Also where a failure or a newer stub comes first: its step runs.
            stub.is_used = True
        for failure in self._failures:
            if failure.left > 0 and body.is_of(failure.step):
                failure.left -= 1
                return instead_of(body.function, _raiser(failure.error))
        if stubs:
            value = stubs[0].value
            return instead_of(body.function, value if callable(value) else lambda *_, **__: value)
        return body.function


@dataclasses.dataclass(slots=True)
class _Stub:
    step: str | Callable[..., Any]
    value: Any
    optional: bool
    is_used: bool = False

    @property
    def name(self) -> str:
        return repr(self.step) if isinstance(self.step, str) else getattr(self.step, "__name__", repr(self.step))


@dataclasses.dataclass(slots=True)
class _Failure:
    step: str | Callable[..., Any]
    error: BaseException | type[BaseException]
    left: int


def _raiser(error: BaseException | type[BaseException]) -> Callable[..., Any]:
    def fails(*_args: Any, **_kwargs: Any) -> Any:
        raise error

    return fails


def instead_of(function: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """The replacement in the shape of the function: awaited if that is, and with its annotations."""
    if not shape_of(function).is_async:

        def here(*args: Any, **kwargs: Any) -> Any:
            return replacement(*args, **kwargs)

        return functools.wraps(function)(here)

    async def there(*args: Any, **kwargs: Any) -> Any:
        result = replacement(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    return functools.wraps(function)(there)


class Ledger:
    """How often each body has begun, in a file: it outlives whoever wrote into it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()

    def write(self, name: str) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            # One write: what is killed in the middle has written all of it or nothing.
            os.write(file, f"{name}\n".encode())
        finally:
            os.close(file)

    def read(self) -> Counter[str]:
        return Counter(self._path.read_text(encoding="utf-8").splitlines())
