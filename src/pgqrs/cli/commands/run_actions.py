"""Doing something to runs from the command line: asked first where it is hard to undo, told by whom."""

from __future__ import annotations

import getpass
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import typer

from pgqrs.cli import output, parse_values
from pgqrs.cli.progress import progress
from pgqrs.cli.state import say, state, with_store
from pgqrs.errors import ConfigError
from pgqrs.filters import RunFilter
from pgqrs.text.shell import command

if TYPE_CHECKING:
    from pgqrs.api.store import Store


def named_runs(words: list[str] | None) -> list[int]:
    found = parse_values.ids(words or [])
    if not found:
        raise ConfigError("name the runs, or - to read their ids from standard input")
    return found


def act_on(run_ids: list[int], action: str, said: str, **given: Any) -> None:
    """One after the other; the first that is refused stops it, and says which were done. As JSON, the runs now."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.run_actions import act
        from pgqrs.db.tables import runs as table

        db = await store.ready()
        done = []
        for run_id in run_ids:
            if not state().dry_run:
                await act(store, run_id, action, actor=_actor(), **given)
            output.told(f"run {run_id} {said}" + (" (not done: --dry-run)" if state().dry_run else ""))
            done.append(output.body(await table.get(db, run_id)))
        if state().output == "table":
            return
        if len(done) == 1:
            output.one(done[0], key="run_id")
        else:
            output.items(done, (), key="run_id")

    with_store(work)


def bulk(action: str, said: str, wanted: RunFilter, words: list[str] | None, **given: Any) -> None:
    if words:
        if not wanted.is_empty:
            raise ConfigError("name the runs, or say which with a filter, not both")
        act_on(named_runs(words), action, said, **given)
        return
    if wanted.is_empty:
        raise ConfigError(f"say which runs to {action}: their ids, or a filter such as --status error --since 1h")
    if state().output == "ids":
        raise ConfigError(
            "what a filter found is not told by ids", hint=f"pgqrs run list ... -o ids | {command(f'run {action} -')}"
        )

    async def work(store: Store) -> None:
        from pgqrs.api.operations.admin import admin

        verb: Callable[..., Coroutine[Any, Any, Any]] = getattr(admin(store), f"{action}_runs")
        planned = await verb(wanted, dry_run=True)
        say(f"{planned.matched} run(s) match {wanted}")
        if state().dry_run or not planned.matched.count:
            output.one(output.body(planned))
            return
        confirm(f"{action} {planned.matched} run(s)")
        total = None if planned.matched.capped else planned.matched.count
        with progress(action, total) as advanced:
            done = await verb(wanted, dry_run=False, actor=_actor(), on_progress=advanced, **given)
        output.one(output.body(done))

    with_store(work)


def answer(run_id: int, *, approved: bool, comment: str | None) -> None:
    """To a run that waits for a signal, or for a person."""
    answer = {"approved": approved, "comment": comment}

    async def work(store: Store) -> None:
        from pgqrs.api.operations.run_actions import answer_wait

        await answer_wait(store, run_id, answer, actor=_actor())
        output.told(f"run {run_id} is {'approved' if approved else 'rejected'}")

    with_store(work)


def confirm(what: str) -> None:
    """Before what is hard to undo: --yes, or a yes on a terminal."""
    if state().yes or state().dry_run:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"to {what}, say --yes")
    if not _says_yes(what):
        raise typer.Exit(1)


def _says_yes(what: str) -> bool:
    """Asks on standard error. Ctrl-C ends it: the event loop around us would only take note of it, and ask on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        print(f"{what}? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    finally:
        signal.signal(signal.SIGINT, before)


def _actor() -> str:
    return os.environ.get("PGQRS_ACTOR") or f"cli:{getpass.getuser()}"
