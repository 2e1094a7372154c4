"""Every Python block of README.md and docs/ runs."""

import ast
import asyncio
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks():
    for file in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for number, code in enumerate(BLOCK.findall(file.read_text(encoding="utf-8")), 1):
            yield pytest.param(code, id=f"{file.relative_to(ROOT)}:{number}")


@pytest.mark.parametrize("code", list(blocks()))
def test_the_code_in_the_documentation_runs(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    compiled = compile(code, "documentation", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"__name__": "documentation"}
    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(compiled, names))
    else:
        exec(compiled, names)


def test_there_is_code_to_run():
    assert len(list(blocks())) >= 8


def test_every_setting_is_documented():
    import dataclasses

    import pgqrs

    text = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))

    assert documented == {field.name for field in dataclasses.fields(pgqrs.Config)}


def test_the_readme_example_prints_what_the_readme_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    for block in BLOCK.findall(readme):
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})

    assert capsys.readouterr().out.splitlines() == ["dog.jpg", "cat.jpg", "report for ann sent"]


def test_the_tests_that_the_documentation_names_are_there():
    named = {
        (file, test)
        for page in (ROOT / "docs").rglob("*.md")
        for file, test in re.findall(r"`([\w/]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    }
    missing = sorted(
        f"{file}::{test}"
        for file, test in named
        if not (ROOT / "tests" / file).is_file()
        or f"def {test}(" not in (ROOT / "tests" / file).read_text(encoding="utf-8")
    )

    assert missing == []
    assert len(named) > 40
