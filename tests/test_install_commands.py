"""No page, message or file installs the package `pgqrs` of the package index: it is another project."""

import re
import tomllib
from pathlib import Path

import pytest

from pgqrs import distribution

ROOT = Path(__file__).parent.parent
PLACES = (
    *("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "Makefile", "pyproject.toml"),
    *("constraints.txt", "zensical.toml", "requirements", ".ci"),
    *("docs", "src", "ops", "examples", "benchmarks", "tools", "proof", "tests"),
)
# The commands below must be here to be found; a benchmark's peer is that other project, in an environment of its own.
EXCEPT = {Path(__file__), ROOT / "benchmarks/peers/environments.py"}
# pip, pip3, python -m pip, uv pip and pipx install; uv, poetry, pdm and rye add; uv tool install or run; pipx run; uvx. Then
# options and other packages of the same line, and the name with or without extras, version and quotes.
INSTALLS = re.compile(
    r"""(?:\b(?:pip[\w.]*\s+install|pipx\s+(?:install|run|inject)|(?:uv|poetry|pdm|rye|hatch)\s+add
            |uv\s+tool\s+(?:install|run)|uvx)\b)
        (?:[^\n`|;&]*?[\s'"=])?
        pgqrs(?![\w./-])""",
    re.VERBOSE,
)
# As a requirement, in a file or in a sentence.
REQUIRES = re.compile(r"""\bpgqrs(?:\[[a-z,\s]+\]|\s?(?:==|>=|~=)\s?\d)""")


def files():
    for place in PLACES:
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix not in {".png", ".pyc", ".svg"} and file not in EXCEPT:
                yield file


def wrong(text):
    return [found.group() for pattern in (INSTALLS, REQUIRES) for found in pattern.finditer(text)]


def test_no_file_installs_the_package_of_another_project():
    told = {str(file.relative_to(ROOT)): found for file in files() if (found := wrong(file.read_text("utf-8")))}

    assert told == {}


@pytest.mark.parametrize(
    "text",
    [
        "pip install pgqrs",
        "$ pip install 'pgqrs[web]'",
        'pip install "pgqrs[web,postgres]" fastapi',
        "pip install fastapi pgqrs",
        "pip3 install --upgrade pgqrs==0.1",
        "python -m pip install pgqrs  # SQLite",
        "uv add pgqrs",
        "uv pip install pgqrs",
        "uv tool install pgqrs",
        "uvx pgqrs demo",
        "uvx --from 'pgqrs[web]' pgqrs demo",
        "pipx install pgqrs",
        "pipx run pgqrs",
        "poetry add pgqrs",
        "needs `pgqrs[turso]`",
        "pgqrs>=0.1",
    ],
)
def test_such_commands_are_found(text):
    assert wrong(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install .",
        "pip install '.[web]'",
        "pip install 'pgqrs-durable[web]'",
        "pip install pgqrs-durable",
        "uv add pgqrs-durable",
        "pip install '.[web]' && pgqrs demo",
        "run `pip install .`, then `pgqrs install`",
        "pgqrs install",
        "pip uninstall pgqrs pgqrs-durable",
        "import pgqrs",
        "uvx --from . pgqrs-demo",
        "pip install ./pgqrs/dist",
    ],
)
def test_other_commands_are_not(text):
    assert not wrong(text)


def test_pyproject_and_the_code_have_the_same_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert project["name"] == distribution.NAME
    assert all(each.startswith(f"{distribution.NAME}[") for each in project["optional-dependencies"]["all"])


def test_the_import_package_and_the_command_keep_their_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert list(project["scripts"]) == ["pgqrs"]


def test_make_removes_the_former_name_before_it_installs():
    """An older clone has it in its .venv, and would be told that another project overwrites this one."""
    text = (ROOT / "Makefile").read_text()

    assert "REMOVE_FORMER = $(UNINSTALL) pgqrs 2>/dev/null\n" in text
    assert "\t@$(REMOVE_FORMER)\n\t@$(INSTALL_OURS)\n" in text
