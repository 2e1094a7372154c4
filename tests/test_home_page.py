"""The examples of the home page and the README survive SIGKILL at each of their lines, as the pages say."""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# The page, what the program prints, which step prints what.
PAGES = {
    "docs/index.md": (
        ["charge A1", "ship A1", "A1 is on its way"],
        {"charge": "charge A1", "ship": "ship A1"},
    ),
    "README.md": (
        ["render ann", "send report for ann", "report for ann sent"],
        {"render": "render ann", "send": "send report for ann"},
    ),
}


def example(page):
    """The first program on the page: the one of which it says that the process may be killed."""
    return BLOCK.search((ROOT / page).read_text(encoding="utf-8")).group(1)


def lives(page, folder):
    (folder / "program.py").write_text(example(page), encoding="utf-8")
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PGQRS_")}
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, "-m", "rig.killed_lines", "program.py"],
        cwd=folder, env={**settings, "PYTHONPATH": path}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(not Path("/proc/self/ns/pid").exists(), reason="elsewhere each kill costs a lease")
@pytest.mark.parametrize("page", PAGES)
def test_a_program_killed_at_each_line_and_started_again_does_what_its_page_says(page, tmp_path):
    """Once, and twice in a row; at each line and each return. Effects are counted outside of the database."""
    whole, effects = PAGES[page]
    undisturbed, *killed = lives(page, tmp_path)

    assert undisturbed["starts"][0]["printed"] == whole
    assert len(killed) > 40
    for life in killed:
        where = " then ".join(start["place"] or "the end" for start in life["starts"])
        assert life["starts"][0]["exit_code"] == -signal.SIGKILL, where
        assert {start["exit_code"] for start in life["starts"][1:]} <= {0, -signal.SIGKILL}, where
        assert life["starts"][-1]["exit_code"] == 0, where
        for before, after in pairwise(life["starts"]):
            for step, effect in effects.items():
                # A recorded step is not run again. Any other one is, unless the process was killed before it.
                again = after["printed"].count(effect)
                assert again <= (step not in before["recorded"]), f"{where}: {step}"
                assert after["place"] or again == (step not in before["recorded"]), f"{where}: {step}"
        # The run has ended, once, and whoever starts the program after that is told its result.
        told = life["starts"][-1]["printed"]
        assert told == whole[-1:] if life["starts"][-2]["exit_code"] == 0 else told[-1:] == whole[-1:], where
        assert life["runs"] == ["SUCCESS"], where
    # Some kills came after an effect and before its record: only then does an effect happen twice.
    happened = [[line for start in life["starts"] for line in start["printed"]] for life in killed]
    assert {effect for each in happened for effect in effects.values() if each.count(effect) == 2} == set(
        effects.values()
    )
