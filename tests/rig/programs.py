"""Programs that tests run as processes of their own: `python -m rig.programs VERB DSN SCHEMA [ARGUMENT ...]`.

They say one line on standard output when something has happened, so that tests wait for that and not for time.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pgqrs

QUEUE = "tasks"


def start(verb: str, config: pgqrs.Config, *arguments: object) -> subprocess.Popen[str]:
    """The program as a child process; read its lines with `.stdout.readline()`."""
    command = [sys.executable, "-m", "rig.programs", verb, config.dsn, config.schema, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


async def hold(store: pgqrs.Store, lease_seconds: str) -> None:
    """Lease what is there; when told to, try to settle it in every way, and say how that went."""
    consumer = await store.consumer(QUEUE)
    held = await consumer.dequeue(10, lease_seconds=float(lease_seconds))
    print(*(message.id for message in held), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for verb in (consumer.archive_many, consumer.delete_many, consumer.release_many):
        print(len(await verb(held)), flush=True)
    print(len(await consumer.extend_many(held, 60)), flush=True)


async def receive(store: pgqrs.Store) -> None:
    """Wait for messages; after each say how many milliseconds after it was sent it came (one machine, one clock)."""
    consumer = await store.consumer(QUEUE)
    print("ready", flush=True)
    while True:
        for message in await consumer.dequeue(wait_seconds=60):
            print(f"{(time.time() - message.payload) * 1000:.1f}", flush=True)
            await message.archive()


async def work(store: pgqrs.Store, tasks: str, count: str, ledger: str) -> None:
    """Each task enqueues its share, then all of them drain the queue; every payload is written down once handled."""
    producer = await store.producer(QUEUE)

    async def produce(task: int) -> None:
        for n in range(int(count)):
            await producer.enqueue(f"{os.getpid()}-{task}-{n}")

    async def consume() -> None:
        consumer = await store.consumer(QUEUE)
        while messages := await consumer.dequeue(5, lease_seconds=300, wait_seconds=1.0):
            for message in messages:
                os.write(file, f"{message.payload}\n".encode())
            assert len(await consumer.archive_many(messages)) == len(messages)

    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    await asyncio.gather(*(produce(task) for task in range(int(tasks))))
    await asyncio.gather(*(consume() for _ in range(int(tasks))))


async def install(store: pgqrs.Store) -> None:
    await pgqrs.admin(store).verify()


async def _main(verb: str, dsn: str, schema: str, *arguments: str) -> None:
    async with pgqrs.connect(dsn, schema=schema, install=verb == "install") as store:
        await globals()[verb](store, *arguments)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
