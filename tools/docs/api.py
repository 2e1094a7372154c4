"""docs/reference/python.md: every public name with its signature and what its docstring says first."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import pgqrs
from pgqrs import errors, reports, types

HEAD = """# Python API

Every public name, with its signature and the first words of its docstring. (Made by `make docs-pages` from the code.) Verbs marked *async* are awaited;
`pgqrs.blocking` has all of them without `await`. The functions and classes that you call or catch are in `pgqrs`. The types of what they give are in `pgqrs.types`,
`pgqrs.reports` and `pgqrs.errors`, for annotations and `except` clauses.

"""

# Headings in the order in which people ask; what is in none of them comes under "More".
SECTIONS = {
    "Connecting": "connect connect_with Config Store using",
    "Workflows": "workflow workflow_decorator Workflow step Context SyncContext discover_workflows RetryPolicy Run RunStatus StepStatus Step Event Answer Why",
    "Workers": "consumer worker poll_all Worker WorkerInfo WorkerStatus WorkerHealth",
    "Queues": "Producer Consumer Message DeadLetter QueueMetrics QueueDepth",
    "Schedules": "schedules Schedules Schedule ScheduleSlot SlotState ScheduleStats",
    "The outbox": """dispatcher Dispatcher Publisher CallablePublisher HttpPublisher NotifyPublisher OutboxEvent verify_signature
        OutboxCounts OutboxStats""",
    "Looking after it": """admin Admin RunFilter RunSummary CappedCount BulkResult BulkReason FailureGroup workflow_metrics WorkflowMetrics
        LiveRuns StoreStats InvariantReport Violation Unjudged""",
    "Retention": "retention Retention RetentionPolicy RetentionReport",
    "Time": "Clock DatabaseClock ManualClock",
}
# Types that calls return and programs do not make themselves, with those calls.
GIVEN = {
    "trigger(...)": "Trigger",
    "worker(...), consumer(...)": "WorkerBuilder",
    "a decorated function": "DecoratedWorkflow",
    "ctx.spawn(...)": "Child",
    "ctx.transaction(name, work)": "Transaction",
    "admin(store).outbox": "OutboxAdmin",
    "using(connection)": "Enlistment",
}
MODULES = (pgqrs, types, reports, errors)


# A base that has an entry of its own is not told again, nor are the bases of that one.
_SHOWN = {pgqrs.Workflow}
# Public for the layers above, and not for users.
HIDDEN = {
    "Store": "workflow knows_of_workers remember_workers ready database",
    "AsyncKit": "handlers hire body met open settings_for lent disconnect",
    "Kit": "closing",
    "RunHandle": "update row",
}


def page() -> str:
    return HEAD + "".join(_parts())


def _parts() -> Iterator[str]:
    left = {name: full for full, name in _everything() if name not in GIVEN.values()}
    for title, names in SECTIONS.items():
        yield f"## {title}\n\n"
        for name in names.split():
            yield _entry(left.pop(name), _named(name))
    if others := [name for name in left if not _is_error(_named(name))]:
        yield "## More\n\n"
        for name in others:
            yield _entry(left.pop(name), _named(name))
    yield "## What calls give\n\n"
    for how, name in GIVEN.items():
        yield _entry(f"pgqrs.types.{name}", getattr(types, name)).replace("`\n\n", f"`: {how}\n\n", 1)
    yield (
        "## Errors\n\nAll are under `pgqrs.PgqrsError`; fields carry the data, so callers need not parse text. Those without "
        "`pgqrs.` are in `pgqrs.errors`.\n\n| error | under | |\n|---|---|---|\n"
    )
    for name, full in sorted(left.items()):
        error = _named(name)
        shown = full.removeprefix("pgqrs.errors.")
        yield f"| `{shown}` | `{error.__mro__[1].__name__.lstrip('_').replace('NamedNotFound', 'NotFound')}` | {_first(error)} |\n"
    yield "\n## `pgqrs.testing`\n\nSee [testing](../guides/testing.md).\n\n"
    testing = import_module("pgqrs.testing")
    for name in testing.__all__:
        yield _entry(f"pgqrs.testing.{name}", getattr(testing, name))


def _everything() -> Iterator[tuple[str, str]]:
    """Each public name once, with the shortest way to it."""
    seen = {"__version__", "errors", "reports", "types"}
    for module in MODULES:
        for name in public(module):
            if name not in seen:
                seen.add(name)
                yield f"{module.__name__}.{name}", name


def public(module: ModuleType) -> list[str]:
    """The names of `pgqrs`, or the classes that a module of it defines or gives."""
    if module is pgqrs:
        return list(pgqrs.__all__)
    own = [
        name for name, each in vars(module).items() if inspect.isclass(each) and each.__module__ == module.__name__
    ]
    given = list(types._GIVEN) if module is types else []
    return [name for name in own + given if not name.startswith("_")]


def _named(name: str) -> Any:
    return next(getattr(module, name) for module in MODULES if hasattr(module, name))


def _entry(full: str, thing: Any) -> str:
    title = f"### `{full}`\n\n"
    if not inspect.isclass(thing):
        return f"{title}{_code(full.rpartition('.')[2], thing)}{_first(thing)}\n\n"
    if issubclass(thing, enum.Enum):
        return f"{title}{_first(thing)}{' ' if _first(thing) else ''}One of {', '.join(f'`{each.value}`' for each in thing)}.\n\n"
    body = [title, f"{_first(thing)}\n\n" if _first(thing) else ""]
    if dataclasses.is_dataclass(thing):
        body.append(_fields(each.name for each in dataclasses.fields(thing)))
    elif declared := [name for name in inspect.get_annotations(thing) if not name.startswith("_")]:
        body.append(_fields(declared))
    rows = list(_members(thing))
    if rows:
        body.append("".join(rows) + "\n")
    return "".join(body)


def _fields(names: Iterable[str]) -> str:
    return f"Fields: {', '.join(f'`{name}`' for name in names)}.\n\n"


def _members(cls: type) -> Iterator[str]:
    fields = {each.name for each in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else set()
    for name in _public(cls):
        member = inspect.getattr_static(cls, name)
        if name in fields or inspect.isclass(member):
            continue
        if isinstance(member, property) or hasattr(member, "attrname"):
            function = member.fget if isinstance(member, property) else member.func
            yield f"- `{name}`{_told(function)}\n"
        elif isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            function = getattr(cls, name)
            yield f"- {_async(function)}`{_signature(name, function)}`{_told(function)}\n"


def _public(cls: type) -> Iterator[str]:
    """In the order of their definition, those of the base classes of ours last."""
    seen = set(HIDDEN.get(cls.__name__, "").split())
    shown = {base for each in _SHOWN - {cls} for base in each.__mro__}
    bases = [each for each in cls.__mro__ if each.__module__.startswith("pgqrs") and each not in shown]
    for each in bases:
        for name in vars(each):
            if not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name


def _code(name: str, function: Any) -> str:
    signature = _async(function).replace("*", "") + _signature(name, function)
    if len(signature) > 80:
        # One parameter a line; a comma within brackets is part of a type.
        inside, _, given = signature.partition("(")[2].rpartition(")")
        lines = re.sub(r", (?=\*|\w+[:=,)]|\w+$)", ",\n    ", inside)
        signature = f"{signature.partition('(')[0]}(\n    {lines},\n){given}"
    return f"```text\n{signature}\n```\n\n"


def _async(function: Any) -> str:
    return "*async* " if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function) else ""


def _signature(name: str, function: Any) -> str:
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return name
    parameters = [
        each.replace(annotation=_bare(each.annotation), default=_default(each.default))
        for each in found.parameters.values()
        if each.name not in ("self", "cls")
    ]
    return f"{name}{found.replace(parameters=parameters, return_annotation=_bare(found.return_annotation))}"


class _Bare:
    """Shown as its text, without quotes."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _bare(annotation: Any) -> Any:
    if not isinstance(annotation, str):
        return annotation
    # Readers await it; what it yields to the event loop is for type checkers, as is the variance of a type.
    return _Bare(annotation.replace("Coroutine[object, None, ", "Awaitable[").replace("_co", ""))


def _default(value: Any) -> Any:
    """What stands for "not given" is an object without a name."""
    return _Bare("...") if type(value) is object else value


def _told(function: Any) -> str:
    return f"  \n  {text}" if (text := _first(function)) else ""


def _first(thing: Any) -> str:
    """The first paragraph of what its own docstring says, on one line; nothing for what Python makes up."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else getattr(thing, "__doc__", None)
    if not text or text.startswith((f"{getattr(thing, '__name__', '')}(", "An enumeration.")):
        return ""
    return " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)
