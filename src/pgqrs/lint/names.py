"""What a name stands for: imports under any alias, unless a function has the name for something of its own."""

from __future__ import annotations

import ast
import builtins

_BUILTINS = frozenset(dir(builtins))
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class ModuleNames:
    """The imports of a module (those inside of functions count everywhere), and the names it gives to its own."""

    def __init__(self, tree: ast.Module) -> None:
        self._imported: dict[str, str] = {}
        self._own = {name for node in tree.body for name in _bound_by(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    # `import a.b` gives the name a; `import a.b as c` gives c, which is a.b.
                    first = alias.name.partition(".")[0]
                    self._imported[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    self._imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    def full(self, node: ast.expr, own: frozenset[str] = frozenset()) -> str | None:
        """`dt.now` as `datetime.datetime.now`; None for what was not imported. `own`: names of the function's."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in own:
            return None
        base = self._imported.get(node.id)
        if base is None and node.id in _BUILTINS and node.id not in self._own:
            base = node.id
        return None if base is None else ".".join([base, *reversed(parts)])


def own_names(function: FunctionNode) -> frozenset[str]:
    """Parameters, and what the function assigns to: these are no imports, whatever they are called."""
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    names = {each.arg for each in listed if each is not None}
    if not isinstance(function, ast.Lambda):
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return frozenset(names)


def _bound_by(node: ast.stmt) -> set[str]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case _:
            return set()
