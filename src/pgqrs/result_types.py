"""What workflows and children return, for type checkers."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    # Type checkers know it without its being installed. With a default, `pgqrs.Run` alone is a `Run[Any]`.
    from typing_extensions import TypeVar

    Result_co = TypeVar("Result_co", covariant=True, default=Any)
    # Values that come back as they were without a type that says how, as results of children do. A dataclass is not
    # among them: it comes back as a dict.
    PlainData: TypeAlias = (
        bool
        | int
        | float
        | str
        | bytes
        | Decimal
        | date
        | time
        | timedelta
        | UUID
        | Sequence["PlainData"]
        | AbstractSet["PlainData"]
        | Mapping[str, "PlainData"]
        | None
    )
else:
    from typing import TypeVar

    PlainData = Any
    Result_co = TypeVar("Result_co", covariant=True)


class Returning(Generic[Result_co]):
    """A workflow of which only the type of its result matters: what `ctx.spawn` and `schedules.create` take."""


class Child(Protocol[Result_co]):
    """A run that an async handler has started with `ctx.spawn`."""

    run_id: int

    def result(self) -> Coroutine[object, None, Result_co]:
        """What the child returned; ExecutionFailed or RunCancelled if it did not."""
        ...


class PlainChild(Protocol[Result_co]):
    """A run that a plain handler has started with `ctx.spawn`."""

    run_id: int

    def result(self) -> Result_co:
        """What the child returned; ExecutionFailed or RunCancelled if it did not."""
        ...
