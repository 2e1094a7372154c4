"""The driver protocol: one object that is a pool, a transaction or the caller's own connection."""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from pgqrs import faults
from pgqrs.audit import AuditPolicy
from pgqrs.db.dialect import Dialect
from pgqrs.db.queries import Query
from pgqrs.errors import ConfigError, PermanentError, PgqrsError
from pgqrs.text.durations import shown

P = ParamSpec("P")
T = TypeVar("T")
Row = Sequence[Any]
# For a text that may be cut: all of it.
WHOLE = 2**31 - 1


class Kind(Enum):
    """How much of a transaction a store call needs."""

    READ = "read"  # a consistent look; may run on a reader connection
    STATEMENT = "statement"  # one statement on PostgreSQL, atomic by itself
    LEASE = "lease"  # the same; where a power cut takes its holder along, it need not survive that
    UNIT = "unit"  # several statements, all or nothing


class Database(Protocol):
    """What store calls are written against."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def audit_policy(self) -> AuditPolicy:
        """What of the runs' history is to be written."""
        ...

    @property
    def retried(self) -> bool:
        """True inside a unit of work whose first try may have been carried out, its reply lost."""
        ...

    async def fetch(self, query: Query, **params: Any) -> list[Row]:
        """The rows, times decoded. Only inside a unit of work."""
        ...

    async def execute(self, query: Query, **params: Any) -> int:
        """How many rows changed. Only inside a unit of work."""
        ...

    async def perform(self, work: Callable[[Database], Coroutine[Any, Any, T]], *, kind: Kind, idempotent: bool) -> T:
        """Run a unit of work: commit when it returns, roll back when it raises.

        `work` may await nothing but its own database: on SQLite it is driven to its end in the writer's
        thread, in one commit with other units. Inside a transaction it simply joins in.
        It must have no other effect, because it may be run again after a deadlock or a lost connection.
        """
        ...


class OwnSession(Database, Protocol):
    """A session of one of our own drivers, inside a unit of work: there a user's statements can run too."""

    @property
    def trouble(self) -> Exception | None:
        """The error of a user's statement that is the engine's: the connection broke, or the disk is full.

        It decides, whatever the user's function made of the error.
        """
        ...

    async def run_as_given(self, sql: str, arguments: Sequence[Any]) -> list[Row]:
        """A statement of the user's, with the database's own placeholders and under its usual settings."""
        ...


# A statement that ends the transaction, or begins another; `rollback to` a savepoint does neither.
_TRANSACTION_CONTROL = re.compile(
    r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*"
    r"(begin|start|commit|end|abort|prepare\s+transaction|rollback(?!(?:\s+(?:work|transaction))?\s+to\b))\b",
    re.IGNORECASE | re.DOTALL,
)


class Transaction:
    """What `ctx.transaction` hands to its function: statements in the transaction that records the step."""

    def __init__(self, session: OwnSession) -> None:
        self._session = session
        self.emitted: list[tuple[str, Any]] = []
        # Statements that were asked for and have not ended, with their verbs.
        self._open: dict[int, tuple[str, str, Coroutine[Any, Any, Any]]] = {}
        self._asked = 0
        self._all_ended: asyncio.Future[None] | None = None

    def emit(self, event_type: str, data: Any = None) -> None:
        """Publishes an event through the outbox, if and only if this transaction commits."""
        self.emitted.append((event_type, data))

    def fetch(self, sql: str, *arguments: Any) -> Coroutine[Any, Any, list[Row]]:
        """The rows. Placeholders are the database's own: `$1` on PostgreSQL, `?` on SQLite."""
        return self._ask("fetch", sql, self._rows(self._asked, sql, arguments))

    def execute(self, sql: str, *arguments: Any) -> Coroutine[Any, Any, None]:
        """As `fetch`, for statements that give no rows."""
        return self._ask("execute", sql, self._no_rows(self._asked, sql, arguments))

    def _ask(self, verb: str, sql: str, doing: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        self._open[self._asked] = (verb, sql, doing)
        self._asked += 1
        return doing

    async def _no_rows(self, number: int, sql: str, arguments: Sequence[Any]) -> None:
        await self._rows(number, sql, arguments)

    async def _rows(self, number: int, sql: str, arguments: Sequence[Any]) -> list[Row]:
        try:
            if found := _TRANSACTION_CONTROL.match(sql):
                raise ConfigError(
                    f"a function in ctx.transaction cannot run {found[1]!r}: the transaction commits together with "
                    "the step's record",
                    hint="return from the function to commit it, raise an error to roll it back",
                )
            return await self._session.run_as_given(sql, arguments)
        finally:
            self._open.pop(number, None)
            if self._all_ended is not None and not self._all_ended.done() and not self._open:
                self._all_ended.set_result(None)

    def drop_unbegun(self) -> None:
        """Close the statements that were never begun; Python would warn of them in words of our insides."""
        for number, (_, _, doing) in list(self._open.items()):
            if inspect.getcoroutinestate(doing) == inspect.CORO_CREATED:
                doing.close()
                del self._open[number]

    async def check_all_were_awaited(self) -> None:
        """When the function has returned: raise PermanentError if a statement was not awaited."""
        if not self._open:
            return
        verb, sql, _ = next(iter(self._open.values()))
        self.drop_unbegun()
        if self._open:
            # Left in tasks of the function's: the connection takes no rollback before they have ended.
            self._all_ended = asyncio.get_running_loop().create_future()
            await self._all_ended
        raise PermanentError(
            f"tx.{verb}({shown(sql)}) was not awaited: the transaction is rolled back",
            hint=f"write `await tx.{verb}(...)`",
        )


class LostMeanwhile(Exception):
    """The lease was lost while the user's function was at work; its statements are rolled back."""


class WorkFailed(Exception):
    """The user's function in a transaction failed with `error`: not an error of the call, whatever its class."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__} in the user's function")
        self.error = error


class IntegrityViolation(PgqrsError):
    """A constraint said no; store calls turn it into something a caller understands."""


def store_call(
    kind: Kind | Callable[..., Kind], *, idempotent: bool = False
) -> Callable[
    [Callable[Concatenate[Database, P], Coroutine[Any, Any, T]]],
    Callable[Concatenate[Database, P], Coroutine[Any, Any, T]],
]:
    """Makes a function of a table module one store call: one transaction, with fault points around it.

    `kind` may be worked out from the arguments. `idempotent` means that running it again after a lost reply ends as
    running it once would have.
    """

    def decorate(
        work: Callable[Concatenate[Database, P], Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate[Database, P], Coroutine[Any, Any, T]]:
        name = f"{work.__module__.rpartition('.')[2]}.{work.__name__}"

        @functools.wraps(work)
        async def call(db: Database, /, *args: P.args, **kwargs: P.kwargs) -> T:
            needed = kind if isinstance(kind, Kind) else kind(db, *args, **kwargs)
            if not faults.armed:
                return await db.perform(lambda unit: work(unit, *args, **kwargs), kind=needed, idempotent=idempotent)
            await faults.reach("before", name)
            with faults.under_way(name):
                result = await db.perform(
                    lambda unit: work(unit, *args, **kwargs), kind=needed, idempotent=idempotent
                )
            await faults.reach("after", name)
            return result

        return call

    return decorate


class ForeignAwait(RuntimeError):
    """A unit of work awaited something other than its own database."""


def drive(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that only awaits things which are ready at once, without an event loop."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    work.close()
    raise ForeignAwait("a unit of work awaited something other than its own database")
