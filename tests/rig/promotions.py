"""Programs for tests of promotion: `python -m rig.promotions VERB DSN SCHEMA [ARGUMENT ...]`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pgqrs
from pgqrs import faults

WORKFLOW = "flow"
STEPS = ("one", "two", "three")


def start(verb: str, config: pgqrs.Config, *arguments: object, **settings: object) -> subprocess.Popen[str]:
    """The program as a child process; settings are fields of Config."""
    command = [sys.executable, "-m", "rig.promotions", verb, config.dsn, config.schema, *map(str, arguments)]
    given = {f"PGQRS_{name.upper()}": str(value) for name, value in settings.items()}
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, **given}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


async def work(dsn: str, schema: str, ledger: str) -> None:
    """A worker whose steps each leave a line in the ledger; it says where the store went when that has been promoted."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def handler(ctx, n: int):
        async def effect(step):
            os.write(file, f"{ctx.run_id} {step} {ctx.attempt} {os.getpid()}\n".encode())
            # Long enough that many are in the midst of it at any time.
            await asyncio.sleep(0.005)
            return step

        return [n, *[await ctx.step(step, effect, step) for step in STEPS]]

    async with pgqrs.connect(dsn, schema=schema) as store:
        worker = await pgqrs.consumer(f"w-{os.getpid()}", 0, WORKFLOW).handler(handler).create(store)
        print("ready", flush=True)
        try:
            await worker.poll_forever(signals=True)
        except pgqrs.StorePromoted as error:
            print(f"promoted {error.schema}", flush=True)
            return
    print("stopped", flush=True)


async def promote(dsn: str, schema: str, source: str, phase: str = "", name: str = "", nth: str = "1") -> None:
    """Promotes the file; with a point, kills itself the nth time it gets there."""
    left = int(nth)

    def action(point: faults.Point) -> None:
        nonlocal left
        if tuple(point) == (phase, name):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    with faults.injected(action):
        report = await pgqrs.promote(source, pgqrs.Config(dsn, schema=schema))
    print(report.rows, report.handed_back, flush=True)


if __name__ == "__main__":
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
