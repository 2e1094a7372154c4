"""The demo in your hands: a live view of runs and steps, and keys that kill, start and approve."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
import webbrowser
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pgqrs.api.operations.admin import admin
from pgqrs.api.operations.run_actions import answer_wait
from pgqrs.cli.console import print_line
from pgqrs.cli.demo import shop
from pgqrs.cli.demo.scripted import SCHEDULE, open_scene
from pgqrs.cli.demo.stage import DemoFailed, Stage
from pgqrs.cli.output import COLOURS, safe
from pgqrs.db.tables import runs as table
from pgqrs.db.tables.runs import BriefStep
from pgqrs.errors import PgqrsError
from pgqrs.types import RunStatus, RunSummary, StepStatus

KEYS = "c kill -9 the worker   r new run   a approve   o open the dashboard   q quit"
_MOST_RUNS, _MOST_LINES = 12, 8
# Long enough to see that nothing moves without a worker.
_WITHOUT_WORKER_SECONDS = 2.0
_MARKS = {
    StepStatus.SUCCESS: ("ok", "green"),
    StepStatus.ERROR: ("failed", "red"),
    StepStatus.PENDING: ("again", "yellow"),
    StepStatus.PAUSED: ("waits", "yellow"),
    StepStatus.RUNNING: ("...", "blue"),
}


async def by_keys(stage: Stage) -> int:
    """Until q; 0 when no invariant is broken, whatever was killed."""
    await open_scene(stage)
    view = _View(stage)
    stage.show = view.lines.append
    pressed: asyncio.Queue[str] = asyncio.Queue()
    try:
        with _keys(pressed), Live(console=Console(), screen=True, auto_refresh=False) as live:
            while await view.turn(pressed):
                live.update(await view.drawn(), refresh=True)
    finally:
        stage.show = print_line
    return await _verdict(stage)


class _View:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._orders = cycle([("drum", 240), ("globe", 30), ("easel", 150)])
        self._starting: asyncio.Task[None] | None = None

    async def turn(self, pressed: asyncio.Queue[str]) -> bool:
        """A key, or a moment without one; False when it is over."""
        key = ""
        with suppress(TimeoutError):
            key = await asyncio.wait_for(pressed.get(), timeout=0.15)
        match key.lower():
            case "q":
                return False
            case "c":
                self._kill()
            case "r":
                await self._trigger()
            case "a":
                await self._approve()
            case "o" if self._stage.dashboard is not None:
                webbrowser.open(self._stage.link_to_dashboard())
        if self._starting is not None and self._starting.done():
            # Raises what went wrong.
            self._starting.result()
            self._starting = None
        await self._stage.narrate()
        return True

    def _kill(self) -> None:
        if self._starting is not None:
            return
        self._stage.tell(f"worker {self._stage.kill_worker()} killed (SIGKILL); another one starts in a moment")
        self._starting = asyncio.create_task(self._start())

    async def _start(self) -> None:
        await asyncio.sleep(_WITHOUT_WORKER_SECONDS)
        await self._stage.start_worker()
        self._stage.tell(f"worker {self._stage.pid} started: what is under way goes on from its last step")

    async def _trigger(self) -> None:
        sku, euros = next(self._orders)
        await shop.order.trigger(sku=sku, euros=euros, attributes={"customer": "you"}).execute(self._stage.store)

    async def _approve(self) -> None:
        found = await admin(self._stage.store).runs(status=RunStatus.PAUSED, waiting_for="approval", limit=100)
        if not found:
            self._stage.tell("no run waits for approval; r starts one that will, sooner or later")
            return
        oldest = found[-1]
        try:
            await answer_wait(self._stage.store, oldest.run_id, {"approved": True}, actor="you")
        except PgqrsError as error:
            self._stage.tell(str(error))
            return
        self._stage.tell(f"run {oldest.run_id}  {oldest.workflow}   approved by you")

    # -- drawing -----------------------------------------------------------------------------------------

    async def drawn(self) -> Group:
        store = self._stage.store
        found = await admin(store).runs(limit=_MOST_RUNS)
        steps = await table.steps_in_brief(await store.ready(), [run.run_id for run in found]) if found else {}
        drawn = Table(box=None, header_style="bold", pad_edge=False, expand=True)
        for heading, right in (("run", True), ("workflow", False), ("status", False), ("steps", False)):
            drawn.add_column(heading, justify="right" if right else "left", overflow="ellipsis", no_wrap=True)
        for run in found:
            drawn.add_row(
                str(run.run_id),
                Text(run.workflow),
                Text(run.status, style=COLOURS[run.status]),
                _progress(run, steps.get(run.run_id, ())),
            )
        lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in self.lines]
        return Group(self._head(), Text(), drawn, Text(), *lines, Text(), Text(KEYS, style="bold"))

    def _head(self) -> Text:
        stage = self._stage
        worker = f"worker {stage.pid}" if stage.worker is not None else "NO WORKER"
        # Without the token: `o` opens it, and the line above has it.
        dashboard = stage.dashboard.url.partition("?")[0] if stage.dashboard is not None else "no dashboard"
        return Text(f"pgqrs demo   {worker}   {dashboard}   {stage.seconds:.0f} s", style="reverse", no_wrap=True)


def _progress(run: RunSummary, steps: Sequence[BriefStep]) -> Text:
    shown = Text()
    for step in steps:
        word, style = _MARKS[step.status]
        shown.append(f"{safe(step.step_id)} {word}  ", style=style)
    if run.status is RunStatus.ERROR and run.last_error:
        shown.append(safe(run.last_error), style="red")
    return shown


@contextmanager
def _keys(pressed: asyncio.Queue[str]) -> Iterator[None]:
    """Single keys without Enter; the terminal is as it was afterwards, whatever happens."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            keys = os.read(number, 64).decode(errors="ignore")
        except OSError:
            keys = ""
        # A terminal that is gone reads as nothing, again and again.
        for key in keys or "q":
            pressed.put_nowait(key)

    tty.setcbreak(number)
    loop.add_reader(number, read)
    try:
        yield
    finally:
        loop.remove_reader(number)
        termios.tcsetattr(number, termios.TCSADRAIN, before)


async def _verdict(stage: Stage) -> int:
    from pgqrs.api.schedules import schedules

    await schedules(stage.store).pause(SCHEDULE)
    counts = {status: (await admin(stage.store).count_runs(status=status)).count for status in RunStatus}
    told = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    stage.say("runs", told)
    began = len(shop.read_ledger(stage.ledger))
    stage.say("steps", f"{began} begun by {len({pid for _, _, pid in shop.read_ledger(stage.ledger)})} worker(s)")
    broken = await admin(stage.store).check_invariants()
    for each in broken:
        stage.say("broken", str(each))
    if broken:
        raise DemoFailed("an invariant is broken")
    stage.say("checked", "no invariant is broken")
    return 0
