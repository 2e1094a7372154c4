"""Which process this is, in words that another process of the same machine can check."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


def identity() -> dict[str, Any]:
    """Return the process id and, on Linux, the boot, the pid namespace and the start time that make it unique."""
    pid = os.getpid()
    where, started = _machine(), _started(pid)
    return {"pid": pid} if where is None or started is None else {"pid": pid, "process": f"{where}/{started}"}


def has_ended(info: Mapping[str, Any]) -> bool:
    """True only when the process that gave this `identity` certainly runs no more.

    A process of another machine, of another container or of an earlier boot is never known to have ended: its
    lease decides.
    """
    pid, process = info.get("pid"), info.get("process")
    if not isinstance(pid, int) or not isinstance(process, str) or _machine() is None:
        return False
    where, _, started = process.rpartition("/")
    return where == _machine() and _started(pid, unreadable=started) != started


@functools.cache
def _machine() -> str | None:
    """Return the boot of this machine and the namespace in which process ids are counted."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return None


def _started(pid: int, *, unreadable: str | None = None) -> str | None:
    """Return when the process began; None when there is none, or only its zombie is left."""
    try:
        # Asked first: `/proc` may hide other people's processes, a signal does not.
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    try:
        # The name is in brackets and may hold anything; the state follows it, the start is the 22nd field.
        fields = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return unreadable
    return None if fields[0] in "ZXx" else fields[19]
