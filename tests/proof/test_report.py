"""The page of the proof says which commit each row is about."""

import subprocess

import pytest

from proof import report
from proof.order import Order
from proof.table import Row

ORDER = Order(full=True, seed=7)


def row(on):
    return Row(number=1, what="points survived", on=on, seen="3/3", wanted="all", good=True, seconds=600)


def git(tree, *command):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *command], cwd=tree, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository with one file of code, a page, and results beside them."""
    (tmp_path / "code.py").write_text("one")
    (tmp_path / "page.md").write_text(f"By hand.\n\n{report.MARK}")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(report, "_WRITTEN", (tmp_path / "mutants.md",))
    for name in ("CASE", "MODES"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def keep(layer, on, commit, seconds=60.0):
    report.keep(layer, ORDER, [row(on)], commit=commit, seconds={on: seconds})


def test_what_the_proof_writes_makes_no_other_commit(tree):
    before = report.commit_here()
    keep("crash", "sqlite", before)
    written = report.commit_here()
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "results")

    assert before != report.UNKNOWN
    assert written == before
    assert report.commit_here() == before


def test_code_that_is_not_committed_is_dirty(tree):
    before = report.commit_here()
    (tree / "code.py").write_text("two")
    changed = report.commit_here()
    git(tree, "commit", "-qam", "two")

    assert changed == f"{before}-dirty"
    assert report.commit_here() not in (before, changed)


def test_a_file_that_git_does_not_know_is_dirty(tree):
    (tree / "more.py").write_text("new")

    assert report.commit_here().endswith("-dirty")


def test_without_git_the_commit_is_unknown(tree, monkeypatch):
    monkeypatch.setenv("PATH", "")

    assert report.commit_here() == report.UNKNOWN


def test_the_page_says_that_all_rows_are_about_one_commit(tree):
    keep("crash", "sqlite", "abc")
    keep("model", "postgres", "abc", seconds=120)

    page = (tree / "page.md").read_text()
    assert page.startswith("By hand.")
    assert "All rows are about commit abc. All layers together took 3 minutes." in page
    assert "- `crash` on sqlite: commit abc, seed 7, full, 60 s" in page


def test_the_page_says_when_rows_are_about_several_commits(tree):
    keep("crash", "sqlite", "abc")
    keep("model", "postgres", "abc")
    keep("model", "turso", "def-dirty")

    page = (tree / "page.md").read_text()
    assert "Several commits: abc (2 of 3), def-dirty (1 of 3)." in page
    assert "All rows" not in page
