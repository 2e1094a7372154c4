"""`pgqrs worker run` ends when it is told to, though code of a handler does not."""

import os
import signal
import subprocess
import sys

import pytest

import pgqrs

APP = """
import asyncio
import threading

import pgqrs


@pgqrs.workflow
async def stubborn(ctx) -> None:
    await ctx.step("stubborn", never_ends)


@pgqrs.workflow
async def threaded(ctx) -> None:
    await ctx.step("threaded", blocks)


async def never_ends():
    print("begun", flush=True)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


def blocks():
    print("begun", flush=True)
    threading.Event().wait()
"""


@pytest.mark.parametrize("workflow", ["stubborn", "threaded"])
async def test_a_handler_that_stops_its_cancellation_does_not_keep_the_process(tmp_path, workflow):
    (tmp_path / "app.py").write_text(APP)
    dsn = f"sqlite:///{tmp_path / 'app.db'}"
    async with pgqrs.connect(dsn) as store:
        await store.create_workflow(workflow)
        run_id = await pgqrs.workflow(workflow).trigger().execute(store)
        process = subprocess.Popen(
            [sys.executable, "-m", "pgqrs", "worker", "run", "app.py"],
            cwd=tmp_path,
            env={**os.environ, "PGQRS_DSN": dsn},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            # The second one says: now.
            process.send_signal(signal.SIGINT)
            _, log = process.communicate(timeout=60)
        finally:
            process.kill()
            process.communicate()
        run = await pgqrs.workflow(workflow).get_run(run_id, store)

    assert process.returncode == 0
    assert "does not end although it was cancelled" in log
    assert run.status == "PENDING"
