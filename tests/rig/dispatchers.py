"""Dispatchers that tests run as processes of their own: `python -m rig.dispatchers DSN SCHEMA LEDGER [TRAP COUNT]`.

Each event that is received becomes a line of the ledger: run, number, id, pid. The trap is where the process kills
itself with SIGKILL, when it comes there for the COUNTth time: `publish` (before the line is written), or a fault
point like `before outbox.published`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pgqrs
from pgqrs import faults


def start(config: pgqrs.Config, ledger: Path, trap: str = "", count: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rig.dispatchers", config.dsn, config.schema, str(ledger), trap, str(count)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


async def _main(dsn: str, schema: str, ledger: str, trap: str, count: str) -> None:
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    left = int(count)

    def reached(point: faults.Point | str) -> None:
        nonlocal left
        if str(point) == trap:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    async def publish(event: pgqrs.OutboxEvent) -> None:
        reached("publish")
        os.write(file, f"{event.run_id} {event.payload['n']} {event.id} {os.getpid()}\n".encode())

    async with pgqrs.connect(dsn, schema=schema) as store:
        dispatcher = pgqrs.dispatcher(store).to(publish).deadline(1)
        with faults.injected(reached):
            running = asyncio.create_task(dispatcher.run_forever(signals=True))
            print("ready", flush=True)
            await running


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
