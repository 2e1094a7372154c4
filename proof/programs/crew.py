"""Processes that execute programs side by side. One in which something hangs tells so, ends, and is replaced."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from proof.programs.bench import Bench, Divergence, Report, generated
from proof.programs.single import config_for

# One execution takes a tenth of a second.
_DEADLINE_SECONDS = 60
_fork = multiprocessing.get_context("fork")


class Crew:
    """Executes program after program of a seed, until it is told to stop."""

    def __init__(
        self,
        size: int,
        *,
        seed: int,
        backend: str,
        postgres: str,
        most: int,
        modes: tuple[str, ...],
        is_racy: bool = False,
    ) -> None:
        self._given = (seed, backend, postgres, most, modes, is_racy)
        self._next: Any = _fork.Value("i", 0)
        self._members: dict[Connection, Any] = {}
        for _ in range(size):
            self._hire()

    def reports(self) -> Iterator[Report]:
        """For ever."""
        while True:
            for connection in wait(list(self._members)):
                try:
                    yield connection.recv()  # type: ignore[union-attr]
                except EOFError:
                    self._members.pop(connection).join()  # type: ignore[call-overload]
                    self._hire()

    def dismiss(self) -> None:
        """At once: what it is doing is of no interest any more."""
        for connection, process in self._members.items():
            process.kill()
            process.join()
            connection.close()
        self._members.clear()

    def _hire(self) -> None:
        here, there = _fork.Pipe(duplex=False)
        process = _fork.Process(target=_work, args=(there, self._next, *self._given), daemon=True)
        process.start()
        there.close()
        self._members[here] = process


def _work(
    connection: Connection,
    following: Any,
    seed: int,
    backend: str,
    postgres: str,
    most: int,
    modes: tuple[str, ...],
    is_racy: bool,  # noqa: FBT001 - the arguments of a process stand in a row
) -> None:
    """In the process: until something hangs."""
    bench = Bench(config_for(backend, postgres))
    number = 0

    def ring(*_given: Any) -> None:
        """Whatever is going on here does not let itself be ended."""
        said = [f"hangs: the process did not answer for {_DEADLINE_SECONDS} s"]
        fault = str(bench.fault)
        program, _ = generated(seed, number, is_racy=is_racy)
        divergence = Divergence(seed, number, backend, fault, said, program, is_racy=is_racy)
        with suppress(OSError):
            connection.send(Report(number, executed=1, diverged=[divergence]))
        os._exit(0)

    signal.signal(signal.SIGALRM, ring)
    bench.deadline = _DEADLINE_SECONDS
    with suppress(OSError, KeyboardInterrupt):
        while not bench.is_spoiled:
            with following.get_lock():
                number = following.value
                following.value += 1
            connection.send(bench.run(seed, number, most, modes, is_racy=is_racy))
    os._exit(0)
