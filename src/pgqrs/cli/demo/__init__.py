"""`pgqrs demo`: durability seen, not read. The worker is a real process, and it is really killed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from pgqrs.cli.console import is_interactive
from pgqrs.cli.demo.stage import DemoFailed, Stage
from pgqrs.process_signals import run_until_signalled
from pgqrs.text.shell import command, quoted


def run(*, keep: bool, play: bool, port: int | None) -> int:
    """The exit code. Processes and files are gone when this returns, also after Ctrl-C; `keep` leaves the folder."""
    folder = Path(tempfile.mkdtemp(prefix="pgqrs-demo-", dir=None if keep else _memory()))
    by_hand = not play and is_interactive()
    try:
        return run_until_signalled(_demo(folder, by_hand=by_hand, keep=keep, port=port))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _memory() -> str | None:
    """A folder that no disk is waited for, where there is one; unless somebody has said where such files go."""
    folder = "/dev/shm"  # noqa: S108 - only to find out; mkdtemp makes one of our own in it
    return folder if "TMPDIR" not in os.environ and os.access(folder, os.W_OK) else None


async def _demo(folder: Path, *, by_hand: bool, keep: bool, port: int | None) -> int:
    stage = Stage(folder, kept=keep)
    try:
        async with stage.opened(port=port):
            if by_hand:
                from pgqrs.cli.demo.interactive import by_keys

                return await by_keys(stage)
            from pgqrs.cli.demo.scripted import play

            return await play(stage)
    except DemoFailed as error:
        stage.say("failed", str(error))
    finally:
        if keep:
            stage.say("kept", str(stage.file))
            stage.say("", f"look at it: PGQRS_DSN={quoted(stage.config.dsn)} {command('run list')}")
    return 1
