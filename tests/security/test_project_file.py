"""Which pyproject.toml decides the database and the code of a command: the project's own, and no other user's."""

import os
import subprocess
import sys

import pytest

import pgqrs


@pytest.fixture
def tree(tmp_path):
    """top/project/src/deep, where commands are called; nobody's home is above."""
    deep = tmp_path / "top" / "project" / "src" / "deep"
    deep.mkdir(parents=True)
    return tmp_path / "top"


def write(folder, name):
    (folder / "pyproject.toml").write_text(f'[tool.pgqrs]\ndsn = "sqlite:////nowhere/{name}.db"\n')
    return folder / "pyproject.toml"


def source_of_dsn(folder, **environment):
    done = _called("config", "show", "-o", "jsonl", cwd=folder, **environment)
    assert done.returncode == 0, done.stderr
    [line] = [each for each in done.stdout.splitlines() if '"dsn"' in each]
    return line.partition('"source": "')[2].partition('"')[0]


def _called(*words, cwd, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PGQRS_")}
    return subprocess.run(
        [sys.executable, "-m", "pgqrs", *words],
        capture_output=True, text=True, cwd=cwd, env={**kept, "HOME": "/nonexistent", **environment}, check=False,
    )  # fmt: skip


def test_the_nearest_file_of_the_project_counts(tree):
    write(tree, "top")
    mine = write(tree / "project", "mine")

    assert source_of_dsn(tree / "project" / "src" / "deep") == str(mine)
    assert source_of_dsn(tree / "project") == str(mine)


@pytest.mark.parametrize("root", [".git", ".hg"])
def test_a_file_above_the_root_of_the_project_does_not_count(tree, root):
    write(tree, "top")
    (tree / "project" / root).mkdir()

    assert source_of_dsn(tree / "project" / "src" / "deep") == "default"


def test_a_file_in_or_above_the_home_directory_counts_only_there(tree):
    write(tree, "top")
    home = tree / "project"
    mine = write(home, "home")

    assert source_of_dsn(home / "src" / "deep", HOME=str(home)) == "default"
    assert source_of_dsn(home, HOME=str(home)) == str(mine)


def test_a_file_that_everyone_can_write_does_not_count(tree):
    write(tree / "project", "mine").chmod(0o666)

    assert source_of_dsn(tree / "project") == "default"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("where", ["folder", "file", "both"])
def test_a_file_of_another_user_in_a_folder_above_does_not_count(tree, where):
    planted = write(tree, "planted")
    if where != "file":
        os.chown(tree, 12345, 12345)
    if where != "folder":
        os.chown(planted, 12345, 12345)

    assert source_of_dsn(tree / "project") == "default"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_in_a_folder_like_tmp_does_not_count_even_there(tree):
    os.chown(write(tree, "planted"), 12345, 12345)
    tree.chmod(0o1777)

    assert source_of_dsn(tree) == "default"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link to another user")
def test_a_link_of_another_user_to_a_file_of_ours_does_not_count(tree):
    write(tree / "project", "mine")
    (tree / "pyproject.toml").symlink_to(tree / "project" / "pyproject.toml")
    os.chown(tree / "pyproject.toml", 12345, 12345, follow_symlinks=False)
    tree.chmod(0o1777)

    assert source_of_dsn(tree) == "default"


def test_the_code_of_a_planted_file_is_not_loaded(tree):
    (tree / "evil.py").write_text("open('owned', 'w')")
    (tree / "pyproject.toml").write_text('[tool.pgqrs]\napp = "evil.py"\n')
    (tree / "pyproject.toml").chmod(0o666)
    done = _called("worker", "run", "--drain", cwd=tree)

    assert done.returncode == 2
    assert not (tree / "owned").exists()


def test_a_command_says_which_file_named_its_database_and_which_it_did_not_read(tree):
    mine = write(tree / "project", "mine")
    said = _called("run", "list", cwd=tree / "project").stderr
    mine.chmod(0o666)
    distrusted = _called("run", "list", cwd=tree / "project").stderr
    told = _called("run", "list", cwd=tree / "project", PGQRS_DSN="sqlite:///other.db").stderr

    assert f"using sqlite:////nowhere/mine.db, as {mine} says" in said
    assert f"not reading {mine}: other users can write it" in distrusted
    assert "using sqlite:///pgqrs.db" in distrusted
    assert str(mine) not in told


def test_a_library_reads_no_file(tree, monkeypatch):
    write(tree, "top")
    monkeypatch.chdir(tree)
    monkeypatch.delenv("PGQRS_DSN", raising=False)

    assert pgqrs.Config().dsn == "sqlite:///pgqrs.db"
