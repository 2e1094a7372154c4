"""`python -m proof.power.forking`: one order a line (folder, synchronous, place), one fork of the workload for each.

It says the child's process id, "held" when the child has come to its place, and how it ended.
"""

import asyncio
import ctypes
import json
import logging
import os
import signal
import sys
from pathlib import Path

import pgqrs
from proof.power import workload
from proof.power.nursery import GATE, HELD, SAW_AN_ERROR

# A child that takes longer hangs: the work itself takes a fifth of a second.
DEADLINE_SECONDS = 120
_PR_SET_PTRACER, _ANYBODY = 0x59616D61, -1


def _serve() -> None:
    # A warning of a fault is what is expected here: it would only be in the way of the table.
    logging.disable(logging.CRITICAL)
    for line in sys.stdin:
        folder, synchronous, place = json.loads(line)
        child = os.fork()
        if child == 0:
            print(os.getpid(), flush=True)
            os._exit(_run(Path(folder), synchronous, place))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(folder: Path, synchronous: str, place: str) -> int:
    # Where a process may only trace its own children, this one lets anybody.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(_ANYBODY), 0, 0, 0)

    def hold(here: str) -> None:
        if here == place:
            os.write(sys.stdout.fileno(), HELD.encode())
            (folder / GATE).read_bytes()
            signal.alarm(DEADLINE_SECONDS)

    try:
        with workload.pragmas(synchronous):
            asyncio.run(workload.first_program(folder, hold))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the harness judges it
        # Told in a file, and then the end, at once: nothing is closed, as in a program that dies of its error.
        saw = {"type": type(error).__name__, "ours": isinstance(error, pgqrs.PgqrsError), "text": str(error)}
        (folder / workload.SAW).write_text(json.dumps(saw))
        return SAW_AN_ERROR
    return 0


if __name__ == "__main__":
    _serve()
