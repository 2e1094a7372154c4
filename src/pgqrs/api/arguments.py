"""What callers may pass: each check names the argument, the value and what is allowed."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from pgqrs.clock import is_in_range
from pgqrs.errors import ConfigError
from pgqrs.retry import is_whole, policy_for
from pgqrs.text.durations import shown
from pgqrs.text.names import checked_text

P = ParamSpec("P")
T = TypeVar("T")

MOST_PER_CALL = 50_000
# Reasons and the like stand in every list that shows their run; as long as the message of an error may be.
MOST_TEXT = 2_000


def checked_time(argument: str, value: datetime | None) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ConfigError(
            f"{argument} must be a datetime with a time zone, not {value!r}",
            hint="use datetime.now(UTC) + timedelta(...), or .replace(tzinfo=...)",
        )
    if not is_in_range(value):
        raise ConfigError(f"{argument} must lie between the years 1970 and 2970, not {value!r}")
    return value


def checked_whole(argument: str, value: int, *, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{argument} must be a whole number from {least:,} to {most:,}, not {value!r}")
    return value


def checked_priority(value: int) -> int:
    return checked_whole("priority", value, least=-(2**31), most=2**31 - 1)


def checked_batch(argument: str, value: int) -> int:
    return checked_whole(argument, value, least=1, most=MOST_PER_CALL)


def checked_attributes(value: dict[str, Any] | None) -> dict[str, Any] | None:
    if value is None or isinstance(value, dict):
        return value
    raise ConfigError(f"attributes must be a dict such as {{'customer': 'c42'}}, not {value!r}")


def checked_key(value: object) -> str:
    """An idempotency key: long enough for any id, short enough for an index."""
    text = checked_text("idempotency key", value)
    if 1 <= len(text) <= 500 and text.isprintable():
        return text
    raise ConfigError(f"idempotency key {text[:60]!r} is not allowed", hint="use 1 to 500 printable characters")


def checked_run_id(value: int) -> int:
    return checked_whole("run_id", value, least=0, most=2**63 - 1)


def check_function(noun: str, name: str, function: object) -> None:
    """Raise ConfigError for a class or a generator function: neither can be executed and recorded."""
    if isinstance(function, type):
        raise ConfigError(f"{noun} {name!r} is a class", hint=f"write a function, `def {_as_function(name)}(...)`")
    # Not unwrapped: a decorator may make a list of what a generator function gives.
    called = (function, getattr(function, "__call__", None))  # noqa: B004 - the method itself
    if any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in called):
        raise ConfigError(
            f"{noun} {name!r} is a generator function, as it contains `yield`, and a generator cannot be stored",
            hint="collect the values in a list and return that",
        )


def _as_function(name: str) -> str:
    """`ShipOrder` as functions are called: `ship_order`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower() if name.isidentifier() else "work"


# What people write for the name of a thing, and for its attempts.
_NAMES = frozenset({"name", "id"})
_ATTEMPTS = frozenset({"max_attempts", "attempts", "max_retries", "retries"})


def unknown_option(decorator: str, options: Mapping[str, Any], known: Sequence[str], *, named_by: str) -> ConfigError:
    """Return the error for an option that a decorator does not have; it shows what to write, where that is clear."""
    option, value = next(iter(options.items()))
    fix = f"it takes {', '.join(known[:-1])} and {known[-1]}"
    if option in _NAMES and isinstance(value, str):
        fix = f"write @pgqrs.{decorator}({named_by}={shown(value)})"
    elif option in _ATTEMPTS and is_whole(value):
        fix = f"write @pgqrs.{decorator}({policy_for(value)})"
    return ConfigError(f"{decorator}() does not know {option!r}", hint=f"{fix}")


def in_order(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a method that takes a store tell the order of its arguments when the store stands elsewhere."""
    signature = inspect.signature(verb)
    taken = list(signature.parameters.values())[1:]
    place = [each.name for each in taken].index("store")
    words = [each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in taken]
    first_optional = next((n for n, each in enumerate(taken) if each.kind is each.KEYWORD_ONLY), len(taken))
    usage = f"{verb.__name__}({', '.join(words[:first_optional])})"
    named = [f"{each.name}=" for each in taken if each.kind is each.KEYWORD_ONLY]
    by_name = f"; by name {', '.join(named)}" if named else ""

    @functools.wraps(verb)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        given = args[1:]
        if len(given) > place or "store" in kwargs:
            check_store(
                given[place] if len(given) > place else kwargs["store"],
                usage,
                given,
                of=f"{noun_of(args[0])}.{usage}",
            )
        run_id = given[0] if place and given else kwargs.get("run_id")
        if isinstance(getattr(run_id, "run_id", None), int):
            raise ConfigError(f"{usage} takes the id of the run: pass run.run_id, not the run itself")
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            found = ", ".join(_kind(each) for each in given)
            raise TypeError(f"{error}: write {usage}{by_name}, not ({found})") from None
        return await verb(*args, **kwargs)

    return call


def check_store(store: Any, usage: str, given: tuple[Any, ...], *, of: str) -> None:
    """Raise ConfigError when that is no store, and show the right order if a store is among what was given.

    `of` is the whole call, from the workflow on: `workflow('order').trigger(...).execute(store)`.
    """
    if is_store(store):
        return
    if _is_blocking(store):
        raise ConfigError(
            f"{usage} was given a store of pgqrs.blocking, and has to be awaited",
            hint=f"in plain code write pgqrs.blocking.{of}; in async code connect with `await pgqrs.connect(...)`",
        )
    found = ", ".join(_kind(each) for each in given)
    if any(is_store(each) for each in given):
        raise ConfigError(f"the arguments are in the wrong order: write {usage}, not ({found})")
    raise ConfigError(
        f"{usage} needs a connected store, got ({found})", hint="make one with `store = await pgqrs.connect(...)`"
    )


def is_store(value: Any) -> bool:
    return inspect.iscoroutinefunction(getattr(type(value), "ready", None))


def _is_blocking(value: Any) -> bool:
    # By its parts: pgqrs.blocking wraps this layer, and cannot be imported here.
    return is_store(getattr(value, "__dict__", {}).get("_target"))


def noun_of(workflow: Any) -> str:
    """`workflow(ship)` for a function that is one, `workflow('ship')` for one that is only named."""
    return f"workflow({getattr(workflow, '__name__', None) or repr(workflow.name)})"


def _kind(value: Any) -> str:
    return "store" if is_store(value) else shown(value)


def check_texts(**given: str | None) -> None:
    """Reasons, actors, names of steps: text that every database stores, or None."""
    for argument, value in given.items():
        if value is None:
            continue
        text = checked_text(argument, value)
        if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
            raise ConfigError(f"{argument} must be text without NUL and lone surrogates, not {text[:60]!r}")
        if len(value) > MOST_TEXT:
            raise ConfigError(f"{argument} has {len(value):,} characters", hint=f"use at most {MOST_TEXT:,}")
