"""Which functions are workflow bodies, and what of them runs again on each replay.

A body is a function decorated with `workflow`, one that is given to `.handler(...)` or `.workflows(...)`, or one
whose first parameter is a context that it asks for steps. What is given to a step runs once, and is not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgqrs.lint.names import Names

Function = ast.FunctionDef | ast.AsyncFunctionDef

# As the engine tells a context from a parameter.
_CONTEXT_NAMES = frozenset({"ctx", "context", "_ctx", "workflow_ctx", "wf_ctx"})
_OURS = ("pgqrs.", "pgqrs.decorators.")
# What a context is asked for; all of it is to be awaited in an async body.
VERBS = frozenset(
    {"step", "sleep", "pause", "wait_for", "spawn", "map", "gather", "transaction", "emit", "progress"}
    | {"now", "uuid", "random"}
)


@dataclass(slots=True)
class Body:
    """A function that is replayed, and the names that matter in it."""

    function: Function
    # None when the context travels by itself.
    context: str | None
    # Functions of the module that are steps.
    steps: frozenset[str]
    # Those inside of it that are replayed with it: they ask the context, or are called by name.
    inner: set[Function] = field(default_factory=set)

    @property
    def is_async(self) -> bool:
        return isinstance(self.function, ast.AsyncFunctionDef)

    def verb(self, node: ast.AST) -> str | None:
        """What is asked of the context by this call, `step` for a call of a decorated step; else None."""
        if not isinstance(node, ast.Call):
            return None
        match node.func:
            case ast.Attribute(value=ast.Name(id=name), attr=verb) if name == self.context and verb in VERBS:
                return verb
            case ast.Name(id=name) if name in self.steps:
                return "step"
            case _:
                return None

    def replayed(self, *roots: ast.AST) -> Iterator[ast.AST]:
        """All nodes that run on each replay: not the functions and lambdas that are handed to others."""
        todo: list[ast.AST] = [*(roots or self.function.body)]
        while todo:
            node = todo.pop()
            yield node
            if isinstance(node, ast.Lambda | ast.ClassDef):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                # Its defaults are worked out here; its body only when it belongs to this one.
                todo += [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
                if node in self.inner:
                    todo += node.body
                continue
            todo += ast.iter_child_nodes(node)


def bodies(tree: ast.Module, names: Names) -> list[Body]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    steps = frozenset(each.name for each in functions if _is_decorated(each, "step", names))
    given = _given_to_workers(tree)
    nested = {inner for each in functions for inner in _inside(each)}
    found = []
    for function in functions:
        if function.name in steps:
            continue
        context = _context_of(function)
        body = Body(function, context, steps)
        is_body = (
            _is_decorated(function, "workflow", names)
            or _is_decorated(function, "workflow_decorator", names)
            or (function.name in given and function not in nested)
            or (function.name in given and context is not None)
            or (context is not None and _asks_for_steps(function, context))
        )
        if is_body:
            body.inner = _inner(body)
            found.append(body)
    return found


def step_functions(tree: ast.Module, names: Names) -> list[Function]:
    """Functions decorated with `step`: what they return is stored."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_decorated(node, "step", names)
    ]


def _is_decorated(function: Function, by: str, names: Names) -> bool:
    for decorator in function.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if names.full(called) in {f"{prefix}{by}" for prefix in _OURS}:
            return True
    return False


def _given_to_workers(tree: ast.Module) -> set[str]:
    """Names of functions in `.handler(f)` and `.workflows({"x": f})`."""
    given: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="handler"), args=[ast.Name(id=name)]):
                given.add(name)
            case ast.Call(func=ast.Attribute(attr="workflows"), args=[ast.Dict(values=values)]):
                given |= {value.id for value in values if isinstance(value, ast.Name)}
            case _:
                pass
    return given


def _context_of(function: Function) -> str | None:
    arguments = [*function.args.posonlyargs, *function.args.args]
    if not arguments:
        return None
    first = arguments[0]
    note = ast.unparse(first.annotation) if first.annotation is not None else ""
    return first.arg if first.arg in _CONTEXT_NAMES or note.endswith("PyWorkflow") else None


def _asks_for_steps(function: Function, context: str) -> bool:
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == context
        and node.func.attr in ("step", "transaction", "spawn", "wait_for")
        for node in ast.walk(function)
    )


def _inside(function: Function) -> list[Function]:
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not function
    ]


def _inner(body: Body) -> set[Function]:
    """Functions inside of the body that are part of it: they use its context, or it calls them itself."""
    inner = set()
    for function in _inside(body.function):
        if _context_of(function) is not None:
            # A body of its own, or somebody else's.
            continue
        if any(body.verb(node) for node in ast.walk(function)):
            inner.add(function)
    called = {
        node.func.id for node in body.replayed() if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return inner | {
        each
        for each in _inside(body.function)
        if each.name in called and each.name not in body.steps and _context_of(each) is None
    }
