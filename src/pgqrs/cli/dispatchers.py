"""Which dispatcher an application's name stands for: a function of the store, or a publisher to route events to."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_type_hints

from pgqrs.errors import ConfigError

if TYPE_CHECKING:
    from pgqrs.api.dispatcher import Dispatcher
    from pgqrs.api.store import Store

_FORMS = (
    "name a function `dispatcher(store)` that returns pgqrs.dispatcher(store).to(...), an object with "
    "`publish(event)`, a function of an event, or a mapping {'order.*': publisher}"
)


def dispatcher_of(found: Any, where: str, store: Store, types: Sequence[str] = ()) -> Dispatcher:
    """Return the dispatcher that `found` makes, or one that routes events to it; ConfigError for anything else."""
    if isinstance(found, ModuleType):
        found, where = _of_module(found, where), f"{where}:dispatcher"
    if is_maker(found):
        if types:
            raise ConfigError(f"{where!r} makes a dispatcher with routes of its own", hint="leave --type out")
        return made_by(found, where, store)
    routes = found.items() if isinstance(found, Mapping) else [(None, found)]
    from pgqrs.api.dispatcher import dispatcher

    made = dispatcher(store)
    for pattern, publisher in routes:
        _check_publisher(publisher, where)
        made = made.to(publisher, types=(types or ["*"]) if pattern is None else [pattern])
    return made


def made_by(make: Any, where: str, store: Store) -> Dispatcher:
    """Call a function of the store and return its dispatcher; ConfigError when it returns anything else."""
    from pgqrs.api.dispatcher import Dispatcher

    made = make(store)
    if not isinstance(made, Dispatcher):
        if inspect.iscoroutine(made):
            made.close()
        raise ConfigError(
            f"{where!r} is a function of the store, so it must return a dispatcher, not {made!r}",
            hint="return pgqrs.dispatcher(store).to(...)",
        )
    return made


def is_maker(found: Any) -> bool:
    """Is this a function that takes the store and returns a dispatcher?

    Its name, its parameter or its annotations say so. A function `dispatcher(event)` is a publisher.
    """
    from pgqrs.api.dispatcher import Dispatcher
    from pgqrs.api.store import Store
    from pgqrs.types import OutboxEvent

    if not callable(found) or inspect.isclass(found) or hasattr(found, "publish"):
        return False
    if (parameter := _only_parameter(found)) is None:
        return False
    hints = _hints(found)
    hint = hints.get(parameter.name)
    if hint is OutboxEvent or parameter.name == "event":
        return False
    return (
        hint is Store
        or parameter.name == "store"
        or hints.get("return") is Dispatcher
        or getattr(found, "__name__", "") == "dispatcher"
    )


def _of_module(module: ModuleType, where: str) -> Any:
    from pgqrs.api.dispatcher import dispatcher as ours

    found = getattr(module, "dispatcher", None)
    if found is None or found is ours:
        raise ConfigError(f"{where!r} has no function `dispatcher(store)`", hint=f"{_FORMS}")
    return found


def _check_publisher(publisher: Any, where: str) -> None:
    if inspect.isclass(publisher):
        raise ConfigError(
            f"{where!r} names the class {publisher.__name__}", hint=f"name an object of it. Or {_FORMS}"
        )
    publish = getattr(publisher, "publish", publisher)
    if not callable(publish) or _only_parameter(publish) is None:
        raise ConfigError(f"{where!r} names {publisher!r}, which does not take one event", hint=f"{_FORMS}")


def _only_parameter(function: Any) -> inspect.Parameter | None:
    """Return the parameter that a single argument goes to; None when the function does not take exactly one."""
    from pgqrs.engine.definitions.signature import signature_of

    try:
        signature = signature_of(function)
        bound = signature.bind(None)
    except (TypeError, ValueError):
        return None
    return signature.parameters[next(iter(bound.arguments))]


def _hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        # A hint under TYPE_CHECKING, or of a local class: then the names decide.
        return {}
