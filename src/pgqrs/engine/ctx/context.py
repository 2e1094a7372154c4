"""What a handler is given: steps, waits, children; awaited in async handlers, plain in a thread."""

# Overloads overlap on purpose: the first that fits is the one. Those with `type: type[object]` are for mypy: without
# them it finds no fault with `n: int = await ctx.wait_for(name, type=Order)`, as the next one gives Any.
# mypy: disable-error-code="overload-overlap,overload-cannot-match"
from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

from pgqrs.clock import microseconds
from pgqrs.db.database import Transaction
from pgqrs.db.runs.history import Emission
from pgqrs.db.tables.runs import origin
from pgqrs.engine.ctx import map_children, race, wait
from pgqrs.engine.ctx.children import ChildRun, spawn, workflow_name
from pgqrs.engine.ctx.emissions import emit
from pgqrs.engine.ctx.progress import Progress
from pgqrs.engine.ctx.race import First
from pgqrs.engine.ctx.recorded_answers import RecordedAnswers
from pgqrs.engine.ctx.run_log import RunLog
from pgqrs.engine.ctx.steps import check_step_call, step
from pgqrs.engine.ctx.transactions import transaction
from pgqrs.engine.recorded_errors import storable
from pgqrs.engine.replay.branches import BranchPlace, StepCall, current_body
from pgqrs.engine.replay.refusals import refuse_in_body
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.errors import ConfigError
from pgqrs.retry import RetryPolicy, checked_policy
from pgqrs.serialization import decode, encode, naming
from pgqrs.text import step_ids
from pgqrs.text.durations import checked_seconds
from pgqrs.text.names import checked_event_type, checked_step_name

if TYPE_CHECKING:
    # What a child returned comes back as plain data: of these types, and without those of your own.
    from pgqrs.types import Child as ChildOf
    from pgqrs.types import PlainData, Returning

# Verbs return `Coroutine[object, None, T]`: with Any in their places, mypy gives up on `gather` of several.
P = ParamSpec("P")
T = TypeVar("T")
Plain = TypeVar("Plain", bound="PlainData")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
T5 = TypeVar("T5")


class Context(RecordedAnswers):
    """An async handler's context. A step's id is taken when `step` is *called*, its body runs when it is awaited."""

    __pgqrs_context__ = True

    def __init__(self, run_pass: RunPass) -> None:
        self._run_pass = run_pass
        self.run_id: int = run_pass.claim.run_id
        self.workflow: str = run_pass.handler.name
        self.attempt: int = run_pass.claim.lease.attempts

    @functools.cached_property
    def log(self) -> RunLog:
        """Adds run, workflow, attempt and step to what is logged, and says nothing twice when the run is replayed."""
        return RunLog(self._run_pass)

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this run, and no other run's anywhere: for effects outside the database."""
        # Its number alone is given again after a backup is restored, and is another run's in another database.
        return f"run-{self.run_id}-{microseconds(self._run_pass.claim.created_at):x}"

    @property
    def attributes(self) -> dict[str, Any]:
        """What the run was triggered with for people and searches; a scheduled run's `schedule` and `slot`."""
        text = self._run_pass.claim.attributes
        return {} if text is None else dict(decode(text) or {})

    @property
    def cancelled(self) -> bool:
        """True when the run was cancelled, or another worker holds it by now: stop what you are doing."""
        return self._run_pass.lease.is_lost

    @property
    def step_key(self) -> str:
        """In the body of a step: the same in every attempt of that step, and no other step's anywhere.

        Give it to a service outside as the idempotency key of what the step does there.
        """
        body = current_body.get()
        if body is None:
            raise ConfigError(
                "ctx.step_key is for the body of a step", hint="in the workflow itself use ctx.idempotency_key"
            )
        return f"{self.idempotency_key}-{body[0].step_id}"

    # -- steps -------------------------------------------------------------------------------------------

    # Beside a ParamSpec there is no room for keywords: with `retry` or `timeout`, the arguments are not checked.
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        retry: RetryPolicy | None,
        timeout: float | None = ...,
        **kwargs: Any,
    ) -> Coroutine[object, None, T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        retry: RetryPolicy | None = ...,
        timeout: float | None,
        **kwargs: Any,
    ) -> Coroutine[object, None, T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        retry: RetryPolicy | None,
        timeout: float | None = ...,
        **kwargs: Any,
    ) -> Coroutine[object, None, T]: ...
    @overload
    def step(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        retry: RetryPolicy | None = ...,
        timeout: float | None,
        **kwargs: Any,
    ) -> Coroutine[object, None, T]: ...
    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[object, None, T]: ...
    @overload
    def step(
        self, name: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[object, None, T]: ...
    def step(  # type: ignore[misc] # for mypy, a ParamSpec's arguments are more than `*args, **kwargs` take
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        retry: RetryPolicy | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> Coroutine[object, None, Any]:
        """Runs `function` once and remembers what it returned or raised: a replay gets that without running it.

        Async functions run on the loop, plain ones in a thread. The value or the error is the recorded one, so that
        the first run and a replay can never differ. With a `retry` policy the body runs at most `max_attempts` times
        in the life of the run; without one, at most once in each attempt of the run.
        """
        check_step_call("step", name, function)
        run_pass = self._run_pass
        seconds = None if timeout is None else checked_seconds(timeout, "timeout of a step", allow_zero=False)
        policy = None if retry is None else checked_policy("ctx.step", retry)
        place = run_pass.place(checked_step_name(name), does=True)
        return self._step(StepCall(place, function, args, kwargs, policy, seconds))

    def _step(self, call: StepCall) -> Coroutine[object, None, Any]:
        asked = step(self._run_pass, call, self._seen)
        self._run_pass.unawaited.add(call.place.step_id, asked)
        return asked

    def _seen(self, _step_id: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function that is called as the body of a step; the test kit looks in here."""
        return function

    def transaction(
        self, name: str, work: Callable[[Transaction], Coroutine[Any, Any, T]]
    ) -> Coroutine[object, None, T]:
        """A step whose effect is in this database: `await work(tx)` and its record commit together, exactly once.

        `work` may await nothing but `tx`: on SQLite it runs in the writer's thread, and nothing else is written
        meanwhile.
        """
        check_step_call("transaction", name, work)
        place = self._run_pass.place(checked_step_name(name), does=True)
        asked = transaction(self._run_pass, place, work, self._seen)
        self._run_pass.unawaited.add(place.step_id, asked)
        return asked

    # -- events for others -------------------------------------------------------------------------------

    def emit(self, event_type: str, data: Any = None) -> Coroutine[object, None, None]:
        """Publishes an event through the outbox, once however often this is replayed.

        In the body of a step it goes into the outbox with the step's checkpoint; elsewhere it is a step of its own.
        """
        self._run_pass.check_usable()
        name = checked_event_type(event_type)
        with naming(f"the data of event {name!r}"):
            payload = encode(data, max_bytes=self._run_pass.config.max_payload_bytes)
        emission = Emission(self.run_id, name, payload)
        body = current_body.get()
        if body is not None:
            body[2].append(emission)
            return self._given(None)
        place = self._run_pass.place(step_ids.emit(name), does=True)
        asked = emit(self._run_pass, place, emission)
        self._run_pass.unawaited.add(place.step_id, asked)
        return asked

    # -- waiting -----------------------------------------------------------------------------------------

    def sleep(self, seconds: float | timedelta) -> Coroutine[object, None, None]:
        """Wakes at the time that was fixed when it was first asked for; holds nothing meanwhile."""
        length = timedelta(seconds=checked_seconds(seconds, "ctx.sleep"))
        return wait.sleep(self._run_pass, self._run_pass.place(step_ids.SLEEP), length)

    @overload
    def pause(self, message: str = ..., *, type: type[T] | Callable[..., T]) -> Coroutine[object, None, T]: ...
    @overload
    def pause(self, message: str = ..., *, type: type[object]) -> Coroutine[object, None, object]: ...
    @overload
    def pause(self, message: str = ..., *, type: Any = ...) -> Coroutine[object, None, Any]: ...
    def pause(self, message: str = "resume", *, type: Any = Any) -> Coroutine[object, None, Any]:  # noqa: A002 - as in wait_for
        """Waits until a person resumes this run; gives the data that the run is resumed with.

        With `type=pgqrs.Answer`, or `pgqrs.Answer[T]`, also who has resumed it.
        """
        if not isinstance(message, str):
            raise ConfigError(f"`pause(message)` must be a string, got {message!r}")
        return wait.pause(self._run_pass, self._run_pass.place(step_ids.PAUSE), storable(message), as_type=type)

    @overload
    def wait_for(
        self, name: str, *, timeout: float | timedelta | None = ..., type: type[T] | Callable[..., T]
    ) -> Coroutine[object, None, T]: ...
    @overload
    def wait_for(
        self, name: str, *, timeout: float | timedelta | None = ..., type: type[object]
    ) -> Coroutine[object, None, object]: ...
    @overload
    def wait_for(
        self, name: str, *, timeout: float | timedelta | None = ..., type: Any = ...
    ) -> Coroutine[object, None, Any]: ...
    def wait_for(
        self,
        name: str,
        *,
        timeout: float | timedelta | None = None,
        type: Any = Any,  # noqa: A002 - reads well where it is called: wait_for("go", type=Answer)
    ) -> Coroutine[object, None, Any]:
        """The oldest unread signal of that name, sent before or after this call; WaitTimeout after `timeout`.

        With `type=pgqrs.Answer`, or `pgqrs.Answer[T]`, also who has sent it.
        """
        seconds = None if timeout is None else checked_seconds(timeout, "timeout of ctx.wait_for")
        place = self._run_pass.place(step_ids.wait_for(checked_step_name(name)))
        return wait.wait_for(self._run_pass, place, name, seconds=seconds, as_type=type)

    def first(self, *waits: Awaitable[Any], **named: Awaitable[Any]) -> Coroutine[object, None, First]:
        """The first of several waits to end, as `(key, value)`; its error is raised. The winner is recorded.

        Takes what `sleep`, `wait_for`, `pause` and `child.result()` return; `key` is the number of the winner, or its
        name. By the database's clock, and for as long as it takes: the run holds nothing meanwhile.
        """
        given = race.waiters(waits, named)
        return race.first(self._run_pass, self._run_pass.place(step_ids.FIRST), given)

    # -- children ----------------------------------------------------------------------------------------

    @overload
    def spawn(self, workflow: Returning[Plain], params: Any = ...) -> Coroutine[object, None, ChildOf[Plain]]: ...
    @overload
    def spawn(self, workflow: Returning[Any] | str, params: Any = ...) -> Coroutine[object, None, ChildOf[Any]]: ...
    def spawn(self, workflow: Any, params: Any = None) -> Coroutine[object, None, Any]:
        """Starts a child run, once however often this is replayed; `await child.result()` waits for it."""
        name = workflow_name(workflow)
        place = self._run_pass.place(step_ids.SPAWN, does=True)
        asked = self._spawn_one(place, name, params)
        self._run_pass.unawaited.add(place.step_id, asked)
        return asked

    async def _spawn_one(self, place: BranchPlace, workflow: str, params: Any) -> ChildRun:
        [child] = await spawn(self._run_pass, place, workflow, [params])
        return child

    @overload
    def map(
        self,
        workflow: Returning[Plain],
        items: Iterable[Any],
        *,
        limit: int | None = ...,
        return_exceptions: Literal[False] = ...,
    ) -> Coroutine[object, None, list[Plain]]: ...
    @overload
    def map(
        self,
        workflow: Returning[Plain],
        items: Iterable[Any],
        *,
        limit: int | None = ...,
        return_exceptions: Literal[True],
    ) -> Coroutine[object, None, list[Plain | BaseException]]: ...
    @overload
    def map(
        self,
        workflow: Returning[Any] | str,
        items: Iterable[Any],
        *,
        limit: int | None = ...,
        return_exceptions: bool = ...,
    ) -> Coroutine[object, None, list[Any]]: ...
    def map(
        self, workflow: Any, items: Iterable[Any], *, limit: int | None = None, return_exceptions: bool = False
    ) -> Coroutine[object, None, list[Any]]:
        """One child run per item, at most `limit` of them at a time; their results in the order of the items.

        When one ends, the next begins. All of them end before the first error is raised; with `return_exceptions`
        errors are among the results instead.
        """
        map_children.check_limit(limit)
        self._run_pass.check_usable()
        refuse_in_body("map")
        asked = self._map(workflow_name(workflow), list(items), limit, return_exceptions)
        self._run_pass.unawaited.add("map", asked)
        return asked

    async def _map(self, workflow: str, items: list[Any], limit: int | None, return_exceptions: bool) -> list[Any]:  # noqa: FBT001 - the parts of one call
        return await map_children.map_(self._run_pass, workflow, items, limit, return_exceptions=return_exceptions)

    # A list, said to be a tuple where the values are of several types: as type checkers know `asyncio.gather`.
    @overload
    def gather(
        self, first: Awaitable[T1], second: Awaitable[T2], /, *, return_exceptions: Literal[False] = ...
    ) -> asyncio.Future[tuple[T1, T2]]: ...
    @overload
    def gather(
        self,
        first: Awaitable[T1],
        second: Awaitable[T2],
        third: Awaitable[T3],
        /,
        *,
        return_exceptions: Literal[False] = ...,
    ) -> asyncio.Future[tuple[T1, T2, T3]]: ...
    @overload
    def gather(
        self,
        first: Awaitable[T1],
        second: Awaitable[T2],
        third: Awaitable[T3],
        fourth: Awaitable[T4],
        /,
        *,
        return_exceptions: Literal[False] = ...,
    ) -> asyncio.Future[tuple[T1, T2, T3, T4]]: ...
    @overload
    def gather(
        self,
        first: Awaitable[T1],
        second: Awaitable[T2],
        third: Awaitable[T3],
        fourth: Awaitable[T4],
        fifth: Awaitable[T5],
        /,
        *,
        return_exceptions: Literal[False] = ...,
    ) -> asyncio.Future[tuple[T1, T2, T3, T4, T5]]: ...
    @overload
    def gather(
        self, *awaitables: Awaitable[T], return_exceptions: Literal[False] = ...
    ) -> asyncio.Future[list[T]]: ...
    @overload
    def gather(
        self, *awaitables: Awaitable[T], return_exceptions: bool
    ) -> asyncio.Future[list[T | BaseException]]: ...
    def gather(self, *awaitables: Awaitable[Any], return_exceptions: bool = False) -> asyncio.Future[Any]:
        """As `asyncio.gather`."""
        return asyncio.gather(*awaitables, return_exceptions=return_exceptions)

    def progress(self, done: int, total: int | None = None, note: str = "") -> Coroutine[object, None, None]:
        """Shows people how far it is (`run.progress`). Nothing depends on it; a replay does not show it again."""
        run_pass = self._run_pass
        text = encode({**origin(run_pass.claim.headers), "done": done, "total": total, "note": note})
        if current_body.get() is None or (run_pass.handler.is_async and run_pass.is_on_its_loop()):
            asked = self._progress.show(text)
            run_pass.unawaited.add("progress", asked)
            return asked
        self._progress.show_soon(text)
        return self._given(None)

    @functools.cached_property
    def _progress(self) -> Progress:
        return Progress(self._run_pass)
