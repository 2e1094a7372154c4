"""Ctrl-C in a direct call is no error of the workflow: the next call continues."""

import os
import signal
import subprocess
import sys

PROGRAM = """
import time
import pgqrs


@pgqrs.step
def charge():
    print("charge", flush=True)
    time.sleep(1)


@pgqrs.step
def ship() -> str:
    print("ship", flush=True)
    return "shipped"


@pgqrs.step
def refund():
    print("refund", flush=True)


@pgqrs.workflow
def order() -> str:
    charge()
    try:
        return ship()
    except Exception:
        refund()
        return "refunded"


print(order.run(key="o1"))
"""


def test_an_interrupted_call_is_continued_and_not_compensated(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {**os.environ, "PGQRS_DSN": f"sqlite:///{tmp_path / 'app.db'}"}
    command = [sys.executable, "program.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as first:
        assert first.stdout.readline() == "charge\n"
        first.send_signal(signal.SIGINT)
        first.communicate(timeout=60)
    again = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
    )

    assert again.stdout.splitlines()[-2:] == ["ship", "shipped"]
    assert "refund" not in again.stdout
