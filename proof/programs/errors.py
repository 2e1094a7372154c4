"""Errors that programs raise, and how an error looks to the handler that sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pgqrs
from pgqrs import errors as ours


class Declined(Exception):
    """A user's error: its constructor takes other arguments than those it hands on."""

    def __init__(self, code: int, reason: str = "no") -> None:
        super().__init__(f"declined: {reason}")
        self.code = code
        self.reason = reason


class Gateway:
    class Refused(Exception):
        """Its qualified name has a dot; its text is made from its attributes."""

        def __init__(self, *, code: int) -> None:
            super().__init__()
            self.code = code

        def __str__(self) -> str:
            return f"refused with {self.code}"


class SoldOut(Declined, ValueError):
    """With two bases."""


class Stubborn(pgqrs.PermanentError):
    """A user's class below one of ours."""

    def __init__(self, code: int) -> None:
        super().__init__(f"stubborn {code}")
        self.code = code


def _with_response(number: int) -> Exception:
    error = Declined(number, "see the response")
    error.response = {"status": number, "body": ["a", None]}  # type: ignore[attr-defined]
    return error


# By kind: the error with that number. All of them can be imported by module and qualified name.
KINDS: dict[str, Callable[[int], Exception]] = {
    "value": lambda n: ValueError("bad", n),
    "key": lambda n: KeyError(f"k{n}"),
    "os": lambda n: OSError(2, f"no file {n}"),
    "reset": lambda n: ConnectionResetError(104, f"reset {n}"),
    "timeout": lambda n: TimeoutError(f"slow {n}"),
    "json": lambda n: json.JSONDecodeError("Expecting value", "{oops", n % 5),
    "declined": lambda n: Declined(n, f"reason {n}"),
    "response": _with_response,
    "refused": lambda n: Gateway.Refused(code=n),
    "soldout": lambda n: SoldOut(n, "sold out"),
    "permanent": lambda n: pgqrs.PermanentError(f"never {n}"),
    "stubborn": Stubborn,
    "transient": lambda n: pgqrs.TransientError(f"later {n}", retry_after=2.5),
    "lease": lambda n: pgqrs.LeaseLost(f"message {n} is another's", message_id=n),
    "cancelled": lambda n: pgqrs.RunCancelled(n, "somebody said so"),
    "connection": lambda n: pgqrs.ConnectionFailed(f"partner {n} is away", ambiguous=True),
    "failed": lambda n: ours.ExecutionFailed(n, "of another run"),
    "late": lambda n: ours.WaitTimeout(f"partner {n} did not answer"),
}
# These end a run, whatever is left of its attempts; no policy tries them again.
PERMANENT = frozenset({"permanent", "stubborn"})
# What an `except` may name beside the kinds: classes that catch what the engine itself raises for waits and children.
CLASSES: dict[str, type[Exception]] = {
    "Exception": Exception,
    "OSError": OSError,
    "ValueError": ValueError,
    "PgqrsError": ours.PgqrsError,
    "TimeoutError": TimeoutError,
    "WaitTimeout": ours.WaitTimeout,
    "ExecutionFailed": ours.ExecutionFailed,
    "RunCancelled": ours.RunCancelled,
    **{kind: type(make(1)) for kind, make in KINDS.items()},
}
_ATTRIBUTES = (
    *("code", "reason", "response", "errno", "strerror", "msg", "doc", "pos", "lineno", "colno"),
    *("retry_after", "ambiguous", "message_id", "run_id", "error"),
)


def make(kind: str, number: int) -> Exception:
    return KINDS[kind](number)


@dataclass(frozen=True, slots=True)
class Seen:
    """An error as a handler sees it. `details` are None where the engine makes the text: then any will do."""

    kind: str
    details: tuple[Any, ...] | None = None
    parts: tuple[Seen, ...] = ()
    # In the oracle: which statement it came from, where nothing else tells.
    who: str = ""

    def agrees(self, other: object) -> bool:
        """True when both could be the same error."""
        if not isinstance(other, Seen) or self.kind != other.kind:
            return False
        if len(self.parts) != len(other.parts) or not all(map(Seen.agrees, self.parts, other.parts)):
            return False
        # The text of a group is made of nothing else than its parts.
        return self.details is None or other.details is None or bool(self.parts) or self.details == other.details

    def __str__(self) -> str:
        inside = f" of {', '.join(map(str, self.parts))}" if self.parts else ""
        return f"{self.kind}{'' if self.details is None else repr(self.details)}{inside}"


def seen(error: BaseException) -> Seen:
    """Its class, text, arguments, attributes and cause."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, BaseExceptionGroup):
        return Seen(kind, (), tuple(seen(each) for each in error.exceptions))
    if maker := made_by_engine(error):
        return Seen(kind, who=maker)
    attributes = tuple((name, repr(getattr(error, name))) for name in _ATTRIBUTES if hasattr(error, name))
    cause = "" if error.__cause__ is None else f"{type(error.__cause__).__qualname__}: {error.__cause__}"
    return Seen(kind, (str(error), repr(error.args), attributes, cause))


def by_engine(error: Exception, who: str) -> Exception:
    """In the oracle: an error whose text the engine makes."""
    error.__made_by_engine__ = who  # type: ignore[attr-defined]
    return error


def made_by_engine(error: BaseException) -> str:
    return getattr(error, "__made_by_engine__", "")


def is_permanent(error: BaseException) -> bool:
    """Whether it, or a part of it, forbids another attempt."""
    return any(isinstance(each, ours.PermanentError | ours.SerializationError) for each in leaves(error))


def is_transient(error: BaseException) -> bool:
    """Whether it, or every part of it, asks for another attempt."""
    return all(isinstance(each, ours.TransientError) for each in leaves(error))


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]
