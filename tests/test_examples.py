"""Each example is a whole program: it runs in an empty folder, ends well and says what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"

# What each program prints.
EXPECTED = {
    "hello.py": ["HELLO, WORLD!"],
    "zip_files.py": [
        "attempt 1",
        "listing 2024*",
        "downloading 3 files",
        "the network fails",
        "attempt 2",
        "downloading 3 files",
        "creating the archive",
        "SUCCESS: archive.zip holds 3 files",
    ],
    "approval.py": [
        "mail: please approve 120 EUR",
        "PAUSED: Waiting for approval",
        "paying 120 EUR",
        "SUCCESS: 120 EUR approved by ann",
    ],
    "schedule.py": [
        "backing up",
        "backing up",
        "backing up",
        "29 March 02:30 fired",
        "30 March 03:00 fired",
        "31 March 02:30 fired",
    ],
    "airflow_port.py": [
        "print_date is done",
        "sleep and templated ran side by side",
        "slept, then a report of today",
    ],
    "order_saga.py": [
        "reserve feather",
        "charge 5 EUR",
        "ship feather",
        "done: parcel with feather",
        "reserve anvil",
        "charge 50 EUR",
        "shipping fails",
        "refund the payment of 50 EUR",
        "release the reservation of anvil",
        "undone: nobody carries an anvil",
    ],
    "fan_out.py": [
        "SUCCESS: 10 children",
        " ".join(f"{n:02}.small.jpg" for n in range(10)),
    ],
    "two_versions.py": [
        "v1 drained: False",
        "v1 drained: True",
        "a.txt by v1",
        "b.txt by v2",
        "rollout: 94 by v1, 6 by v2",
        "all done: True",
    ],
}


@pytest.fixture
def run_example(tmp_path):
    """Runs it as a person would, in an empty folder and with no settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PGQRS_")}

    def run(name):
        return subprocess.run(
            [sys.executable, "-W", "error", EXAMPLES / name],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip

    return run


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_prints_what_it_should(name, run_example):
    done = run_example(name)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == EXPECTED[name]


def test_an_example_can_be_run_again_on_the_same_file(run_example):
    first, second = run_example("order_saga.py"), run_example("order_saga.py")

    assert (second.returncode, second.stdout) == (0, first.stdout)


def test_hello_has_at_most_twelve_lines():
    text = (EXAMPLES / "hello.py").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 12
