"""A program executed in memory, without the engine: one schedule of what the oracle asks.

One pass is enough here: waits take virtual time, and nothing is ever interrupted. Only an error that leaves the
handler begins another one, in which completed steps and errors that were caught stay as they are, and the steps whose
error left the handler run again.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from pgqrs import errors as ours
from proof.programs import errors, virtual
from proof.programs.answers import Ambiguous, Answer, Life, Outcome
from proof.programs.errors import by_engine
from proof.programs.grammar import (
    Ask,
    Body,
    Child,
    Doing,
    Emit,
    Fails,
    First,
    Gather,
    Gives,
    Hangs,
    Map,
    Pause,
    Program,
    Progress,
    Sleep,
    Step,
    Transact,
    Wait,
)
from proof.programs.logs import ANY, Effect, Ledger, Pass
from proof.programs.walker import Frame, Walk

# What a run that was started by another may be attempted: the setting of the store.
CHILD_ATTEMPTS = 4


# What a handler may do about an error; it may wait, and ask for the time, without doing anything about it.
_EFFECTS = (Step, Transact, Emit, Child, Map)


class _Record(NamedTuple):
    value: Any = None
    error: Callable[[], Exception] | None = None


class _Failed(NamedTuple):
    key: str
    error: BaseException


class Memory:
    """One execution under one schedule: 0 to 2 are fixed, any other is chance."""

    def __init__(
        self,
        schedule: int,
        *,
        restarted: bool = False,
        more_attempts: int = 0,
        lost: frozenset[str] = frozenset(),
    ) -> None:
        # The names of the bodies whose first result is lost.
        self.lost = lost
        self._rng = random.Random(schedule)
        self._schedule = schedule
        self._restarted = restarted
        self._more_attempts = more_attempts
        self.healed = False
        self.ledger = Ledger()
        self.lives: dict[str, Life] = {}
        self.emitted: dict[str, bool] = {}
        self.rows: dict[str, bool] = {}
        self.races = False

    def ask(self, program: Program) -> Answer:
        return virtual.run(self._ask(program))  # type: ignore[no-any-return]

    async def _ask(self, program: Program) -> Answer:
        run = _Run(self, program, "", program.attempts + self._more_attempts)
        outcome = await run.live()
        if self._restarted and outcome.status == "ERROR":
            self.healed = True
            outcome = await run.live_again()
        await run.outlived()
        if self.races:
            raise Ambiguous("two statements have the same step id, or one has two")
        required = frozenset(run.known)
        return Answer(
            outcome,
            self.lives,
            self.ledger.effects,
            dict(self.ledger.counts()),
            required,
            {key: key in required for key in self.emitted},
            {key: key in required for key in self.rows},
        )

    async def pass_time(self) -> None:
        """As long as a body takes in this schedule, or a wait more than it must."""
        match self._schedule:
            case 0:
                seconds: float | None = 0.0
            case 1:
                seconds = 0.01
            case 2:
                # As in a replay: what is recorded is there at once, and nothing else gets its turn meanwhile.
                seconds = None
            case _:
                # Longer than a lease, than most sleeps, than all of them.
                seconds = self._rng.choice([None, 0.0, 0.01, 0.4, 45.0, 4500.0])
        if seconds is not None:
            await asyncio.sleep(seconds)


class _Run:
    """One run with all its attempts."""

    def __init__(self, oracle: Memory, program: Program, label: str, attempts: int) -> None:
        self.oracle = oracle
        self.program = program
        self.label = label
        self.records: dict[str, _Record] = {}
        # Steps with a policy that is used up: it holds over all attempts of the run.
        self.final: set[str] = set()
        self.failed: list[_Failed] = []
        # Errors in whose `except` or `finally` this pass has done something.
        self.handled: list[BaseException] = []
        # Errors of branches of which one was raised in the place of all of them.
        self.beside: list[list[BaseException]] = []
        # By id: the key of the step that has it. By key: the branch in which it was first asked for.
        self.ids: dict[str, str] = {}
        self.paths: dict[str, str] = {}
        self.children: dict[str, _Run] = {}
        self.known: set[str] = set()
        self.task: asyncio.Task[Outcome] | None = None
        self._attempts = attempts
        self._life = oracle.lives.setdefault(label, Life())
        self._reopened: set[str] = set()
        self.waiting = asyncio.Event()
        self.cancelled = False

    async def waits(self) -> bool:
        """True when it waits for what never comes; False when it has ended before."""
        assert self.task is not None
        waiting = asyncio.create_task(self.waiting.wait())
        await asyncio.wait([self.task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return not self.task.done()

    async def outlived(self) -> None:
        """Until its children have come to their ends, too, but for those that wait for what never comes."""
        for child in list(self.children.values()):
            if not child.cancelled:
                await child.waits()
            await child.outlived()

    async def live(self) -> Outcome:
        for attempt in range(1, self._attempts + 1):
            try:
                result = await self._pass()
            except Exception as error:  # noqa: BLE001 - a handler may raise anything
                left = self._left(error)
                # A step whose policy is used up fails again in every attempt of the run.
                is_final = errors.is_permanent(error) or left & self.final
                if is_final or attempt == self._attempts or self._is_compensated(error):
                    self._reopened = left
                    return self._ended(Outcome("ERROR", error=_line(error)))
                self._reopen(left)
                await asyncio.sleep(2)
                continue
            return self._ended(Outcome("SUCCESS", result))
        raise AssertionError("the last attempt decides")

    async def live_again(self) -> Outcome:
        """After a restart."""
        self._reopen(self._reopened)
        self.final -= self._reopened
        return await self.live()

    def _ended(self, outcome: Outcome) -> Outcome:
        self._life.outcome = outcome
        return outcome

    def _reopen(self, keys: set[str]) -> None:
        for key in keys:
            self.records.pop(key, None)

    def _is_compensated(self, error: BaseException) -> bool:
        """True when the handler did something about the error in its `except` or `finally`, and raised it then."""
        if errors.is_transient(error):
            return False
        of_steps = {id(each.error) for each in self.failed}
        left = _links(error, of_steps)
        return any(_links(handled, of_steps) & left for handled in self.handled)

    def _left(self, error: BaseException) -> set[str]:
        """The steps whose error has left the handler."""
        of_steps = {id(each.error) for each in self.failed}
        found = _sources(error, of_steps)
        for together in self.beside:
            parts = set().union(*(_sources(each, of_steps) for each in together))
            found |= parts if parts & found else set()
        return {each.key for each in self.failed if id(each.error) in found}

    async def _pass(self) -> Any:
        log = Pass()
        walk = Walk(self.program, _Verbs(self), log, self.label)
        self.failed.clear()
        self.handled.clear()
        self.beside.clear()
        self._life.passes.append(log)
        self._life.joined.append(walk.joined)
        try:
            result = await walk.run()
            log.end = "returned"
        except Exception:
            log.end = "raised"
            raise
        finally:
            self.known |= walk.main.known
            for task in walk.loose:
                task.cancel()
            await asyncio.gather(*walk.loose, return_exceptions=True)
        return result

    def key(self, key: str) -> str:
        return f"{self.label}:{key}"


class _Verbs:
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._oracle = run.oracle

    def chance(self) -> bool:
        return True

    def is_leaving(self) -> bool:
        return False

    async def gather(self, branches: list[Callable[[], Coroutine[Any, Any, Any]]], node: Gather) -> list[Any]:
        if self._run.program.plain:
            # Side by side in threads: the first error, by their order, when all have come to their end.
            results = await asyncio.gather(*(branch() for branch in branches), return_exceptions=True)
            wrong = [result for result in results if isinstance(result, BaseException)]
            if wrong and not node.return_exceptions:
                self._run.beside.append(wrong)
                raise wrong[0]
            return results
        return await asyncio.gather(*(branch() for branch in branches), return_exceptions=node.return_exceptions)

    async def do(self, node: Doing, key: str, frame: Frame) -> Any:
        recorded = self._run.records.get(key)
        self._identify(node, key, frame)
        if isinstance(node, _EFFECTS):
            self._run.handled += frame.handling[-1:]
        if recorded is not None:
            if recorded.error is None:
                return recorded.value
            raise self._failed(key, recorded.error())
        return await getattr(self, f"_{type(node).__name__.lower()}")(node, key, frame)

    def _identify(self, node: Doing, key: str, frame: Frame) -> None:
        """A step's id is its name and its number in the branch: after a failure was healed another may have it.

        And it may have another one itself: where an attempt goes another way, and makes more tasks on it, the
        branches that follow have other numbers. By these they are known to the engine, whatever they are here.
        """
        if not isinstance(node, Progress | Ask | Sleep) and self._run.paths.setdefault(key, frame.path) != frame.path:
            self._oracle.races = True
        if not isinstance(node, Step | Transact):
            return
        called = node.called or key
        count = frame.counts[called] = frame.counts.get(called, 0) + 1
        step_id = f"{called}#{count}@{frame.path}"
        if self._run.ids.setdefault(step_id, key) != key:
            self._oracle.races = True

    async def _emit(self, _node: Emit, key: str, frame: Frame) -> None:
        await self._oracle.pass_time()
        self._emitted(key, frame)

    async def _progress(self, _node: Progress, _key: str, _frame: Frame) -> None:
        """For people; nothing depends on it."""

    async def _ask(self, _node: Ask, _key: str, _frame: Frame) -> str:
        return ANY

    async def _sleep(self, node: Sleep, _key: str, _frame: Frame) -> None:
        await asyncio.sleep(node.seconds)
        await self._oracle.pass_time()

    async def _first(self, node: First, key: str, _frame: Frame) -> list[Any]:
        await self._oracle.pass_time()
        return self._recorded(key, [node.winner, node.value])  # type: ignore[no-any-return]

    # -- bodies ------------------------------------------------------------------------------------------

    def _begin(self, key: str, frame: Frame) -> int:
        full = self._run.key(key)
        number = self._oracle.ledger.begin(Effect(full, f"{self._run.label}:{frame.path}", frozenset(frame.known)))
        frame.known.add(full)
        return number + (key.partition("[")[0] in self._oracle.lost)

    async def _step(self, node: Step, key: str, frame: Frame) -> Any:
        body = node.body
        for tried in itertools.count(1):
            number = self._begin(key, frame)
            await self._oracle.pass_time()
            error = failure(body, number, healed=self._oracle.healed)
            if error is None:
                if node.emits:
                    self._emitted(key, frame)
                return self._recorded(key, body.value)
            if tried >= node.retry or isinstance(error(), ours.PermanentError):
                if node.retry:
                    self._run.final.add(key)
                raise self._failed(key, self._recorded_error(key, error))
            await asyncio.sleep(2)
        raise AssertionError("the last attempt decides")

    async def _transact(self, node: Transact, key: str, frame: Frame) -> Any:
        body = node.body
        number = self._begin(key, frame)
        await self._oracle.pass_time()
        error = failure(body, number, healed=self._oracle.healed)
        if error is not None:
            raise self._failed(key, self._recorded_error(key, error))
        self._oracle.rows[self._run.key(key)] = True
        return self._recorded(key, body.value)

    def _emitted(self, key: str, frame: Frame) -> None:
        full = self._run.key(key)
        frame.known.add(full)
        self._oracle.emitted[full] = True
        if key not in self._run.records:
            self._recorded(key, None)

    def _recorded(self, key: str, value: Any) -> Any:
        self._run.records[key] = _Record(value)
        return value

    def _recorded_error(self, key: str, error: Callable[[], Exception]) -> Exception:
        self._run.records[key] = _Record(error=error)
        return error()

    def _failed(self, key: str, error: Exception) -> Exception:
        self._run.failed.append(_Failed(key, error))
        return error

    # -- waits -------------------------------------------------------------------------------------------

    async def _wait(self, node: Wait, key: str, _frame: Frame) -> Any:
        if node.sent != "never":
            await self._oracle.pass_time()
            return self._recorded(key, node.value)
        if node.timeout is None:
            # For ever, unless somebody cancels it.
            self._run.waiting.set()
        await asyncio.sleep(node.timeout or 10**9)
        raise self._failed(key, self._recorded_error(key, lambda: by_engine(ours.WaitTimeout("in vain"), key)))

    async def _pause(self, node: Pause, key: str, _frame: Frame) -> Any:
        await self._oracle.pass_time()
        return self._recorded(key, node.value)

    async def _child(self, node: Child, key: str, frame: Frame) -> Any:
        return await self._result_of(key, frame, node.program, cancelled=node.cancelled)

    async def _result_of(self, key: str, frame: Frame, program: Program, *, cancelled: bool = False) -> Any:
        run = self._run.children.get(key)
        if run is None:
            run = self._run.children[key] = _Run(self._oracle, program, f"{self._run.label}/{key}", CHILD_ATTEMPTS)
            run.known |= frame.known
            run.task = asyncio.create_task(run.live())
        assert run.task is not None
        if cancelled and (run.cancelled or await run.waits()):
            await self._oracle.pass_time()
            run.cancelled = run.task.cancel() or run.cancelled
            frame.known |= run.known
            raise self._child_failed(key, lambda: ours.RunCancelled(0))
        outcome = await asyncio.shield(run.task)
        frame.known |= run.known
        await self._oracle.pass_time()
        if outcome.status == "SUCCESS":
            return self._recorded(key, outcome.result)
        raise self._child_failed(key, lambda: ours.ExecutionFailed(0, ""))

    def _child_failed(self, key: str, error: Callable[[], Exception]) -> Exception:
        # Another attempt would find the same end.
        self._run.final.add(key)
        return self._failed(key, self._recorded_error(key, lambda: by_engine(error(), key)))

    async def _map(self, node: Map, key: str, frame: Frame) -> list[Any]:
        # All of them come to their end; then the first error is raised, by their order.
        frames = [Frame(known=set(frame.known)) for _ in node.programs]
        results = await asyncio.gather(
            *(
                self._result_of(f"{key}.{number}", own, program)
                for number, (program, own) in enumerate(zip(node.programs, frames, strict=True))
            ),
            return_exceptions=True,
        )
        frame.joined(*frames)
        wrong = [each for each in results if isinstance(each, Exception)]
        if wrong and not node.return_exceptions:
            self._run.beside.append(list(wrong))
            raise wrong[0]
        return results


def failure(body: Body, number: int, *, healed: bool) -> Callable[[], Exception] | None:
    """What the body raises when it begins for the `number`th time; None when it returns its value."""
    match body:
        case Fails(times=times) if number <= times if times is not None else not healed:
            return lambda: raised_by(body)
        case Hangs() if not healed:
            return lambda: by_engine(TimeoutError(), "timeout")
        case Gives() | Fails() | Hangs():
            return None


def raised_by(body: Fails) -> Exception:
    error = errors.make(body.kind, body.number)
    if body.caused:
        error.__cause__ = KeyError("the cause")
    return error


def _line(error: BaseException) -> str | None:
    if isinstance(error, BaseExceptionGroup) or errors.made_by_engine(error):
        return None
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _sources(error: BaseException, of_steps: set[int]) -> set[int]:
    """The errors of steps that an error came from: itself, its parts, what it was raised from or while handling.

    What a step raises while another error is handled stands for itself: the handler had caught that one.
    """
    return _links(error, of_steps) & of_steps


def _links(error: BaseException, of_steps: set[int]) -> set[int]:
    """The error, its parts, what it was raised from or while handling, as far as errors of steps."""
    seen: set[int] = set()
    links: list[BaseException | None] = [error]
    while links:
        link = links.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        if id(link) in of_steps:
            continue
        if isinstance(link, BaseExceptionGroup):
            links += link.exceptions
        links += (link.__cause__, link.__context__)
    return seen
