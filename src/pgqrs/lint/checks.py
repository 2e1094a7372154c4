"""A body, looked at: what in it differs from one replay to the next, or is lost."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pgqrs.lint import rules
from pgqrs.lint.bodies import Function, WorkflowBody, bodies, step_bodies, step_functions
from pgqrs.lint.names import ModuleNames, own_names
from pgqrs.lint.rules import Rule

Place = ast.expr | ast.stmt | ast.excepthandler
Found = tuple[Place, Rule, str]

_LOOPS = (ast.For, ast.AsyncFor)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def findings(tree: ast.Module) -> Iterator[Found]:
    """Everything in a module; the same place may come more than once."""
    names = ModuleNames(tree)
    for body in bodies(tree, names):
        yield from _calls(body, names)
        yield from _not_awaited(body)
        yield from _called_before(body)
        yield from _unordered(body, names)
        yield from _swallowed(body, names)
        yield from _results(body, names)
    for step in step_functions(tree, names):
        yield from _returned(step, list(_own_returns(step)), names, "the step")
    for step_body in step_bodies(tree, names):
        for call in step_body.waits():
            yield call, rules.WAIT_IN_STEP, f"{ast.unparse(call.func)}() in the body of a step"


# -- what differs each time ------------------------------------------------------------------------------


def _calls(body: WorkflowBody, names: ModuleNames) -> Iterator[Found]:
    own = own_names(body.function)
    for node in body.replayed():
        match node:
            case ast.Call(func=function):
                full = names.full(function, own)
                rule = None if full is None else rules.rule_for(full)
                if full is not None and rule is not None and not _is_fine(node, full):
                    yield node, rule, f"{full}() in a workflow body"
                elif full == "asyncio.wait" and _is_a_race(node):
                    yield node, rules.RACE, "asyncio.wait() for the first one in a workflow body"
                elif full == "asyncio.wait" and _has_a_deadline(node):
                    yield node, rules.DEADLINE, "asyncio.wait(timeout=) in a workflow body"
                elif full is None and isinstance(function, ast.Attribute) and function.attr in rules.METHODS:
                    yield node, rules.METHODS[function.attr], f".{function.attr}() in a workflow body"
            case ast.Attribute() | ast.Name():
                full = names.full(node, own)
                if full in rules.VALUES:
                    yield node, rules.VALUES[full], f"{full} in a workflow body"
            case ast.Global(names=globals_):
                yield node, rules.GLOBAL, f"global {', '.join(globals_)} in a workflow body"
            case _:
                pass


def _is_fine(call: ast.Call, full: str) -> bool:
    return full in rules.FIXED_BY_ARGUMENTS and bool(call.args)


def _is_a_race(call: ast.Call) -> bool:
    wanted = [keyword.value for keyword in call.keywords if keyword.arg == "return_when"]
    return any("FIRST_" in ast.unparse(each) for each in wanted)


def _has_a_deadline(call: ast.Call) -> bool:
    return any(
        keyword.arg == "timeout" and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None)
        for keyword in call.keywords
    )


# -- steps that nobody waits for -------------------------------------------------------------------------


def _not_awaited(body: WorkflowBody) -> Iterator[Found]:
    if not body.is_async:
        return
    used = {
        node.id for node in ast.walk(body.function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    children = body.children
    for node in body.replayed():
        for call in _left_alone(node, used):
            asks = body.verb(call) is not None or _asks_a_child(call, children)
            if asks and not _inside_plain_function(body, node):
                yield call, rules.NOT_AWAITED, f"{ast.unparse(call.func)}() is not awaited"


# -- what runs before it is handed over ------------------------------------------------------------------


def _called_before(body: WorkflowBody) -> Iterator[Found]:
    """In a plain body `first` and `gather` take functions; a call among their arguments waits there, by itself."""
    if body.is_async:
        return
    children = body.children
    for node in body.replayed():
        verb = body.verb(node)
        if isinstance(node, ast.Call) and verb in ("first", "gather") and isinstance(node.func, ast.Attribute):
            for call in _handed_over(node):
                if body.verb(call) is not None or _asks_a_child(call, children):
                    said = f"{ast.unparse(call.func)}() is called before {ast.unparse(node.func)}()"
                    yield call, rules.CALLED, said


def _handed_over(call: ast.Call) -> Iterator[ast.Call]:
    """The calls among the arguments, also those of a list or a comprehension that is unpacked there."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    for value in given:
        match value:
            case ast.Starred(value=ast.ListComp(elt=part) | ast.GeneratorExp(elt=part)):
                parts = [part]
            case ast.Starred(value=ast.List(elts=parts) | ast.Tuple(elts=parts)):
                pass
            case _:
                parts = [value]
        yield from (part for part in parts if isinstance(part, ast.Call))


def _left_alone(node: ast.AST, used: set[str]) -> list[ast.Call]:
    """The calls whose results the node takes as they are: dropped, returned, or used as a value."""
    match node:
        case ast.Expr(value=value) | ast.Return(value=value):
            values: list[ast.expr | None] = [value]
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in used:
            values = [value]
        case ast.If(test=value) | ast.While(test=value) | ast.IfExp(test=value) | ast.Assert(test=value):
            values = [value]
        case ast.UnaryOp(operand=value) | ast.FormattedValue(value=value) | ast.Subscript(value=value):
            values = [value]
        case ast.BoolOp(values=parts):
            values = [*parts]
        case ast.BinOp(left=left, right=right):
            values = [left, right]
        case ast.Compare(left=left, comparators=parts):
            values = [left, *parts]
        case ast.Attribute(value=value) | ast.For(iter=value):
            values = [value]
        case _:
            return []
    return [value for value in values if isinstance(value, ast.Call)]


def _asks_a_child(call: ast.Call, children: frozenset[str]) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id=name), attr="result"):
            return name in children
        case _:
            return False


def _inside_plain_function(body: WorkflowBody, node: ast.AST) -> bool:
    """A plain function inside of the body may hand a step to whoever awaits it."""
    return any(
        isinstance(function, ast.FunctionDef) and any(each is node for each in ast.walk(function))
        for function in body.inner
    )


# -- sets ------------------------------------------------------------------------------------------------


def _unordered(body: WorkflowBody, names: ModuleNames) -> Iterator[Found]:
    own = own_names(body.function)
    nodes = list(body.replayed())
    sets = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _is_a_set(node.value, names, own, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    # A name that is given something else somewhere else may be anything.
    sets -= {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and not _is_a_set(node.value, names, own, frozenset(sets))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    known = frozenset(sets)
    for node in nodes:
        if isinstance(node, _LOOPS) and _is_a_set(node.iter, names, own, known) and _asks(body, *node.body):
            yield node.iter, rules.UNORDERED, "a loop over a set runs steps"
        elif isinstance(node, _COMPREHENSIONS) and _asks(body, node):
            for each in node.generators:
                if _is_a_set(each.iter, names, own, known):
                    yield each.iter, rules.UNORDERED, "a loop over a set runs steps"


def _is_a_set(node: ast.expr, names: ModuleNames, own: frozenset[str], known: frozenset[str]) -> bool:
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=function):
            return names.full(function, own) in ("set", "frozenset")
        case ast.BinOp(left=left, right=right, op=ast.BitOr() | ast.BitAnd() | ast.Sub() | ast.BitXor()):
            return _is_a_set(left, names, own, known) or _is_a_set(right, names, own, known)
        case ast.Name(id=name):
            return name in known
        case _:
            return False


def _asks(body: WorkflowBody, *nodes: ast.AST) -> bool:
    """Does any of it ask the context for something?"""
    return any(body.verb(node) for node in body.replayed(*nodes))


# -- what a wait raises ----------------------------------------------------------------------------------


def _swallowed(body: WorkflowBody, names: ModuleNames) -> Iterator[Found]:
    own = own_names(body.function)
    for node in body.replayed():
        match node:
            case ast.Try(body=tried, handlers=handlers) if _asks(body, *tried):
                for handler in handlers:
                    if _catches_all(handler, names, own) and not _raises(handler):
                        what = "except BaseException" if handler.type is not None else "a bare except"
                        yield handler, rules.SWALLOWED, f"{what} around a step or a wait"
            case ast.With(items=items, body=inside) | ast.AsyncWith(items=items, body=inside) if _asks(body, *inside):
                for item in items:
                    call = item.context_expr
                    if (
                        isinstance(call, ast.Call)
                        and names.full(call.func, own) == "contextlib.suppress"
                        and any(names.full(each, own) == "BaseException" for each in call.args)
                    ):
                        yield call, rules.SWALLOWED, "suppress(BaseException) around a step or a wait"
            case _:
                pass


def _catches_all(handler: ast.ExceptHandler, names: ModuleNames, own: frozenset[str]) -> bool:
    match handler.type:
        case None:
            return True
        case ast.Tuple(elts=kinds):
            return any(names.full(kind, own) == "BaseException" for kind in kinds)
        case kind:
            return names.full(kind, own) == "BaseException"


def _raises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


# -- what is stored --------------------------------------------------------------------------------------


def _results(body: WorkflowBody, names: ModuleNames) -> Iterator[Found]:
    """What the body returns, what its steps return, and what it gives to children and events."""
    yield from _returned(
        body.function, [n for n in body.replayed() if isinstance(n, ast.Return)], names, "the workflow"
    )
    own = own_names(body.function)
    for node in body.replayed():
        if not isinstance(node, ast.Call) or body.verb(node) is None or isinstance(node.func, ast.Name):
            continue
        verb = body.verb(node)
        if verb in ("step", "transaction") and len(node.args) > 1 and isinstance(node.args[1], ast.Lambda):
            said = _cannot_be_stored(node.args[1].body, names, own)
            if said:
                yield node.args[1], rules.UNSTORABLE, f"the step returns {said}"
        elif verb in ("spawn", "emit") and len(node.args) > 1:
            said = _cannot_be_stored(node.args[1], names, own)
            if said:
                yield node.args[1], rules.UNSTORABLE, f"ctx.{verb}() is given {said}"


def _returned(function: Function, returns: list[ast.Return], names: ModuleNames, who: str) -> Iterator[Found]:
    own = own_names(function)
    for node in returns:
        said = None if node.value is None else _cannot_be_stored(node.value, names, own)
        if said:
            yield node, rules.UNSTORABLE, f"{who} returns {said}"


def _own_returns(function: Function) -> Iterator[ast.Return]:
    todo: list[ast.AST] = [*function.body]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Return):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            todo += ast.iter_child_nodes(node)


def _cannot_be_stored(node: ast.expr, names: ModuleNames, own: frozenset[str]) -> str | None:
    match node:
        case ast.Lambda():
            return "a function"
        case ast.GeneratorExp():
            return "a generator"
        case ast.Call(func=function):
            full = names.full(function, own)
            return f"what {full}() gives" if full in rules.UNSTORABLE_CALLS else None
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return next((said for part in parts if (said := _cannot_be_stored(part, names, own))), None)
        case ast.Dict(values=parts):
            return next((said for part in parts if (said := _cannot_be_stored(part, names, own))), None)
        case _:
            return None
