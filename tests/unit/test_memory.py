"""Where the tests' temporary files are: in memory if it is fit for them, else where they always are."""

import os
import tempfile

import pytest

from rig import memory


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("TMPDIR", raising=False)


def test_temporary_files_are_in_memory_where_there_is_room(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "NEEDED_BYTES", 1)
    monkeypatch.setenv("TMPDIR", "")  # so that what `prefer` sets is taken back
    monkeypatch.delenv("TMPDIR")

    memory.prefer(tmp_path)

    assert (tempfile.gettempdir(), os.environ["TMPDIR"]) == (str(tmp_path), str(tmp_path))


def test_a_folder_that_is_too_small_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "NEEDED_BYTES", 2**80)

    memory.prefer(tmp_path)

    assert "TMPDIR" not in os.environ


def test_a_folder_that_is_not_there_is_not_used(tmp_path):
    memory.prefer(tmp_path / "none")

    assert "TMPDIR" not in os.environ


def test_a_folder_that_was_asked_for_wins(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "NEEDED_BYTES", 1)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "asked"))

    memory.prefer(tmp_path)

    assert os.environ["TMPDIR"] == str(tmp_path / "asked")
