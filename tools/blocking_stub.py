"""Write src/pgqrs/blocking.pyi: what type checkers know of `pgqrs.blocking`, made from the code of the async API.

`pgqrs.blocking` wraps every object when it is given; its types are those of the API without `await`.
`python -m tools.blocking_stub` writes it; a test tells when it is out of date.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pgqrs import blocking
from pgqrs.api import connect, workflow
from pgqrs.api.workflow import DecoratedWorkflow
from pgqrs.api.workflow_options import DecoratorOptions
from pgqrs.api.workflow_verbs import RunPage
from tools.docs.api import HIDDEN

STUB = Path(blocking.__file__).with_suffix(".pyi")
CLASSES = [*blocking._OURS, DecoratedWorkflow, RunPage]
# Functions of the API that need the event loop; `workflow` is written out below.
FUNCTIONS = [
    "admin",
    "consumer",
    "dispatcher",
    "poll_all",
    "promote",
    "retention",
    "schedules",
    "worker",
    "workflow_metrics",
]
# What these become where nothing is awaited.
_PLAIN = {"AsyncIterator": "Iterator", "AsyncGenerator": "Iterator"}
_AWAITED = {"Awaitable": 0, "Coroutine": 2}
# Public for the layers above, or of no use here.
_SKIPPED = {
    "DecoratedWorkflow": "handler signature run",
    "Store": f"{HIDDEN['Store']} forget_workflows results",
    "Trigger": "triggered",
    "Workflow": "handler signature",
}

_HEAD = """# Made by `python -m tools.blocking_stub` from the async API: edit that, not this file.
# mypy: disable-error-code="override, overload-overlap"
{imports}

__all__ = {names}

class _Portal:
    def run(self, work: Coroutine[Any, Any, T]) -> T: ...

_portal: _Portal

class Blocking:
    def __init__(self, target: Any) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
"""
_WORKFLOW = """
@overload
def workflow(name: AsyncDecoratedWorkflow[P, R]) -> DecoratedWorkflow[P, R]: ...
@overload
def workflow(name: str, **options: Unpack[DecoratorOptions]) -> Workflow[Any]: ...
"""


def stub() -> str:
    """The text of the stub, before it is formatted."""
    needed: dict[str, str] = {}
    body = [_class(each, needed) for each in CLASSES]
    body += [_function(connect, name, needed, gives="Store") for name in ("connect", "connect_with")]
    body += [_function(_home(name), name, needed) for name in FUNCTIONS]
    body.append(_WORKFLOW)
    needed |= {
        "Any": "from typing import Any",
        "Coroutine": "from collections.abc import Coroutine",
        "AsyncDecoratedWorkflow": f"from {workflow.__name__} import DecoratedWorkflow as AsyncDecoratedWorkflow",
        "DecoratorOptions": f"from {DecoratorOptions.__module__} import DecoratorOptions",
        "P": f"from {workflow.__name__} import P",
        "R": f"from {workflow.__name__} import R",
        "Self": "from typing import Self",
        "TracebackType": "from types import TracebackType",
        "Unpack": "from typing import Unpack",
        "overload": "from typing import overload",
        "discover": f"from {workflow.__name__} import discover_workflows as discover_workflows",
        "decorator": f"from {workflow.__name__} import workflow as workflow_decorator",
        "step": "from pgqrs.api.steps import step as step",
        "using": "from pgqrs.api.using import using as using",
        "verify": "from pgqrs.engine.outbox.publishers.signature import verify_signature as verify_signature",
    }
    imports = "\n".join(sorted(set(needed.values())))
    names = sorted({*blocking.__all__, *(each.__name__ for each in CLASSES)})
    return _HEAD.format(imports=imports, names=names) + "\n".join(body)


def _home(function: str) -> ModuleType:
    return sys.modules[getattr(sys.modules["pgqrs"], function).__module__]


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(sys.modules[module]))


def _class(cls: type, needed: dict[str, str]) -> str:
    own = next(
        node for node in _tree(cls.__module__).body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    bases = [ast.unparse(each) for each in own.bases if _is_kept(each)]
    generic = [each for each in own.bases if isinstance(each, ast.Subscript)]
    for each in generic:
        _need(each, cls.__module__, needed)
    if not any(base.split("[")[0] in ("list", *_names()) for base in bases):
        bases.insert(0, "Blocking")
    members = [f"    {each}\n" for each in _attributes(own, needed, cls.__module__)]
    members += [_method(node, module, needed) for node, module in _members(cls)]
    return f"\nclass {cls.__name__}({', '.join(bases)}):\n" + ("".join(members) or "    ...\n")


def _names() -> list[str]:
    return [each.__name__ for each in CLASSES]


def _is_kept(base: ast.expr) -> bool:
    """Generic[...] and bases of the stub's own; other bases are mixed in by their members."""
    name = ast.unparse(base).split("[")[0]
    return name in ("Generic", "Returning", "list", *_names())


def _attributes(own: ast.ClassDef, needed: dict[str, str], module: str) -> Iterator[str]:
    """Public attributes that `__init__` sets, and those with an annotation."""
    hidden = _SKIPPED.get(own.name, "").split()
    for node in own.body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and not node.target.id.startswith("_")
        ):
            _need(node.annotation, module, needed)
            yield f"{node.target.id}: {ast.unparse(node.annotation)}"
        if not isinstance(node, ast.FunctionDef) or node.name != "__init__":
            continue
        for each in ast.walk(node):
            match each:
                case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=kind) if (
                    not name.startswith("_") and name not in hidden
                ):
                    _need(kind, module, needed)
                    yield f"{name}: {ast.unparse(kind)}"
                case ast.Assign(targets=[ast.Attribute(attr=name)]) if (
                    not name.startswith("_") and name not in hidden
                ):
                    raise SystemExit(f"{own.name}.{name} has no type: annotate it in {module}")


def _members(cls: type) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Public functions of the class, and of bases that it does not inherit from in the stub."""
    hidden = _SKIPPED.get(cls.__name__, "").split()
    seen: set[str] = set()
    inherited = {base for each in CLASSES if each is not cls and issubclass(cls, each) for base in each.__mro__}
    for base in cls.__mro__:
        if base in inherited or not base.__module__.startswith("pgqrs."):
            continue
        node = next(
            each
            for each in _tree(base.__module__).body
            if isinstance(each, ast.ClassDef) and each.name == base.__name__
        )
        found = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
        for each in found:
            if each.name.startswith("_") or each.name in hidden or each.name in seen:
                continue
            overloads = [one for one in found if one.name == each.name and _has(one, "overload")]
            if overloads and not _has(each, "overload"):
                continue
            yield each, base.__module__
        seen |= {each.name for each in found}


def _has(node: ast.FunctionDef | ast.AsyncFunctionDef, decorator: str) -> bool:
    return any(ast.unparse(each).split(".")[-1] == decorator for each in node.decorator_list)


def _method(node: ast.FunctionDef | ast.AsyncFunctionDef, module: str, needed: dict[str, str]) -> str:
    kept = ["property"] if _has(node, "property") or _has(node, "cached_property") else []
    kept += [each for each in ("overload", "staticmethod", "classmethod") if _has(node, each)]
    return "".join(f"    @{each}\n" for each in kept) + "    " + _signature(node, module, needed)


def _function(module: ModuleType, name: str, needed: dict[str, str], *, gives: str | None = None) -> str:
    node = next(
        each
        for each in _tree(module.__name__).body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == name
    )
    return "\n" + _signature(node, module.__name__, needed, gives=gives)


def _signature(
    node: ast.FunctionDef | ast.AsyncFunctionDef, module: str, needed: dict[str, str], *, gives: str | None = None
) -> str:
    arguments = node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    for each in every:
        if each is not None and each.annotation is not None:
            _need(each.annotation, module, needed)
    arguments.defaults = [_default(each) for each in arguments.defaults]
    arguments.kw_defaults = [None if each is None else _default(each) for each in arguments.kw_defaults]
    returns = node.returns or ast.Constant(value=None)
    given = gives or ast.unparse(_plain(returns))
    if gives is None:
        _need(_plain(returns), module, needed)
    return f"def {node.name}({ast.unparse(arguments)}) -> {given}: ...\n"


def _default(value: ast.expr) -> ast.expr:
    return value if isinstance(value, ast.Constant) else ast.Constant(value=...)


def _plain(kind: ast.expr) -> ast.expr:
    if not isinstance(kind, ast.Subscript) or not isinstance(kind.value, ast.Name):
        return kind
    if kind.value.id in _AWAITED:
        inside: Any = kind.slice
        return inside.elts[_AWAITED[kind.value.id]] if isinstance(inside, ast.Tuple) else inside
    if kind.value.id in _PLAIN:
        inside = kind.slice.elts[0] if isinstance(kind.slice, ast.Tuple) else kind.slice
        return ast.Subscript(ast.Name(_PLAIN[kind.value.id]), inside)
    return kind


def _need(kind: ast.expr, module: str, needed: dict[str, str]) -> None:
    """The imports of the names in an annotation, as its module has them."""
    for name in {each.id for each in ast.walk(kind) if isinstance(each, ast.Name)}:
        if name in _names() or name in needed or hasattr(builtins, name):
            continue
        if name == "Iterator":
            needed[name] = "from collections.abc import Iterator"
            continue
        needed[name] = next(_imports(name, module), f"from {module} import {name}")


def _imports(name: str, module: str) -> Iterator[str]:
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) != name:
                    continue
                written = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
                yield (
                    f"from {node.module} import {written}"
                    if isinstance(node, ast.ImportFrom)
                    else f"import {written}"
                )


def formatted() -> str:
    """As `make check` wants it."""
    text = stub()
    for command in (("check", "--fix-only"), ("format",)):
        asked = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(asked, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    STUB.write_text(formatted(), encoding="utf-8")
    print(f"{STUB.name}: {len(CLASSES)} classes")
