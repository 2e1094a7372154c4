"""What can be done to a run from its page, and answers to what it waits for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from pgqrs.api.operations.run_actions import RETRY_CHILDREN, act
from pgqrs.db.tables import runs
from pgqrs.db.views import run_details
from pgqrs.db.views.run_details import Waiting
from pgqrs.errors import InvalidTransition, SerializationError
from pgqrs.filters import RunFilter
from pgqrs.serialization import decode
from pgqrs.text.step_ids import is_answered_by_people, signal_of
from pgqrs.web import pagination
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.confirm import Confirmation, Field, PageAction, Unclear, text, value
from pgqrs.web.pages.rendering import seen
from pgqrs.web.problems import Problem
from pgqrs.web.routing import RequestContext

_PAGE = "/runs/{run_id:int}"
_REASON = Field("reason", "Reason", hint="kept in its history")
_SHOWN_STEPS = 100
_SHOWN_CHILDREN = 20


def checked(run_id: int) -> int:
    """No run has a number that the database cannot hold."""
    if not 0 <= run_id < 2**63:
        raise Problem(404, "run-not-found", f"there is no run {run_id}")
    return run_id


def _run_of(asked: RequestContext) -> int:
    return checked(asked.path("run_id"))


def _ask(
    sentence: str, *facts: str, fields: Sequence[Field] = ()
) -> Callable[[RequestContext], Awaitable[Confirmation]]:
    async def ask(asked: RequestContext) -> Confirmation:
        run_id = _run_of(asked)
        name = await runs.workflow_of(await asked.store.ready(), run_id)
        return Confirmation(sentence.format(run=f"run {run_id} of {name}"), facts, tuple(fields))

    return ask


def _do(action: str, *names: str) -> Callable[[RequestContext], Awaitable[None]]:
    """The verb of the library, with those of its arguments that the form has."""

    async def do(asked: RequestContext) -> None:
        given = {name: found for name in names if (found := text(asked, name)) is not None}
        await act(asked.store, _run_of(asked), action, actor=asked.actor, **given)

    return do


async def _ask_reset(asked: RequestContext) -> Confirmation:
    steps = await run_details.timeline(await asked.store.ready(), _run_of(asked), limit=_SHOWN_STEPS)
    choices = tuple(step.step_id for step in steps)
    chosen = Field("from_step", "From step", "choice", "empty: from the start", choices)
    asking = _ask("Start {run} anew?", "What its steps recorded from there on is forgotten.", fields=[chosen])
    return await asking(asked)


async def _ask_retry_children(asked: RequestContext) -> Confirmation:
    """Names the children that a look finds failed now; which of them made the run fail is decided when it is done."""
    run_id = _run_of(asked)
    wanted = RunFilter(parent_run_id=run_id, status=["error", "cancelled"])
    failed = await pagination.runs(asked.store, wanted, limit=_SHOWN_CHILDREN)
    numbers = ", ".join(str(each.run_id) for each in reversed(failed))
    more = " and more" if failed.next_cursor else ""
    asking = _ask(
        "Retry the failed children of {run}?",
        f"Failed or cancelled children: {numbers}{more}." if failed else "All children have succeeded by now.",
        "Those that made the run fail are restarted, and so is the run, which then waits for their results. "
        "Children that have succeeded are not run again.",
    )
    return await asking(asked)


async def _signal(asked: RequestContext) -> None:
    name = text(asked, "name")
    if name is None:
        raise Unclear("Say which signal.")
    payload = value(asked, "payload")
    await act(asked.store, _run_of(asked), "signal", name=name, payload=payload, actor=asked.actor)


ACTIONS = (
    PageAction(
        "run.resume", _PAGE, "Resume",
        _ask("Let {run} go on?", "A run that waits for an answer goes on without one."), _do("resume"),
    ),
    PageAction(
        "run.restart", _PAGE, "Restart",
        _ask(
            "Restart {run}?",
            "Only the steps that made it fail run again. Recorded results and caught errors stay as they are.",
        ),
        _do("restart"),
    ),
    PageAction(
        "run.retry-children", _PAGE, "Retry failed children", _ask_retry_children, _do(RETRY_CHILDREN), seconds=60.0,
    ),
    PageAction(
        "run.pause", _PAGE, "Pause",
        _ask("Pause {run}?", "Whoever executes it can write nothing from now on.", fields=[_REASON]),
        _do("pause", "reason"),
    ),
    PageAction(
        "run.cancel", _PAGE, "Cancel",
        _ask(
            "Cancel {run}?", "Its children that have not ended are cancelled, too. Only a restart undoes it.",
            fields=[_REASON],
        ),
        _do("cancel", "reason"), is_destructive=True,
    ),
    PageAction(
        "run.signal", _PAGE, "Send a signal",
        _ask(
            "Send {run} a signal?",
            fields=[Field("name", "Signal"), Field("payload", "Data", "json", 'JSON, such as {"approved": true}')],
        ),
        _signal, scope=Scope.SIGNAL,
    ),
    PageAction("run.reset", _PAGE, "Reset", _ask_reset, _do("reset", "from_step"), is_destructive=True),
    PageAction(
        "run.delete", _PAGE, "Delete",
        _ask("Delete {run}?", "It leaves the lists, and nobody runs it; restore takes that back.", fields=[_REASON]),
        _do("delete", "reason"), is_destructive=True,
    ),
    PageAction("run.restore", _PAGE, "Restore", _ask("Restore {run}?"), _do("restore")),
)  # fmt: skip
BY_VERB = {page_action.verb: page_action for page_action in ACTIONS}


# -- answers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """A wait that somebody can end: for a signal, or for a person."""

    run_id: int
    step_id: str
    # None for a pause, which any answer ends.
    signal: str | None
    since: datetime | None
    until: datetime | None


async def waits_of(asked: RequestContext, run_ids: Sequence[int]) -> list[Open]:
    found = await run_details.waits(await asked.store.ready(), run_ids)
    return [_open(each) for each in found if is_answered_by_people(each.step_id)]


def _open(wait: Waiting) -> Open:
    try:
        until = decode(wait.until, datetime) if wait.until else None
    except SerializationError:
        until = None
    return Open(wait.run_id, wait.step_id, signal_of(wait.step_id), wait.started_at, until)


async def answer(asked: RequestContext) -> Response:
    """To a step that waits: yes, no, or data; with a comment that is kept."""
    run_id = _run_of(asked)
    step_id, decision, comment = text(asked, "step"), text(asked, "decision"), text(asked, "comment")
    if all(each.step_id != step_id for each in await waits_of(asked, [run_id])):
        raise InvalidTransition(f"run {run_id} does not wait in {step_id!r} any more; nothing was done")
    given: Any
    if decision == "data":
        try:
            given = value(asked, "data")
        except Unclear as unclear:
            raise Problem(422, "bad-json", str(unclear)) from None
    elif decision in ("approve", "reject"):
        given = {"approved": decision == "approve", "comment": comment}
    else:
        raise Problem(422, "bad-request", "an answer is approve, reject or data")
    signal = signal_of(step_id or "")
    if signal is not None:
        await act(asked.store, run_id, "signal", name=signal, payload=given, actor=asked.actor)
    else:
        await act(asked.store, run_id, "resume", step=step_id, data=given, actor=asked.actor)
    return seen(asked, text(asked, "back"), done="run.answer", otherwise=f"/runs/{run_id}")
