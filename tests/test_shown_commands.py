"""Every `pgqrs ...` that a page, a message or a help text names is a command that exists."""

import ast
import re
from pathlib import Path

import pytest

from pgqrs.cli.command_tree import nodes

ROOT = Path(__file__).parent.parent
TREE = {node.path[1:]: node for node in nodes()}
NESTED = {path[1] for path in TREE if len(path) == 2}
PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
# A fenced block that a shell reads, or a span of code.
CODE = re.compile(r"^```(?:console|bash|sh)\n(.*?)^```$|(?<!`)`([^`\n]+)`(?!`)", re.MULTILINE | re.DOTALL)
# The program at the head of a command: after a prompt, a pipe, settings (`PGQRS_DSN=...`) or a path.
CALLED = re.compile(
    r"(?:^|[|;&(]|\s(?:\w+=\S+|exec|uvx?|run|--from \S+))\s*(?:\$ )?(?:\S*/)?pgqrs ([a-z][\w-]*)(?: ([a-z][\w-]*))?",
    re.MULTILINE,
)
SAID = re.compile(r"(?<![\w./-])pgqrs ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?(?![\w.])")


def wrong(first, second, *, strict):
    """Return the command that does not exist; in prose, `pgqrs itself` is none."""
    if (first,) not in TREE:
        return f"pgqrs {first}" if strict or first in NESTED else None
    if TREE[first,].is_group and second and (first, second) not in TREE:
        return f"pgqrs {first} {second}"
    return None


def in_page(text):
    for block, span in CODE.findall(text):
        for first, second in CALLED.findall(block or span):
            yield wrong(first, second, strict=True)


def in_source(text):
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for first, second in SAID.findall(node.value):
                yield wrong(first, second, strict=False)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("command", "shell.command"):
            match node.args:
                case [ast.Constant(value=str(words)), *_]:
                    path = [word for word in words.split() if word.islower()]  # `worker run APP`
                    yield None if tuple(path) in TREE else f"pgqrs {words}"


def found(texts):
    return {
        str(file.relative_to(ROOT)): names for file, named in texts if (names := [each for each in named if each])
    }


def test_every_command_on_a_page_exists():
    files = [*PAGES, *sorted((ROOT / "docs").rglob("*.md"))]

    assert found((file, in_page(file.read_text("utf-8"))) for file in files) == {}


def test_every_command_in_a_text_of_ours_exists():
    files = [file for folder in ("src", "examples") for file in sorted((ROOT / folder).rglob("*.py"))]
    templates = sorted((ROOT / "src").rglob("*.html"))

    assert found((file, in_source(file.read_text("utf-8"))) for file in files) == {}
    assert (
        found(
            (file, [wrong(*each, strict=False) for each in SAID.findall(file.read_text("utf-8"))])
            for file in templates
        )
        == {}
    )


@pytest.mark.parametrize(
    "text", ["see `pgqrs why 2`", "```console\n$ PGQRS_DSN=x pgqrs run wyh 2\n```", "`pgqrs woker run`"]
)
def test_a_wrong_command_on_a_page_is_found(text):
    assert any(in_page(text))


@pytest.mark.parametrize("text", ['f"see pgqrs why {run_id}"', '"see pgqrs run wyh"', 'shell.command("why", 2)'])
def test_a_wrong_command_in_a_text_is_found(text):
    assert any(in_source(text))


@pytest.mark.parametrize("text", ['"pgqrs itself"', '"pgqrs doctor says"', 'command("run why", 2)'])
def test_other_texts_are_not(text):
    assert not any(in_source(text))
