"""What a function says of itself: its types, which parameter is the context, and where it is written."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args, get_type_hints

import msgspec

from pgqrs.errors import ConfigError

# Names of a first parameter without an annotation that mean the context. Those of the first set mean nothing else.
_CONTEXT_ONLY = frozenset({"ctx", "_ctx", "workflow_ctx", "wf_ctx"})
_CONTEXT_NAMES = _CONTEXT_ONLY | {
    "context", "_context", "wf", "wf_context", "workflow_context", "run_ctx", "run_context", "pgqrs_ctx",
}  # fmt: skip
# They may mean either.
_UNCLEAR = frozenset({"c", "cx", "w", "workflow", "self", "cls"})
_CONTEXT_CLASSES = frozenset({"PyWorkflow", "Context", "SyncContext", "RunContext"})
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


if sys.version_info >= (3, 14):
    # Annotations are evaluated there when they are read, and one that names what only type checkers import fails. To
    # read the others needs what older versions do not have, where such an annotation is text.
    from annotationlib import Format, get_annotations

    def signature_of(function: Callable[..., Any]) -> inspect.Signature:
        """Return the signature; an annotation that cannot be read now is a ForwardRef."""
        return inspect.signature(function, annotation_format=Format.FORWARDREF)

    def _annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
        return get_annotations(function, format=Format.FORWARDREF)

else:

    def signature_of(function: Callable[..., Any]) -> inspect.Signature:
        """Return the signature; an annotation that cannot be read now is its text."""
        return inspect.signature(function)

    def _annotations_of(function: Callable[..., Any]) -> dict[str, Any]:
        return getattr(function, "__annotations__", {})


def types_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the annotations that can be read now; one that cannot (a missing import) is none."""
    try:
        if not getattr(function, "__annotations__", True):
            return {}
        return get_type_hints(function)
    except (NameError, TypeError, AttributeError, SyntaxError):
        return _readable_types(function)


def _readable_types(function: Callable[..., Any]) -> dict[str, Any]:
    known = getattr(inspect.unwrap(function), "__globals__", {})
    found: dict[str, Any] = {}
    for name, hint in _annotations_of(function).items():
        try:
            found |= get_type_hints(SimpleNamespace(__annotations__={name: hint}), globalns=known)
        except (NameError, TypeError, AttributeError, SyntaxError):
            continue
    return found


def is_context(parameter: inspect.Parameter, types: dict[str, Any]) -> bool:
    """Tell whether the first parameter of a step is the context."""
    return parameter.name in _CONTEXT_ONLY | {"context"} or _is_context_type(types.get(parameter.name))


def context_of(
    workflow: str, function: Callable[..., Any], parameters: Sequence[inspect.Parameter], types: dict[str, Any]
) -> str | None:
    """Return the name of the parameter that gets the context, or None; raise ConfigError where that is not clear.

    A parameter with a context's annotation is it, wherever it stands. Else it is the first one, if it is named like
    one (`ctx`, `context`, `wf` ...) and not annotated as something else.
    """
    annotated = [each.name for each in parameters if _is_annotated_as_context(each, types)]
    if len(annotated) > 1:
        raise ConfigError(
            f"workflow {workflow!r} ({SourceLocation.of(function)}) has two parameters for the context, "
            f"{annotated[0]!r} and {annotated[1]!r}",
            hint="keep one",
        )
    if annotated:
        return annotated[0]
    for place, each in enumerate(parameters):
        if each.kind not in _BY_POSITION:
            continue
        is_data = each.name in types and _is_data(types[each.name])
        if each.name in _CONTEXT_ONLY and (is_data or place > 0):
            raise _unclear(
                workflow, function, each, "is annotated as data" if is_data else "is not the first parameter"
            )
        if place == 0 and not is_data and each.name in _CONTEXT_NAMES:
            return each.name
        if place == 0 and each.name in _UNCLEAR and each.annotation is inspect.Parameter.empty:
            raise _unclear(workflow, function, each, "could be the context or an argument")
    return None


def _unclear(workflow: str, function: Callable[..., Any], parameter: inspect.Parameter, what: str) -> ConfigError:
    name = parameter.name
    return ConfigError(
        f"workflow {workflow!r} ({SourceLocation.of(function)}): parameter {name!r} {what}",
        hint="name the context "
        f"ctx and put it first, or annotate it: {name}: pgqrs.PyWorkflow for the context, {name}: dict (or another "
        "type) for an argument",
    )


def _is_annotated_as_context(parameter: inspect.Parameter, types: dict[str, Any]) -> bool:
    if parameter.name in types:
        return _is_context_type(types[parameter.name])
    # Imported for type checkers only, perhaps: the text of the annotation is all there is.
    hint = getattr(parameter.annotation, "__forward_arg__", parameter.annotation)
    return isinstance(hint, str) and hint.strip("'\"").rpartition(".")[2] in _CONTEXT_CLASSES


def _is_context_type(hint: Any) -> bool:
    return getattr(hint, "__pgqrs_context__", False) is True or any(_is_context_type(arm) for arm in get_args(hint))


def _is_data(kind: Any) -> bool:
    """Is it a type of values that are stored? A protocol or a class of the user's own may describe a context."""
    if hasattr(kind, "model_validate"):
        return True
    try:
        told = msgspec.inspect.type_info(kind)
    except Exception:  # noqa: BLE001 - whatever it is, it is no type that we know
        return False
    return not isinstance(told, msgspec.inspect.CustomType | msgspec.inspect.AnyType)


class SourceLocation(NamedTuple):
    """Where a function is written."""

    module: str
    name: str
    file: str
    line: int

    @classmethod
    def of(cls, function: Callable[..., Any]) -> SourceLocation:
        inner = inspect.unwrap(function)
        code = getattr(inner, "__code__", None)
        file = "?" if code is None else code.co_filename
        name = getattr(inner, "__qualname__", type(inner).__qualname__)
        line = getattr(code, "co_firstlineno", 0)
        return cls(
            getattr(inner, "__module__", None) or "?",
            name,
            file if file[:1] in "<?" else os.path.realpath(file),
            line,
        )

    def is_same(self, other: SourceLocation) -> bool:
        """True for one function that is loaded again: reloaded, imported under another name, a cell run again."""
        return self.name == other.name and (self.module == other.module or self.file == other.file)

    def is_beside(self, other: SourceLocation) -> bool:
        """True for functions of one program, as far as that can be told: one module, one package, one folder.

        A process may hold several programs: tests and what they test, each with an `order` of its own.
        """
        if self.module == other.module or self.file == other.file:
            return True
        if "<locals>" in self.name or "<locals>" in other.name:
            return False
        mine, others = self.module.split("."), other.module.split(".")
        in_package = mine[0] == others[0] and min(len(mine), len(others)) > 1
        return in_package or (self.folder is not None and self.folder == other.folder)

    @property
    def folder(self) -> str | None:
        return None if self.file[:1] in "<?" else str(Path(self.file).parent)

    def __str__(self) -> str:
        return f"{self.name} in {self.file}:{self.line}"


# Decorated workflows by name. Weak: a function that cannot be called any more is in no one's way.
_declared: dict[str, weakref.ref[Any]] = {}


def declare(name: str, noun: Any, function: Callable[..., Any]) -> None:
    """Remember the decorated function; raise ConfigError if another one of the same program has the name."""
    place = SourceLocation.of(function)
    if _other(name, place) is not None:
        # Perhaps only a cycle keeps it alive.
        gc.collect()
        if (other := _other(name, place)) is not None:
            raise two_of_a_name(name, other, place)
    _declared[name] = weakref.ref(noun)


def declared(name: str) -> Any:
    """Return the decorated workflow of that name which this process has, or None."""
    found = _declared.get(name)
    return None if found is None else found()


def two_of_a_name(name: str, one: SourceLocation, other: SourceLocation) -> ConfigError:
    return ConfigError(
        f"two workflows are named {name!r}: {one} and {other}",
        hint="give one of them another name, @pgqrs.workflow(name=...)",
    )


def _other(name: str, place: SourceLocation) -> SourceLocation | None:
    noun = declared(name)
    if noun is None:
        return None
    known = SourceLocation.of(noun)
    return known if known.is_beside(place) and not known.is_same(place) else None
