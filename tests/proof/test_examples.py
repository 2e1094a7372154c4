"""A small part of the proof: one example, killed at every boundary."""

from proof import ROOT
from proof.examples import crashed
from proof.examples.programs import files, programs
from proof.order import Order


def test_every_example_is_crashed(tmp_path):
    found = files(list(programs(tmp_path, pictures=1)))

    assert found == {path.name for path in (ROOT / "examples").glob("*.py")}


def test_an_example_survives_a_crash_at_every_boundary(tmp_path):
    program = next(each for each in programs(tmp_path / "files", pictures=1) if each.name == "hello")

    report = crashed(Order(folder=tmp_path), "sqlite", program)

    assert report.survived == report.boundaries >= 8
