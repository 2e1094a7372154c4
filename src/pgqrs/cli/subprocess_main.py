"""A process beside `pgqrs demo` or `pgqrs dev`: it tells how it begins, and ends when whoever started it does."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from pgqrs.shutdown_budgets import DEV_DISPATCHER_SECONDS, ORPHAN_SECONDS

# The number of the socket to whoever started us: we say one line, and read until it is closed.
LINE = "PGQRS_PARENT_SOCKET"


def main() -> None:
    """`python -m pgqrs.cli.subprocess_main worker-of APP`; anything else is a command of pgqrs."""
    # Ctrl-C reaches everybody at the terminal; whoever started us tells us what to do then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = socket.socket(fileno=int(os.environ.pop(LINE)))
    threading.Thread(target=_end_with, args=(line,), daemon=True, name="pgqrs-parent").start()
    if sys.argv[1] != "worker-of":
        from pgqrs.cli.app import main as command
        from pgqrs.cli.commands import serve

        # With the token in it: to the process that started us, and not to a file of its.
        serve.tell_parent = lambda url: _say(line, url=url)
        command()
    parser = argparse.ArgumentParser()
    parser.add_argument("app")
    parser.add_argument("--concurrency", type=int, default=10)
    given = parser.parse_args(sys.argv[2:])
    _work(given.app, given.concurrency, line)


def _end_with(line: socket.socket) -> None:
    """Whoever started us was killed, perhaps: nobody would end us then."""
    try:
        while line.recv(64):
            pass
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_SECONDS)
    os._exit(1)


def _work(where: str, concurrency: int, line: socket.socket) -> None:
    from pgqrs.cli.load_app import found_in, workflows_of

    _show_logs()
    try:
        found = found_in(where)
        workflows = workflows_of(found, where)
    except BaseException as error:  # noqa: BLE001 - a file that is being written may do anything
        _say(line, failed=_told(error), files=sorted(_files(where)))
        sys.exit(1)
    try:
        asyncio.run(_serve(found, workflows, where, concurrency, line))
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - it says why it cannot begin, whatever that is
        _say(line, failed=_told(error), files=sorted(_files(where)))
        sys.exit(1)


async def _serve(found: Any, workflows: dict[str, Any], where: str, concurrency: int, line: socket.socket) -> None:
    from pgqrs.api.connect import connect_with
    from pgqrs.api.store import _process_name
    from pgqrs.api.worker import worker
    from pgqrs.config import Config

    async with connect_with(Config()) as store:
        # Handed back at once: whoever comes next goes on from the last completed step.
        made = await worker(_process_name(), concurrency=concurrency).workflows(workflows).grace(0).create(store)
        publishing = _dispatching(found, where, store)
        _say(line, worker_id=made.worker_id, workflows=sorted(workflows), files=sorted(_files(where)))
        try:
            await made.poll_forever(signals=True)
        finally:
            await _stopped(publishing)


def _dispatching(found: Any, where: str, store: Any) -> tuple[Any, asyncio.Task[None]] | None:
    """A function `dispatcher(store)` of the application's module gives the routes of its outbox."""
    from pgqrs.api.dispatcher import dispatcher as ours
    from pgqrs.cli.dispatchers import dispatcher_of

    make = getattr(found, "dispatcher", None) if isinstance(found, ModuleType) else None
    if make is ours or not callable(make):
        return None
    made = dispatcher_of(make, f"{where}:dispatcher", store)
    return made, asyncio.create_task(made.run_forever())


async def _stopped(publishing: tuple[Any, asyncio.Task[None]] | None) -> None:
    if publishing is None:
        return
    made, task = publishing
    made.stop()
    await asyncio.wait([task], timeout=DEV_DISPATCHER_SECONDS)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _say(line: socket.socket, **told: Any) -> None:
    try:
        line.sendall(json.dumps(told).encode() + b"\n")
    except OSError:
        # Nobody listens any more: we are about to be ended.
        return


def _told(error: BaseException) -> str:
    """In the words of whoever wrote the file: frames of ours and of the import system left out."""
    from pgqrs.errors import PgqrsError

    if isinstance(error, PgqrsError):
        return str(error)
    own = str(Path(__file__).parent)
    frames = traceback.extract_tb(error.__traceback__)
    shown = [each for each in frames if not each.filename.startswith(("<frozen ", own))]
    return "".join([*traceback.format_list(shown), *traceback.format_exception_only(error)]).rstrip()


def _files(where: str) -> Iterator[str]:
    """The application's own files, of what is loaded: those below its folder and below the present one."""
    import pgqrs

    roots = {Path.cwd().resolve()}
    named = Path(where.partition(":")[0])
    if named.suffix == ".py":
        roots.add(named.resolve().parent)
        yield str(named.resolve())
    not_ours = (Path(sys.prefix).resolve(), Path(pgqrs.__file__).resolve().parent)
    for module in list(sys.modules.values()):
        name = getattr(module, "__file__", None)
        if not isinstance(name, str) or not name.endswith(".py"):
            continue
        file = Path(name).resolve()
        if any(map(file.is_relative_to, roots)) and not any(map(file.is_relative_to, not_ours)):
            yield str(file)


def _show_logs() -> None:
    """What the application logs, and our warnings. How runs fare is told by whoever started us."""
    from pgqrs.cli.logs import TextFormatter

    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(TextFormatter("%(levelname)s %(name)s: %(message)s"))
        handler.addFilter(lambda entry: entry.levelno > logging.INFO or not _is_ours(entry))


def _is_ours(entry: logging.LogRecord) -> bool:
    # `ctx.log` is ours by name, and the application's by what it says: it carries the run.
    return entry.name.partition(".")[0] in ("pgqrs", "asyncio") and not hasattr(entry, "run_id")


if __name__ == "__main__":
    main()
