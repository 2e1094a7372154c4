"""Name the class of an error in a record, and find it again, without running what a record says.

A record is text that an attacker may have written. Therefore:

- Nothing is imported by a name from a record. A class is looked up in modules that are loaded. If its module is not
  loaded, the program's own import statements of the same root package are carried out, as they stand in its source.
- The lookup reads namespaces (`__dict__`) only. No `__getattr__` of a module or of a metaclass is called.
- Only subclasses of Exception are ever returned.

The writer of a record is stricter than its reader. It names a class only if every process that runs this program
finds it: in the handler's module, in a module that was loaded before the first run, or in a package that the program
imports by a statement. The record marks any other class as unknown, and every reader respects that. So the first
pass and all later ones agree.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from pgqrs.engine.recorded_errors.imports import Import, carry_out, namespace_of, program_imports

# What these names mean differs from process to process.
_MAINS = frozenset({"__main__", "__mp_main__"})
_ALWAYS = frozenset({"builtins", "pgqrs.errors"})

_class_namespace = type.__dict__["__dict__"].__get__
_class_mro = type.__dict__["__mro__"].__get__
_class_module = type.__dict__["__module__"].__get__
_class_qualname = type.__dict__["__qualname__"].__get__


class ClassName(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a record names a class. `home`: of the handler's own module, whatever that is called in this process."""

    module: str = ""
    qualname: str = ""
    home: bool = False


class Program:
    """The program of a handler: it decides which classes of errors can be brought back."""

    def __init__(self, function: Callable[..., Any]) -> None:
        function = _innermost(function)
        self._globals: dict[str, Any] = _globals_of(function)
        self._module = self._globals.get("__name__")
        self._file = _file_of(function, self._globals)
        self._loaded = frozenset(sys.modules)
        self._carried_out: set[Import] = set()

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Program:
        """Return the program of a handler, made when this is called for the first time.

        Call it before the first run is executed, and after the handler's module is imported: a class counts as known
        if its module is loaded at that time.
        """
        try:
            known = _programs.get(function)
            if known is None:
                known = _programs[function] = cls(function)
        except TypeError:  # not hashable, or without weak references
            return cls(function)
        return known

    def name(self, kind: type) -> ClassName:
        module, qualname = _class_module(kind), _class_qualname(kind)
        if not isinstance(module, str):
            return ClassName("", qualname)
        return ClassName(module, qualname, home=module == self._module)

    def knows(self, kind: type) -> bool:
        """Tell whether every process that runs this program finds the class by its name."""
        name = self.name(kind)
        return self._lasts(name) and self.find(name) is kind

    def find(self, name: ClassName) -> type[Exception] | None:
        """Return the class of that name, if it is one of an exception; see the head of this module."""
        if name.home:
            return _walk(self._globals, name.qualname)
        if name.module in _MAINS or not name.module:
            return None
        found = self._look(name)
        if found is not None or name.module in sys.modules:
            return found
        for statement in self._statements(name.module):
            if statement in self._carried_out:
                continue
            self._carried_out.add(statement)
            # A module that cannot be imported here leaves the class unknown; one that exits ends nothing.
            with contextlib.suppress(Exception, SystemExit):
                carry_out(statement)
            if (found := self._look(name)) is not None:
                return found
        return None

    def plainly_named(self, name: str) -> type[Exception] | None:
        """Return the class that a record of an earlier version meant: it has only the short name."""
        for module in (None, "builtins", "pgqrs.errors"):
            found = self.find(ClassName(module or "", name, home=module is None))
            if found is not None:
                return found
        return None

    def _look(self, name: ClassName) -> type[Exception] | None:
        namespace = namespace_of(sys.modules.get(name.module))
        return None if namespace is None else _walk(namespace, name.qualname)

    def _lasts(self, name: ClassName) -> bool:
        if name.home or name.module in _ALWAYS:
            return True
        if name.module in _MAINS:
            return False
        return name.module in self._loaded or bool(self._statements(name.module))

    def _statements(self, module: str) -> list[Import]:
        """Return the program's own import statements of the package that the module is in, the nearest first."""
        known = self._imports.get(module.partition(".")[0], ())
        return sorted(known, key=lambda statement: not f"{module}.".startswith(f"{statement.module}."))

    @functools.cached_property
    def _imports(self) -> dict[str, tuple[Import, ...]]:
        if self._file is None:
            return {}
        package = self._globals.get("__package__")
        return program_imports(self._file, package if isinstance(package, str) else "")


_programs: WeakKeyDictionary[Callable[..., Any], Program] = WeakKeyDictionary()


def mro_of(kind: type) -> tuple[type, ...]:
    mro: tuple[type, ...] = _class_mro(kind)
    return mro


def is_below(kind: type, base: type) -> bool:
    """Tell whether a class is `base` or derives from it, without asking a metaclass."""
    return any(each is base for each in mro_of(kind))


def members_of(kind: type) -> Mapping[str, Any]:
    """Return what stands in the body of a class, without asking its metaclass."""
    namespace: Mapping[str, Any] = _class_namespace(kind)
    return namespace


def can_be_extended(kind: type) -> bool:
    """Tell whether a subclass can be made without running code of the class."""
    return type(kind) is type and not any("__init_subclass__" in members_of(each) for each in mro_of(kind)[:-1])


def _walk(namespace: Mapping[str, Any], qualname: str) -> type[Exception] | None:
    """Return the exception class at `Outer.Inner` of a namespace."""
    found: Any = None
    for part in qualname.split("."):
        found = namespace.get(part)
        # `isinstance` would ask a proxy for its `__class__`.
        if not issubclass(type(found), type):
            return None
        namespace = members_of(found)
    return found if is_below(found, Exception) else None


def _innermost(function: Any) -> Any:
    """Return the function that a handler is made of: inside of wrappers, partials, methods and callable objects."""
    for _ in range(100):
        if isinstance(function, functools.partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    if isinstance(function, (FunctionType, type)):
        return function
    return _innermost(type(function).__call__)


def _globals_of(function: Any) -> dict[str, Any]:
    found = getattr(function, "__globals__", None)
    if isinstance(found, dict):
        return found
    return namespace_of(sys.modules.get(getattr(function, "__module__", ""))) or {}


def _file_of(function: Any, namespace: dict[str, Any]) -> str | None:
    code = getattr(function, "__code__", None)
    file = namespace.get("__file__") or (code.co_filename if code is not None else None)
    return file if isinstance(file, str) else None
