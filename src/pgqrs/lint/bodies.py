"""Which functions are workflow bodies, and what of them runs again on each replay.

A body is a function decorated with `workflow`, one that is given to `.handler(...)` or `.workflows(...)`, or one
whose first parameter is a context that it asks for steps. What is given to a step runs once, and is not looked at.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from pgqrs.lint.names import ModuleNames

Function = ast.FunctionDef | ast.AsyncFunctionDef

# As the engine tells a context from a parameter.
_CONTEXT_NAMES = frozenset({"ctx", "context", "_ctx", "workflow_ctx", "wf_ctx"})
_OURS = ("pgqrs.", "pgqrs.decorators.")
# What a context is asked for; all of it is to be awaited in an async body.
VERBS = frozenset(
    {"step", "sleep", "pause", "wait_for", "spawn", "map", "first", "gather", "transaction", "emit", "progress"}
    | {"now", "uuid", "random"}
)
# Those that NotAllowedInStep refuses.
_WAITS = frozenset({"step", "sleep", "pause", "wait_for", "spawn", "map", "first", "transaction"})
# Those that take the body of a step as their second argument.
_STEPS = frozenset({"step", "transaction"})


@dataclass(slots=True)
class WorkflowBody:
    """A function that is replayed, and the names that matter in it."""

    function: Function
    # None when the context travels by itself.
    context: str | None
    # Functions of the module that are steps, and those that are workflows: called here, they are children.
    steps: frozenset[str]
    workflows: frozenset[str] = frozenset()
    # Those inside of it that are replayed with it: they ask the context, or are called by name.
    inner: set[Function] = field(default_factory=set)

    @property
    def is_async(self) -> bool:
        return isinstance(self.function, ast.AsyncFunctionDef)

    def verb(self, node: ast.AST) -> str | None:
        """What is asked of the context by this call, `step` or `spawn` for one of a decorated function; else None."""
        if not isinstance(node, ast.Call):
            return None
        match node.func:
            case ast.Attribute(value=ast.Name(id=name), attr=verb) if name == self.context and verb in VERBS:
                return verb
            case ast.Name(id=name) if name in self.steps:
                return "step"
            case ast.Name(id=name) if name in self.workflows:
                return "spawn"
            case _:
                return None

    @property
    def children(self) -> frozenset[str]:
        """Names that the body gives to children: `child = await ctx.spawn(...)`."""
        found = set()
        for node in ast.walk(self.function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Await(value=call) | call):
                    if (
                        isinstance(call, ast.Call)
                        and isinstance(call.func, ast.Attribute)
                        and self.verb(call) == "spawn"
                    ):
                        found.add(name)
                case _:
                    pass
        return frozenset(found)

    def given_to_steps(self) -> list[ast.expr]:
        """What is given to a step of the body as its function."""
        calls = [node for node in ast.walk(self.function) if isinstance(node, ast.Call)]
        return [
            call.args[1]
            for call in calls
            if isinstance(call.func, ast.Attribute) and self.verb(call) in _STEPS and len(call.args) > 1
        ]

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


def bodies(tree: ast.Module, names: ModuleNames) -> list[WorkflowBody]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    steps = frozenset(each.name for each in functions if _is_decorated(each, "step", names))
    given = _given_to_workers(tree)
    workflows = frozenset(each.name for each in functions if _is_workflow(each, names))
    nested = {inner for each in functions for inner in _inside(each)}
    found = []
    for function in functions:
        if function.name in steps:
            continue
        context = _context_of(function)
        body = WorkflowBody(function, context, steps, workflows)
        is_body = (
            _is_workflow(function, names)
            or (function.name in given and function not in nested)
            or (function.name in given and context is not None)
            or (context is not None and _asks_for_steps(function, context))
        )
        if is_body:
            body.inner = _inner(body)
            found.append(body)
    return found


@dataclass(frozen=True, slots=True)
class StepBody:
    """A function that a step runs, and the names by which it could ask for a wait."""

    function: Function | ast.Lambda
    contexts: frozenset[str]
    children: frozenset[str] = frozenset()

    def waits(self) -> Iterator[ast.Call]:
        """What it asks of a context, or of a child, that makes a run wait."""
        for node in ast.walk(self.function):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=verb)):
                    if (name in self.contexts and verb in _WAITS) or (name in self.children and verb == "result"):
                        yield node
                case _:
                    pass


def step_bodies(tree: ast.Module, names: ModuleNames) -> Iterator[StepBody]:
    """Functions decorated with `step`, and functions and lambdas of this module that a body gives to a step."""
    by_name: dict[str, list[Function]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            by_name.setdefault(node.name, []).append(node)
    for function in step_functions(tree, names):
        context = _context_of(function)
        yield StepBody(function, frozenset() if context is None else frozenset({context}))
    for body in bodies(tree, names):
        for given in body.given_to_steps():
            yield from _given_bodies(body, given, by_name)


def _given_bodies(body: WorkflowBody, given: ast.expr, by_name: dict[str, list[Function]]) -> Iterator[StepBody]:
    """A lambda or a function inside of the body sees its context; a function of the module only one that it takes."""
    name = given.id if isinstance(given, ast.Name) else None
    inside: list[Function | ast.Lambda] = [each for each in _inside(body.function) if each.name == name]
    if isinstance(given, ast.Lambda):
        inside.append(given)
    for function in inside or by_name.get(name or "", []):
        contexts = {_context_of(function), body.context if inside else None} - {None}
        yield StepBody(function, frozenset(filter(None, contexts)), body.children if inside else frozenset())


def step_functions(tree: ast.Module, names: ModuleNames) -> list[Function]:
    """Functions decorated with `step`: what they return is stored."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_decorated(node, "step", names)
    ]


def _is_workflow(function: Function, names: ModuleNames) -> bool:
    return any(_is_decorated(function, by, names) for by in ("workflow", "workflow_decorator"))


def _is_decorated(function: Function, by: str, names: ModuleNames) -> bool:
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


def _context_of(function: Function | ast.Lambda) -> str | None:
    arguments = [*function.args.posonlyargs, *function.args.args]
    if not arguments:
        return None
    first = arguments[0]
    note = ast.unparse(first.annotation) if first.annotation is not None else ""
    return first.arg if first.arg in _CONTEXT_NAMES or note.endswith(("PyWorkflow", "Context")) else None


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


def _inner(body: WorkflowBody) -> set[Function]:
    """Functions inside of the body that are part of it: they use its context, or it calls them itself."""
    inner = set()
    steps = {given.id for given in body.given_to_steps() if isinstance(given, ast.Name)}
    for function in _inside(body.function):
        if _context_of(function) is not None or function.name in steps:
            # A body of its own, or the body of a step.
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
