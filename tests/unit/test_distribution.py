"""Another distribution that brings a package `pgqrs`: found, named, with the commands that mend the environment."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import pgqrs
from pgqrs import distribution
from pgqrs.api import doctor
from pgqrs.cli import exit_codes
from pgqrs.cli.commands import local

SRC = Path(pgqrs.__file__).parent
UNINSTALL = "pip uninstall --yes pgqrs pgqrs-durable && pip install "


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """`installed("pgqrs", "0.15.3")` puts such a distribution on Python's path; ours are the only ones beside it."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    def put(name, version, *, command=None, origin=None):
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if command is not None:
            (folder / "entry_points.txt").write_text(f"[console_scripts]\npgqrs = {command}\n")
        if origin is not None:
            (folder / "direct_url.json").write_text(origin)

    return put


def test_ours_alone_is_no_conflict(installed):
    installed("pgqrs-durable", "0.1.0", command="pgqrs_command:main")

    assert distribution.conflict() is None


def test_code_that_nobody_installed_is_no_conflict(installed):
    assert distribution.conflict() is None


def test_another_project_beside_ours_is_named_with_the_fix(installed):
    installed("pgqrs-durable", "0.1.0")
    installed("pgqrs", "0.15.3")

    found = distribution.conflict()

    assert "another project's distribution 'pgqrs' (0.15.3) is installed beside pgqrs-durable" in found.what
    assert found.fix == UNINSTALL + "pgqrs-durable"
    assert not found.is_former


def test_another_project_without_ours_is_named(installed):
    installed("pgqrs", "0.15.3")

    assert "instead of pgqrs-durable" in distribution.conflict().what


@pytest.mark.parametrize(
    ("origin", "again"),
    [
        ('{"url": "file:///home/ann/pgqrs", "dir_info": {"editable": true}}', "--editable /home/ann/pgqrs"),
        ('{"url": "file:///home/ann/my%20clone", "dir_info": {}}', "'/home/ann/my clone'"),
        ('{"url": "https://example.org/pgqrs.whl"}', "pgqrs-durable"),
    ],
)
def test_the_fix_installs_from_where_ours_came_from(installed, origin, again):
    installed("pgqrs-durable", "0.1.0", origin=origin)
    installed("pgqrs", "0.15.3")

    assert distribution.conflict().fix == UNINSTALL + again


def test_an_older_checkout_of_ours_under_its_former_name_is_told_apart(installed):
    installed("pgqrs-durable", "0.1.0")
    installed("pgqrs", "0.1.0", command="pgqrs.cli:main")

    found = distribution.conflict()

    assert found.is_former
    assert "under its former name" in found.what
    assert [each.level for each in doctor.installation()] == ["warn"]
    assert exit_codes.conflict_words() == []
    assert exit_codes.conflict_words(former=True)


def test_the_doctor_calls_another_project_bad(installed):
    installed("pgqrs", "0.15.3")

    [finding] = doctor.installation()

    assert (finding.code, finding.level) == ("package", "bad")
    assert finding.fix == UNINSTALL + "pgqrs-durable"


def test_a_command_that_fails_says_so(installed, capsys):
    installed("pgqrs", "0.15.3")

    exit_codes.tell(AttributeError("module 'pgqrs' has no attribute 'workflow'"))

    said = capsys.readouterr().err
    assert "no attribute 'workflow'" in said
    assert "another project's distribution 'pgqrs' (0.15.3)" in said
    assert f"try: {UNINSTALL}" in said


def test_version_prints_ours_and_the_conflict_on_standard_error(installed, capsys):
    installed("pgqrs", "0.15.3")

    local.version()

    said = capsys.readouterr()
    assert said.out == f"{pgqrs.__version__}\n"
    assert "another project's distribution 'pgqrs' (0.15.3)" in said.err


def test_the_extras_of_a_command_are_quoted():
    assert distribution.install_command() == "pip install pgqrs-durable"
    assert distribution.install_command("web", "postgres") == "pip install 'pgqrs-durable[web,postgres]'"


# -- what is left when the other project's files have replaced ours --------------------------------------------


def run(folder, code):
    """A Python that finds packages in the folder, and others where this one does, but nothing through a .pth file."""
    path = os.pathsep.join([str(folder), sysconfig.get_path("purelib")])
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("replaced", ["from . import _other\n", None], ids=["replaced", "removed"])
def test_version_works_without_our_init(tmp_path, replaced):
    """Installed over ours, the other project replaces `__init__.py`; uninstalled, it removes it."""
    package = tmp_path / "pgqrs"
    package.mkdir()
    for each in SRC.iterdir():
        if each.name != "__init__.py":
            (package / each.name).symlink_to(each)
    (tmp_path / "pgqrs_command.py").symlink_to(SRC.parent / "pgqrs_command.py")
    if replaced:
        (package / "__init__.py").write_text(replaced)
        (package / "_other.py").write_text("")

    done = run(tmp_path, "import sys, pgqrs_command; sys.argv = ['pgqrs', 'version']; pgqrs_command.main()")

    assert (done.returncode, done.stdout) == (0, f"{pgqrs.__version__}\n")
    assert "pgqrs/__init__.py of pgqrs-durable is missing, or another project's" in done.stderr
    assert f"try: {UNINSTALL}" in done.stderr


def test_the_command_says_so_when_nothing_of_ours_can_be_imported(tmp_path):
    (tmp_path / "pgqrs").mkdir()
    (tmp_path / "pgqrs" / "__init__.py").write_text("")
    (tmp_path / "pgqrs_command.py").symlink_to(SRC.parent / "pgqrs_command.py")

    done = run(tmp_path, "import pgqrs_command; pgqrs_command.main()")

    assert done.returncode == 1
    assert "No module named 'pgqrs.cli'" in done.stderr
    assert "pip uninstall --yes pgqrs pgqrs-durable" in done.stderr
    assert "Traceback" not in done.stderr
