"""The processes under chaos: each with a role, killed and replaced at will, and gone when we are.

They are forked from a server that has everything imported: a fresh interpreter takes 300 ms, a fork 30.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from multiprocessing import forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path

from proof.chaos import roles
from proof.chaos.lateness import watch
from proof.chaos.ledger import Ledger
from proof.chaos.roles import Post

log = logging.getLogger("proof.chaos")

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["proof.chaos.roles", "asyncpg", "pgqrs.db.drivers.postgres.driver", "pgqrs.db.drivers.sqlite.driver"]
)
_PR_SET_PDEATHSIG = 1
END_SECONDS = 60.0


@dataclass(eq=False)
class Member:
    """Whoever is at a post now."""

    post: Post
    process: BaseProcess
    stopped: bool = False
    since: float = field(default_factory=time.monotonic)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        # Not reaped yet or not ours any more: the process object knows, the number alone does not.
        if self.process.is_alive():
            os.kill(self.pid, number)


class Crew:
    """Starts members, ends them, and counts those that ended by themselves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger = Ledger(folder / "ledger")
        self.members: list[Member] = []
        # Exit codes of those whom nobody had told to end.
        self.deserters: list[int] = []

    def hire(self, post: Post) -> Member:
        process = _FORKS.Process(target=_serve, args=(post, self.folder), daemon=True)
        process.start()
        member = Member(post, process)
        self.members.append(member)
        return member

    def replace(self, member: Member) -> Member:
        self.members.remove(member)
        return self.hire(member.post)

    def look_after(self) -> None:
        """Replaces those who ended by themselves."""
        for member in list(self.members):
            if not member.process.is_alive():
                self.deserters.append(member.process.exitcode or 0)
                self.replace(member)

    async def dismiss(self, *wanted: str) -> list[int]:
        """SIGTERM for these roles (for all without any); their exit codes. Who does not end in time is killed."""
        leaving = [member for member in self.members if not wanted or member.post.role in wanted]
        for member in leaving:
            member.signal(signal.SIGTERM)
        deadline = time.monotonic() + END_SECONDS
        codes = []
        for member in leaving:
            await asyncio.to_thread(member.process.join, max(0.0, deadline - time.monotonic()))
            if member.process.is_alive():
                member.signal(signal.SIGKILL)
                await asyncio.to_thread(member.process.join)
            codes.append(member.process.exitcode or 0)
            self.members.remove(member)
        return codes

    def close(self) -> None:
        for member in self.members:
            member.signal(signal.SIGKILL)
        for member in self.members:
            member.process.join()
        self.members.clear()
        self.ledger.close()

    def complaints(self) -> list[str]:
        """What they logged, from warnings upward."""
        path = self.folder / "log"
        return path.read_text(errors="replace").splitlines() if path.exists() else []


def _serve(post: Post, folder: Path) -> None:
    """In the child."""
    _end_with_those_who_give_the_orders()
    # Until the role listens for it.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    logging.basicConfig(
        filename=folder / "log",
        format=f"%(asctime)s %(process)d {post.role} %(name)s %(message)s",
        level=logging.WARNING,
    )
    ledger = Ledger(folder / "ledger")
    threading.Thread(target=watch, args=(ledger, threading.Event()), daemon=True).start()
    try:
        asyncio.run(roles.ROLES[post.role](post, ledger))
    except BaseException:
        log.exception("ended by")
        raise


def _end_with_those_who_give_the_orders() -> None:
    """SIGKILL when our parent, the fork server, ends; the kernel does that to a stopped process, too.

    The fork server ends when nobody holds the other end of its pipe any more. Every child gets a copy and closes it:
    what is left is that of the process that gives the orders.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    server = forkserver._forkserver
    if server._forkserver_alive_fd is not None:
        os.close(server._forkserver_alive_fd)
        server._forkserver_alive_fd = None
