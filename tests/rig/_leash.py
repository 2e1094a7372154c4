"""The leash: a server that ends with the test process that asked for it, however that process ends.

    test process  ── stdin: a word, or the end ──>  leash  ── signals ──>  initdb, then postgres
                  <── stdout: what went wrong ───

The leash is this file run as a script. It starts the server as its own child, so that the child's pid cannot
become somebody else's, waits until the test process lets go or is gone, ends the server and removes its folder.
Leaving the `with` block and dying of SIGKILL take the same way out, so the way out is tried in every test run.
"""

from __future__ import annotations

import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

READY_SECONDS = 60.0  # initdb and the first start took 0.6 to 1 s on two cores; the rest is for a loaded CI machine
FAREWELL_SECONDS = 5.0  # per signal, before the next and ruder one
GLANCE_SECONDS = 0.5  # how often the leash looks whether its owner is still there


class ServerFailed(RuntimeError):
    """A server of the rig could not be started; `log` holds the last lines it wrote."""

    def __init__(self, program: str, reason: str, *, log: str = "") -> None:
        tail = f"; the end of its log:\n{log}" if log else ""
        super().__init__(f"{program} did not start: {reason}{tail}")
        self.program = program
        self.reason = reason
        self.log = log


@dataclass(frozen=True, slots=True)
class RunAs:
    """How to start a program that refuses to run as root: behind a prefix, or as another user."""

    prefix: tuple[str, ...] = ()
    user: int | None = None
    group: int | None = None


def run_as(program: Path) -> RunAs:
    """The first way in which the program runs here as somebody other than root; asks it for its version."""
    if os.geteuid() != 0:
        return RunAs()
    refusals = []
    for way in _ways_out_of_root():
        refusal = _refusal(program, way)
        if refusal is None:
            return way
        refusals.append(refusal)
    raise ServerFailed(
        program.name,
        f"it refuses to run as root, and neither a user namespace nor another account can run {program} "
        f"({'; '.join(refusals)}); run the tests as an ordinary user, or keep it in a folder open to all",
    )


@contextmanager
def hold(
    folder: Path,
    commands: Sequence[Sequence[str]],
    *,
    way: RunAs,
    is_ready: Callable[[], bool],
    farewell: Sequence[signal.Signals],
) -> Iterator[None]:
    """Run the commands one after the other in the folder; enter when the last of them, the server, is ready.

    On the way out, or when this process dies, the server gets the farewell signals, one after the other until it
    is gone, and the folder is removed. Raises ServerFailed when the server ends, or is not ready in time.
    """
    if way.user is not None:
        os.chown(folder, way.user, -1)
    order = _Order(os.getpid(), str(folder), commands, way.prefix, way.user, way.group, farewell)
    leash = subprocess.Popen(
        # -I -S: the leash needs the standard library only, and is up in 30 ms.
        [sys.executable, "-I", "-S", __file__, json.dumps(asdict(order))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Ctrl-C goes to the whole process group of the terminal; the leash must outlive it to clean up.
        start_new_session=True,
    )
    assert leash.stdout is not None
    try:
        _await_ready(Path(commands[-1][0]).name, is_ready, leash.stdout, folder)
        yield
    finally:
        # A word and not only the end of the pipe: a child that a test made with os.fork() has a copy of our end.
        report, _ = leash.communicate(b"let go\n")
    if leash.returncode != 0:
        raise RuntimeError(f"{folder} may be left behind: {report.decode(errors='replace')}")


def _ways_out_of_root() -> Iterator[RunAs]:
    account = _ordinary_account()
    # A user namespace first: the process is still root to the file system, so that a virtual environment below
    # /root or a TMPDIR only we may enter works. Not to be had in a container with Docker's default seccomp
    # profile, nor with busybox's unshare.
    if unshare := shutil.which("unshare"):
        ids = (f"--map-user={account.pw_uid}", f"--map-group={account.pw_gid}")
        yield RunAs(prefix=(unshare, "--user", *ids))
    # Then another account, which any root may become, but which must be able to reach the program. Keeping
    # CAP_DAC_OVERRIDE on the way down does not help: initdb asks access(2), which leaves capabilities out.
    yield RunAs(user=account.pw_uid, group=account.pw_gid)


def _ordinary_account() -> pwd.struct_passwd:
    # It must be one that exists: initdb gives up on a uid without a name, inside a user namespace too.
    accounts = {account.pw_name: account for account in pwd.getpwall() if account.pw_uid != 0}
    for name in ("postgres", "nobody", *accounts):
        if name in accounts:
            return accounts[name]
    raise ServerFailed("a server", "it refuses to run as root, and this machine has no other account")


def _refusal(program: Path, way: RunAs) -> str | None:
    try:
        answer = subprocess.run(
            [*way.prefix, str(program), "--version"],
            user=way.user,
            group=way.group,
            extra_groups=None if way.user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        return str(error)
    return None if answer.returncode == 0 else answer.stdout.decode(errors="replace").strip()


def _await_ready(program: str, is_ready: Callable[[], bool], reports: IO[bytes], folder: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not is_ready():
        # The leash speaks only when something has gone wrong.
        if select.select([reports], [], [], 0.02)[0]:
            reason = os.read(reports.fileno(), 65536).decode(errors="replace").strip()
            raise ServerFailed(program, reason or "its leash was killed", log=_tail(folder))
        if time.monotonic() > deadline:
            raise ServerFailed(program, f"it was not ready after {READY_SECONDS:.0f} s", log=_tail(folder))


def _log(folder: Path) -> Path:
    return folder / "log"


def _tail(folder: Path) -> str:
    if not _log(folder).exists():
        return ""
    return "\n".join(_log(folder).read_text(errors="replace").splitlines()[-20:])


# From here on: the leash itself, in its own process.


@dataclass(frozen=True, slots=True)
class _Order:
    """What the test process tells its leash, as JSON in the one argument."""

    owner: int
    folder: str
    commands: Sequence[Sequence[str]]
    prefix: Sequence[str]
    user: int | None
    group: int | None
    farewell: Sequence[int]


def _main(order: _Order) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    watch = _Watch(order.owner)
    child, ending = None, ""
    try:
        for command in order.commands:
            child = _spawn(order, command)
            if watch.is_let_go_before_the_end_of(child):
                return
            ending = f"{command[0]} ended with exit code {child.returncode}\n"
            if child.returncode != 0:
                break
        # Its folder stays until we are let go: the test process wants to read the log.
        sys.stdout.write(ending)
        sys.stdout.flush()
        watch.wait_to_be_let_go()
    finally:
        if child is not None:
            _end(child, order.farewell)
        shutil.rmtree(order.folder)


class _Watch:
    """Waits for the child and for the test process at once."""

    def __init__(self, owner: int) -> None:
        self._owner = owner
        self._wake, wake_up = os.pipe()
        os.set_blocking(wake_up, False)
        signal.set_wakeup_fd(wake_up)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def is_let_go_before_the_end_of(self, child: subprocess.Popen[bytes]) -> bool:
        while child.poll() is None:
            if self._is_let_go():
                return True
        return False

    def wait_to_be_let_go(self) -> None:
        while not self._is_let_go():
            pass

    def _is_let_go(self) -> bool:
        # The pipe tells at once, unless a child that a test made with os.fork() still has a copy of its other
        # end; then we see by our parent that the owner is gone. PR_SET_PDEATHSIG would fire when the *thread*
        # that started us ends, and a pidfd is for Linux only.
        if os.getppid() != self._owner:
            return True
        readable, _, _ = select.select([sys.stdin, self._wake], [], [], GLANCE_SECONDS)
        if self._wake in readable:
            os.read(self._wake, 64)
        return sys.stdin in readable


def _spawn(order: _Order, command: Sequence[str]) -> subprocess.Popen[bytes]:
    with _log(Path(order.folder)).open("ab") as log:
        return subprocess.Popen(
            [*order.prefix, *command],
            user=order.user,
            group=order.group,
            extra_groups=None if order.user is None else [],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=order.folder,
            # Its own group, so that what initdb has started ends with initdb.
            process_group=0,
        )


def _end(child: subprocess.Popen[bytes], farewell: Sequence[int]) -> None:
    for number in farewell:
        if child.poll() is not None:
            return
        os.killpg(child.pid, number)
        try:
            child.wait(FAREWELL_SECONDS)
        except subprocess.TimeoutExpired:
            continue


if __name__ == "__main__":
    _main(_Order(**json.loads(sys.argv[1])))
