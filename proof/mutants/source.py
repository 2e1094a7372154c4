"""Finds parts of the library's source by name: `module:function`, or for SQL `file:query`."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

_QUERY = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_LINE = re.compile(r"^( *)(.*)$", re.MULTILINE)


class NoLongerApplies(Exception):
    """The library has changed: the mutant must be rewritten, or it breaks nothing any more."""


def file_of(where: str, library: Path) -> Path:
    """The file that holds the named part."""
    name = where.partition(":")[0]
    if name.endswith(".sql"):
        file = library / name
    else:
        module = library.joinpath(*name.split("."))
        file = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    if not file.is_file():
        raise NoLongerApplies(f"pgqrs has no {name}")
    return file


def replaced(text: str, where: str, before: str, after: str) -> str:
    """The file's text with `after` instead of `before`, which must occur in the named part exactly once.

    Write both without the margin that the source has there: only the indentation of their lines to each other counts.
    """
    begin, end = _part(text, where)
    matches = list(_matches(text[:end], begin, before))
    if len(matches) != 1:
        raise NoLongerApplies(f"{where} must contain this once, not {len(matches)} times: {before!r}")
    start, margin = matches[0]
    stop = start + len(_with_margin(before, margin))
    if not after and text[:start].endswith("\n" + margin):
        start -= len(margin)
    return text[:start] + _with_margin(after, margin) + text[stop:]


def _part(text: str, where: str) -> tuple[int, int]:
    """Where the named part begins and ends; the whole file if `where` names no more than that."""
    file, _, name = where.partition(":")
    if not name:
        return 0, len(text)
    parts = list(_queries(text, name) if file.endswith(".sql") else _definitions(text, name.split(".")))
    if len(parts) != 1:
        raise NoLongerApplies(f"{file} must define {name} once, not {len(parts)} times")
    return parts[0]


def _queries(text: str, name: str) -> Iterator[tuple[int, int]]:
    found = list(_QUERY.finditer(text))
    ends = [following.start() for following in found[1:]] + [len(text)]
    return ((query.start(), end) for query, end in zip(found, ends, strict=True) if query.group(1) == name)


def _definitions(text: str, path: list[str]) -> Iterator[tuple[int, int]]:
    """Functions, classes and assigned names, with their decorators; the path leads through classes and functions."""
    starts = [0, *(line.end() for line in re.finditer("\n", text)), len(text)]
    nodes: list[ast.AST] = [ast.parse(text)]
    for name in path:
        nodes = [inner for outer in nodes for inner in _inside(outer) if _defines(inner, name)]
    for node in nodes:
        first = min(each.lineno for each in (node, *getattr(node, "decorator_list", ())))
        yield starts[first - 1], starts[node.end_lineno]


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """What stands in a module, class or function, but not in the definitions within it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _inside(child)


def _defines(node: ast.AST, name: str) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name == name
        case ast.Assign(targets=targets):
            return any(isinstance(each, ast.Name) and each.id == name for each in targets)
        case ast.AnnAssign(target=ast.Name(id=target)):
            return target == name
        case _:
            return False


def _matches(text: str, begin: int, before: str) -> Iterator[tuple[int, str]]:
    """Where `before` stands from `begin` on, and the margin of its lines there."""
    inner = len(before) - len(before.lstrip(" "))
    for line in _LINE.finditer(text, begin):
        margin = line.group(1)[inner:]
        if inner > len(line.group(1)):
            continue
        sought = _with_margin(before, margin)
        # What begins with spaces begins its line.
        last = line.start() + len(margin) if inner else line.end()
        at = text.find(sought, line.start() + len(margin), last + len(sought))
        while at >= 0:
            yield at, margin
            at = text.find(sought, at + 1, last + len(sought))


def _with_margin(text: str, margin: str) -> str:
    return re.sub(r"\n(?=[^\n])", "\n" + margin, text)
