"""Ctrl-C in a direct call is no error of the workflow: the next call continues."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

import pgqrs

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


PLAIN = """
import time
from pathlib import Path

import pgqrs


@pgqrs.step
def charge():
    print("begun", flush=True)
    while not Path("go").exists():
        time.sleep(0.02)


@pgqrs.workflow
def order() -> str:
    charge()
    print("after charge", flush=True)
    return "shipped"


print(order.run(key="o1"))
"""
SLEEPS = """
import pgqrs


@pgqrs.workflow
def order(ctx) -> str:
    print("begun", flush=True)
    ctx.sleep(3600)
    return "shipped"


print(order.run(key="o1"))
"""
ASYNC = """
import asyncio

import pgqrs


async def charge():
    print("begun", flush=True)
    await asyncio.Event().wait()


@pgqrs.workflow
async def order(ctx) -> str:
    await ctx.step("charge", charge)
    return "shipped"


print(asyncio.run(order.run(key="o1")))
"""


@pytest.fixture
def begun(tmp_path):
    """A program that has begun its run. Leases last so long that a wait for a heartbeat or a poll is a failure."""
    started = []

    def start(program):
        (tmp_path / "program.py").write_text(program)
        environment = {
            **os.environ,
            "PGQRS_DSN": f"sqlite:///{tmp_path / 'app.db'}",
            "PGQRS_LEASE_SECONDS": "900",
            "PGQRS_POLL_INTERVAL_SECONDS": "300",
        }
        process = subprocess.Popen(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout.readline() == "begun\n"
        return process

    yield start
    for each in started:
        each.kill()
        each.communicate()


async def handed_back(tmp_path):
    """Wait until any process may take the run."""
    async with pgqrs.connect(f"sqlite:///{tmp_path / 'app.db'}") as store:
        deadline = time.monotonic() + 60
        while (run := await pgqrs.workflow("order").get_run(1, store)).status != "PENDING":
            assert time.monotonic() < deadline, run
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("program", [SLEEPS, ASYNC], ids=["plain, waiting", "async, in a step"])
async def test_ctrl_c_ends_the_process_without_waiting_for_heartbeats_and_polls(begun, tmp_path, program):
    process = begun(program)
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.to_thread(process.communicate, timeout=60)

    assert out == ""
    assert err.rstrip().endswith("KeyboardInterrupt")
    if program == ASYNC:
        await handed_back(tmp_path)


async def test_ctrl_c_hands_the_run_back_before_the_body_of_a_plain_step_has_ended(begun, tmp_path):
    process = begun(PLAIN)
    process.send_signal(signal.SIGINT)
    await handed_back(tmp_path)
    warned = await asyncio.to_thread(process.stderr.readline)
    assert process.poll() is None

    (tmp_path / "go").touch()
    await asyncio.to_thread(process.wait, 60)
    # Not `communicate`, which does not see what `readline` has read ahead.
    out, err = process.stdout.read(), process.stderr.read()

    assert "after charge" not in out
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "code of a handler still runs in a thread, and Python waits for it; Ctrl-C again ends" in warned


async def test_a_second_ctrl_c_leaves_the_body_of_a_plain_step_behind(begun, tmp_path):
    process = begun(PLAIN)
    process.send_signal(signal.SIGINT)
    await handed_back(tmp_path)
    while "KeyboardInterrupt" not in await asyncio.to_thread(process.stderr.readline):
        pass
    process.send_signal(signal.SIGINT)

    await asyncio.to_thread(process.communicate, timeout=60)
    assert not (tmp_path / "go").exists()
