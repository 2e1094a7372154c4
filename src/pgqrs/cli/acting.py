"""Doing something to runs from the command line: asked first where it is hard to undo, told by whom."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import typer

from pgqrs.cli import output, values
from pgqrs.cli.state import say, state, with_store
from pgqrs.errors import ConfigError
from pgqrs.filters import RunFilter

if TYPE_CHECKING:
    from pgqrs.api.store import Store


def named_runs(words: list[str] | None) -> list[int]:
    found = values.ids(words or [])
    if not found:
        raise ConfigError("name the runs, or - to read their ids from standard input")
    return found


def act_on(run_ids: list[int], action: str, said: str, **given: Any) -> None:
    """One after the other; the first that is refused stops it, and says which were done."""

    async def work(store: Store) -> None:
        from pgqrs.api.actions import act

        for run_id in run_ids:
            if not state().dry_run:
                await act(store, run_id, action, actor=_actor(), **given)
            print(f"run {run_id} {said}" + (" (not done: --dry-run)" if state().dry_run else ""))

    with_store(work)


def bulk(action: str, said: str, wanted: RunFilter, words: list[str] | None, **given: Any) -> None:
    if words:
        if not wanted.is_empty:
            raise ConfigError("name the runs, or say which with a filter, not both")
        act_on(named_runs(words), action, said, **given)
        return
    if wanted.is_empty:
        raise ConfigError(f"say which runs to {action}: their ids, or a filter such as --status error --since 1h")

    async def work(store: Store) -> None:
        from pgqrs.api.admin import admin
        from pgqrs.api.bodies import body

        verb: Callable[..., Coroutine[Any, Any, Any]] = getattr(admin(store), f"{action}_runs")
        planned = await verb(wanted, dry_run=True)
        say(f"{planned.matched} run(s) match {wanted}")
        if state().dry_run or not planned.matched.count:
            output.one(body(planned))
            return
        confirm(f"{action} {planned.matched} run(s)")
        output.one(body(await verb(wanted, dry_run=False, actor=_actor(), **given)))

    with_store(work)


def answer(run_id: int, *, approved: bool, comment: str | None) -> None:
    """To a run that waits for a signal, or for a person."""
    answer = {"approved": approved, "by": _actor(), "comment": comment}

    async def work(store: Store) -> None:
        from pgqrs.api.actions import answer_wait

        await answer_wait(store, run_id, answer, actor=_actor())
        print(f"run {run_id} is {'approved' if approved else 'rejected'}")

    with_store(work)


def confirm(what: str) -> None:
    """Before what is hard to undo: --yes, or a yes on a terminal."""
    if state().yes or state().dry_run:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"to {what}, say --yes")
    if not typer.confirm(f"{what}?", err=True):
        raise typer.Exit(1)


def _actor() -> str:
    return os.environ.get("PGQRS_ACTOR") or f"cli:{getpass.getuser()}"
