"""Read the import statements of a program from its source, without running any of it."""

from __future__ import annotations

import ast
import functools
import importlib.util
import sys
import sysconfig
import tokenize
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

# A program of more modules of its own than this is read no further.
_MOST_MODULES = 500


class Import(NamedTuple):
    """One import statement: `from module import names`, or `import module` if there are none."""

    module: str
    names: tuple[str, ...] = ()


class _Source(NamedTuple):
    file: str
    package: str


def program_imports(file: str, package: str) -> dict[str, tuple[Import, ...]]:
    """Return the import statements of a module and of the program's own modules that it reaches, by root package.

    The program's own modules are those outside of the standard library and of site-packages.
    """
    found: dict[str, list[Import]] = {}
    waiting, seen = [_Source(file, package)], {file}
    while waiting and len(seen) <= _MOST_MODULES:
        source = waiting.pop()
        for statement in _statements(source.file, source.package):
            known = found.setdefault(_root(statement.module), [])
            if statement not in known:
                known.append(statement)
            for name in _modules_of(statement):
                reached = _own_source(name)
                if reached is not None and reached.file not in seen:
                    seen.add(reached.file)
                    waiting.append(reached)
    return {root: tuple(statements) for root, statements in found.items()}


def carry_out(statement: Import) -> None:
    """Import what the statement imports. Raises what the imported module raises."""
    __import__(statement.module, fromlist=statement.names)


def namespace_of(module: Any) -> dict[str, Any] | None:
    """Return a module's namespace without running a `__getattr__` of its own; None if it is not a module."""
    if not issubclass(type(module), ModuleType):
        return None
    namespace: dict[str, Any] = vars(ModuleType)["__dict__"].__get__(module)
    return namespace


def _root(module: str) -> str:
    return module.partition(".")[0]


def _modules_of(statement: Import) -> Iterator[str]:
    """Yield the modules that a statement may load: packages first, then what may be a module in them."""
    parts = statement.module.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
    for name in statement.names:
        yield f"{statement.module}.{name}"


@functools.lru_cache(maxsize=2048)
def _statements(file: str, package: str) -> tuple[Import, ...]:
    try:
        with tokenize.open(file) as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(_walk(tree.body, package))


def _walk(nodes: Iterable[ast.AST], package: str) -> Iterator[Import]:
    for node in nodes:
        match node:
            case ast.Import(names=names):
                yield from (Import(name.name) for name in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = _absolute(module or "", level, package)
                if base:
                    yield Import(base, tuple(name.name for name in names if name.name != "*"))
            case ast.If(test=test, orelse=orelse) if _never_runs_in_a_worker(test):
                yield from _walk(orelse, package)
            case _:
                yield from _walk(ast.iter_child_nodes(node), package)


def _absolute(module: str, level: int, package: str) -> str | None:
    if not level:
        return module
    try:
        return importlib.util.resolve_name("." * level + module, package)
    except ImportError:
        return None


def _never_runs_in_a_worker(test: ast.expr) -> bool:
    """Tell whether this is `if TYPE_CHECKING` or `if __name__ == "__main__"`."""
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()], comparators=[ast.Constant(value="__main__")]):
            return True
        case _:
            return False


def _own_source(name: str) -> _Source | None:
    """Return where the source of one of the program's own modules is; None for all others."""
    if _root(name) == "pgqrs" or _root(name) in sys.stdlib_module_names:
        return None
    origin, is_package = _origin(name)
    if origin is None or not origin.endswith(".py") or not _is_own(origin):
        return None
    return _Source(origin, name if is_package else name.rpartition(".")[0])


def _origin(name: str) -> tuple[str | None, bool]:
    loaded = namespace_of(sys.modules.get(name))
    if loaded is not None:
        file = loaded.get("__file__")
        return (file if isinstance(file, str) else None), "__path__" in loaded
    spec = _spec_of(name)
    if spec is None:
        return None, False
    return spec.origin, spec.submodule_search_locations is not None


def _spec_of(name: str) -> ModuleSpec | None:
    """Find a module that is not loaded. Unlike importlib.util.find_spec this imports no parent package."""
    parent = name.rpartition(".")[0]
    try:
        path = None
        if parent:
            above = _spec_of(parent)
            if above is None or above.submodule_search_locations is None:
                return None
            path = list(above.submodule_search_locations)
        return PathFinder.find_spec(name, path)
    except Exception:  # noqa: BLE001 - finders may raise anything; a module that cannot be found is read no further
        return None


@functools.lru_cache(maxsize=2048)
def _is_own(file: str) -> bool:
    parts = Path(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        return False
    return not any(Path(file).is_relative_to(folder) for folder in _standard_library())


@functools.cache
def _standard_library() -> tuple[str, ...]:
    return tuple(path for key in ("stdlib", "platstdlib") if (path := sysconfig.get_path(key)))
