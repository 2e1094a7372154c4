"""Installed files for tests: to copy one takes a tenth of the time of installing another."""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
import threading
from pathlib import Path

import pgqrs

_made: dict[str, Path] = {}


def copied(backend: str, path: Path) -> None:
    """A file with nothing but the tables in it."""
    if backend not in _made:
        folder = Path(tempfile.mkdtemp(prefix="pgqrs-template-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _made[backend] = folder / "app.db"
        # A loop of its own: the test's may be running.
        thread = threading.Thread(target=asyncio.run, args=(_install(f"{backend}:///{_made[backend]}"),))
        thread.start()
        thread.join()
    for each in _made[backend].parent.iterdir():
        shutil.copy(each, path.parent / each.name.replace("app.db", path.name))


async def _install(dsn: str) -> None:
    async with pgqrs.connect(dsn, install=True):
        pass
