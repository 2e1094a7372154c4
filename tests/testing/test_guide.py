"""The tests in docs/guides/testing.md are tests: each is written to the file that it names, and pytest runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parent.parent.parent / "docs" / "guides" / "testing.md"
BLOCK = re.compile(r"^```python\n# (test_\w+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_tests_of_the_guide_pass(tmp_path):
    found = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
    for name, code in found:
        (tmp_path / name).write_text(code, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PGQRS_", "PYTEST_"))}

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip

    assert len(found) == 5
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(code.count('def test_') for _, code in found)} passed" in done.stdout
