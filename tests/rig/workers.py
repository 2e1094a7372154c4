"""Workers that tests run as processes of their own: `python -m rig.workers VERB DSN SCHEMA [ARGUMENT ...]`.

They say one line on standard output when something has happened, and write one line per effect into a ledger that
all processes append to: run, step, attempt, pid.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pgqrs

WORKFLOW = "flow"


def start(verb: str, config: pgqrs.Config, *arguments: object, **settings: object) -> subprocess.Popen[str]:
    """The program as a child process; settings are fields of Config."""
    command = [sys.executable, "-m", "rig.workers", verb, config.dsn, config.schema, *map(str, arguments)]
    given = {f"PGQRS_{name.upper()}": str(value) for name, value in settings.items()}
    path = os.pathsep.join(filter(None, (str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, **given}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


async def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).strip()


async def lines_until(process: subprocess.Popen[str], wanted: str) -> list[str]:
    """Reads until a line starts with what is wanted."""
    lines = [await line_of(process)]
    while not lines[-1].startswith(wanted):
        assert lines[-1] or process.poll() is None, f"the process ended before it said {wanted!r}: {lines}"
        lines.append(await line_of(process))
    return lines


def tell(process: subprocess.Popen[str], line: str = "go on") -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


@dataclass(frozen=True)
class Effect:
    run_id: int
    step: str
    attempt: int
    pid: int


def effects(ledger: Path) -> Iterator[Effect]:
    for line in ledger.read_text().splitlines():
        run_id, step, attempt, pid = line.split()
        yield Effect(int(run_id), step, int(attempt), int(pid))


async def work(store: pgqrs.Store, ledger: str, trap: str = "") -> None:  # noqa: C901 - a trap for each case
    """A worker for steps `one`, `two`, `three`. On SIGTERM it stops at once, and starts anew when told to.

    The trap is sprung in step two: `wait` for ever, `hear` (a line), `block:SECONDS` (the whole loop) or `exit`;
    or before it, outside any step: `hear-before`.
    """
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    kind, _, argument = trap.partition(":")

    async def handler(ctx):
        async def effect(step):
            os.write(file, f"{ctx.run_id} {step} {ctx.attempt} {os.getpid()}\n".encode())
            _say(step, ctx.run_id)
            if step != "two":
                return step
            match kind:
                case "wait":
                    await asyncio.Event().wait()
                case "hear":
                    await asyncio.to_thread(sys.stdin.readline)
                case "block":
                    time.sleep(float(argument))
                case "exit":
                    os._exit(1)
            return step

        done = [await ctx.step("one", effect, "one")]
        if kind == "hear-before":
            _say("between", ctx.run_id)
            await asyncio.to_thread(sys.stdin.readline)
        done += [await ctx.step(name, effect, name) for name in ("two", "three")]
        return [*done, os.getpid()]

    while True:
        worker = await pgqrs.consumer(f"w-{os.getpid()}", 0, WORKFLOW).handler(handler).grace(0).create(store)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        _say("ready")
        await worker.poll_forever()
        _say("stopped")
        if not await asyncio.to_thread(sys.stdin.readline):
            return


async def schedule(store: pgqrs.Store, ledger: str) -> None:
    """A worker, which looks after schedules too, until it is killed."""
    file = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handler(ctx):
        os.write(file, f"{ctx.run_id} slot {ctx.attempt} {os.getpid()}\n".encode())

    worker = await pgqrs.consumer(f"w-{os.getpid()}", 0, WORKFLOW).handler(handler).create(store)
    _say("ready")
    await worker.poll_forever()


async def asleep(store: pgqrs.Store, count: str) -> None:
    """Triggers that many runs, puts them all to sleep, wakes them all; says how that went after each."""
    clock = store.database.clock
    assert isinstance(clock, pgqrs.ManualClock)
    flow = pgqrs.workflow(WORKFLOW)
    woken: Counter[int] = Counter()

    async def handler(ctx):
        await ctx.sleep(86_400)
        await ctx.step("wake", lambda: woken.update([ctx.run_id]))

    worker = await pgqrs.consumer("sleeper", 0, WORKFLOW).handler(handler).concurrency(500).create(store)
    # What the first runs need is needed once: imports, caches, threads.
    await flow.trigger_many([None] * 1000).execute(store)
    await worker.run_until_idle()
    before, started = _memory(), time.monotonic()
    ids = []
    for begin in range(0, int(count), 5000):
        ids += await flow.trigger_many([None] * min(5000, int(count) - begin)).execute(store)
    triggered = time.monotonic()
    await worker.run_until_idle()
    _say(f"asleep {_memory() - before:.1f} {triggered - started:.1f} {time.monotonic() - triggered:.1f}")
    started = time.monotonic()
    clock.advance(86_400)
    await worker.run_until_idle()
    _say(f"awake {sum(woken[run_id] == 1 for run_id in ids)} {len(woken)} {time.monotonic() - started:.1f}")
    await worker.close()


def _memory() -> float:
    """Resident megabytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def _say(*words: object) -> None:
    print(*words, flush=True)


async def _main(verb: str, dsn: str, schema: str, *arguments: str) -> None:
    logging.basicConfig(stream=sys.stdout, format="log %(message)s", level=logging.WARNING)
    clock = pgqrs.ManualClock() if verb == "asleep" else pgqrs.DatabaseClock()
    async with pgqrs.connect(dsn, schema=schema, clock=clock) as store:
        await globals()[verb](store, *arguments)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
