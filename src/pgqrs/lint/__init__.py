"""What breaks replay, found by reading the code: `pgqrs lint PATH...`. Nothing that is checked is ever imported.

    rules.py     the codes, what each is about, and the calls that it knows
    names.py     what a name stands for, whatever it was imported as
    bodies.py    which functions are workflow bodies, and which part of them runs again on each replay
    checks.py    a body, looked at
    output.py    findings for people, programs and GitHub

docs/reference/lint.md shows code that breaks each rule and code that does not; a test runs the linter on both.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from pgqrs.lint import checks, rules
from pgqrs.lint.rules import Finding

__all__ = ["Finding", "lint_files", "lint_source", "python_files"]

_IGNORE = re.compile(r"#\s*pgqrs:\s*ignore(?:\[([A-Z0-9,\s]*)\])?")
# Folders that hold other people's code.
_NOT_OURS = frozenset({".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", "site-packages", ".tox"})


def lint_files(files: Iterable[Path]) -> list[Finding]:
    """What is found in the files, in their order."""
    return [finding for file in files for finding in lint_source(file.read_bytes(), str(file))]


def lint_source(source: str | bytes, path: str = "<text>") -> list[Finding]:
    """What is found in one text, by line. A text that Python cannot read is a finding too."""
    try:
        tree = ast.parse(source, path)
    except (SyntaxError, ValueError) as error:
        line, column = getattr(error, "lineno", None) or 1, getattr(error, "offset", None) or 1
        return [Finding(path, line, column, rules.UNREADABLE, f"cannot be read: {error}")]
    text = source if isinstance(source, str) else source.decode("utf-8", "replace")
    lines = text.splitlines()
    found = {
        Finding(path, node.lineno, node.col_offset + 1, rule, said)
        for node, rule, said in checks.findings(tree)
        if not _is_ignored(node, rule, lines)
    }
    return sorted(found, key=lambda finding: (finding.line, finding.column, finding.rule.code))


def python_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Files as given, and those with Python in them below the folders given."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for file in sorted(path.rglob("*.py")):
            if not _NOT_OURS.intersection(file.relative_to(path).parts):
                yield file


def _is_ignored(node: ast.expr | ast.stmt | ast.excepthandler, rule: rules.Rule, lines: list[str]) -> bool:
    """`# pgqrs: ignore[PGQ101]` on the first or the last line of what is found."""
    for number in {node.lineno, node.end_lineno or node.lineno}:
        match = _IGNORE.search(lines[number - 1]) if number <= len(lines) else None
        if match and (match.group(1) is None or rule.code in re.split(r"[,\s]+", match.group(1))):
            return True
    return False
