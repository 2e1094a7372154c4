"""What the documentation says is so: its code runs, its tutorial can be followed, its links lead somewhere."""

import ast
import asyncio
import contextlib
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tools.docs import made, pages, site

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# A block of the tutorial: what it is, and what is in it.
FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Shows what a terminal shows; tests/cli plays the demo.
NOT_FOLLOWED = "two-minutes.md"
# A block that begins so is a file of that name, beside the others of its page.
NAMED = re.compile(r"# ([\w.]+\.py)\n")


def documents():
    return [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


def blocks():
    for document in documents():
        if document.parent.name == "tutorial" and document.name != NOT_FOLLOWED:
            continue  # followed as a whole, below
        files = {}
        for number, code in enumerate(BLOCK.findall(document.read_text(encoding="utf-8")), 1):
            if name := NAMED.match(code):
                files[name.group(1)] = code
            yield pytest.param(code, dict(files), id=f"{document.relative_to(ROOT)}:{number}")


# Plugins that only we have: loading them takes longer than all the rest of a small pytest.
NOT_THEIRS = ("-p no:schemathesis", "-p no:hypothesispytest")


def environment(**more):
    """Of somebody who has just installed pgqrs, and set nothing."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PGQRS_")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": " ".join(NOT_THEIRS), **more}


@pytest.mark.parametrize(("code", "files"), list(blocks()))
def test_the_code_in_the_documentation_runs(code, files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    if name := NAMED.match(code):
        run_file(name.group(1), tmp_path)
        return
    compiled = compile(code, "documentation", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names = {"__name__": "documentation"}
    if compiled.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(compiled, names))
    else:
        exec(compiled, names)


def run_file(name, folder):
    """As a program; a file of tests by pytest, which must find some."""
    command = [sys.executable, "-m", "pytest", "-q", name] if name.startswith("test_") else [sys.executable, name]
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_is_code_to_run():
    assert len(list(blocks())) >= 50


# -- the tutorial --------------------------------------------------------------------------------------------


def tutorial():
    """The blocks of all its pages, in the order in which they are read."""
    for title, listed in pages.sections():
        if title == "Tutorial":
            for page in (each for each in listed if each.path.name != NOT_FOLLOWED):
                for kind, text in FENCE.findall(page.path.read_text(encoding="utf-8")):
                    yield page.path.name, kind, text


def commands(text):
    """What is typed, and what is printed then."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed.splitlines()


def expected(lines):
    """A line `...` stands for any lines, `...` in a line for any text; blanks count as one."""
    texts = [r"(?:.*\n)*?" if line.strip() == "..." else re.escape(" ".join(line.split())) + r"\n" for line in lines]
    return re.compile("".join(text.replace(re.escape("..."), ".*") for text in texts))


@pytest.mark.backends("postgres")
@pytest.mark.timeout(600)
def test_the_tutorial_can_be_followed_from_its_first_page_to_its_last(tmp_path, config, connect):
    """Every file is written and every command typed, in one shell; each prints what its page says."""
    del connect  # when the test has ended it checks the invariants, and drops the schema
    script, said = ["exec 2>&1"], []
    for page, kind, text in tutorial():
        if kind == "python":
            script.append(f"cat > {NAMED.match(text).group(1)} <<'END OF FILE'\n{text}END OF FILE")
            continue
        for command, printed in commands(text):
            here = command.replace(
                "=postgresql://localhost/shop", f"='{config.dsn}' PGQRS_SCHEMA={config.schema} PGQRS_POOL_SIZE=4"
            )
            script.append(f"echo '<<<{len(said)}>>>'\n{here}\necho \"<<<ended $?>>>\"")
            said.append((page, command, printed))
    (tmp_path / "typed.sh").write_text("\n".join(script))
    with subprocess.Popen(
        ["bash", "typed.sh"], cwd=tmp_path, env=environment(PYTEST_ADDOPTS=" ".join([*NOT_THEIRS, "-p no:asyncio"])), start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    ) as shell:  # fmt: skip
        try:
            output, _ = shell.communicate(timeout=500)
        finally:
            stop_group(shell.pid)

    wrong = []
    for number, (page, command, printed) in enumerate(said):
        found = re.search(rf"<<<{number}>>>\n(.*?)<<<ended (\d+)>>>", output, re.DOTALL)
        assert found, f"{page}: `{command}` was not reached; all that was printed:\n{output}"
        lines = [" ".join(line.split()) for line in found.group(1).splitlines() if not told_by_bash(line)]
        text = "".join(f"{line}\n" for line in lines)
        fails = any(line.startswith("pgqrs: ") for line in printed)
        if not expected(printed).fullmatch(text) or (found.group(2) != "0") != fails:
            wrong.append(
                f"{page}: `{command}` ended with {found.group(2)} and printed\n{text}and not\n" + "\n".join(printed)
            )
    assert not wrong, "\n\n".join(wrong)
    assert len(said) > 40


def told_by_bash(line):
    """That a job was killed."""
    return re.match(r"typed.sh: line \d+: +\d+ (Killed|Terminated)", line)


def stop_group(pid):
    """Whatever the shell has left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


# -- links, pages, the site ----------------------------------------------------------------------------------

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def anchors(page):
    """As the site makes them from headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading) for heading in HEADING.findall(text))
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in plain}


def links():
    for page in [
        *documents(),
        *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "CHANGELOG.md")),
    ]:
        text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        for target in LINK.findall(text):
            if not re.match(r"[a-z]+:", target):
                yield page, target


def test_no_link_of_the_documentation_is_dead():
    dead = []
    for page, target in links():
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            dead.append(f"{page.relative_to(ROOT)}: {target}")

    assert dead == []
    assert len(list(links())) > 100


def test_what_is_made_from_the_code_is_not_stale():
    assert [str(path.relative_to(ROOT)) for path in made.stale()] == [], "run `make docs-pages`"


def test_the_navigation_knows_every_folder():
    assert pages.unlisted() == []


def test_the_site_builds_without_a_dead_link_and_fetches_nothing_from_elsewhere(tmp_path):
    target = tmp_path / "project"
    shutil.copytree(DOCS, target / "docs")
    (target / "zensical.toml").write_bytes((ROOT / "zensical.toml").read_bytes())

    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=target, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert list(site.fetched_from_elsewhere(target / "site")) == []
    assert len(list((target / "site").rglob("*.html"))) >= len(list(DOCS.rglob("*.md")))
    assert (target / "site" / "llms.txt").read_bytes() == (DOCS / "llms.txt").read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://cdn.example.org/a.js"></script>',
        '<link rel="stylesheet" href="//fonts.example.org/a.css">',
        '<img src="http://example.org/a.png">',
        "<p style=\"background: url('https://example.org/a.png')\">",
    ],
)
def test_what_a_page_would_fetch_from_elsewhere_is_seen(text, tmp_path):
    (tmp_path / "index.html").write_text(f'{text}<a href="https://example.org">a link is no fetch</a>')

    assert len(list(site.fetched_from_elsewhere(tmp_path))) == 1


def test_figures_of_the_comparison_are_those_of_the_benchmarks():
    """Who measures again has to look whether the words are still true."""
    compared, measured = (
        (DOCS / name).read_text(encoding="utf-8") for name in ("comparison.md", "reference/benchmarks.md")
    )
    figures = set(re.findall(r"\b[\d.]+x\b", compared))

    assert figures - set(re.findall(r"\b[\d.]+x\b", measured)) == set()
    assert len(figures) > 4


# -- README, and tests that pages name -----------------------------------------------------------------------


def test_the_readme_example_prints_what_the_readme_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    for block in BLOCK.findall(readme):
        # Under the name that it has above: the same program, loaded again.
        exec(compile(block, "documentation", "exec"), {"__name__": "documentation"})

    assert capsys.readouterr().out.splitlines() == [
        "render ann",
        "send report for ann",
        "report for ann sent",
        "dog.jpg",
        "cat.jpg",
    ]


def test_the_tests_that_the_documentation_names_are_there():
    named = {
        (file, test)
        for page in DOCS.rglob("*.md")
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


def test_pages_give_the_effects_of_a_step_the_key_of_the_step():
    """The key of the run is the same in two steps; one page lists it, beside the step's."""
    listing = DOCS / "guides/workflows.md"
    naming = [page for page in documents() if "ctx.idempotency_key" in page.read_text(encoding="utf-8")]

    assert [page for page in naming if page.parent.name not in ("reference", "decisions")] == [listing]


def test_pages_of_the_tutorial_that_run_pytest_say_how_to_install_it():
    running = [page for page in (DOCS / "tutorial").glob("*.md") if "$ pytest" in page.read_text(encoding="utf-8")]

    assert [page.name for page in running if "pip install pytest" not in page.read_text(encoding="utf-8")] == []
    assert len(running) == 2
