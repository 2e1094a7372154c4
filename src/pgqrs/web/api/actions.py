"""Acting on runs, one by one and all that a filter finds; 409 says what may be done instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from pgqrs.api.operations.admin import admin
from pgqrs.api.operations.run_actions import RETRY_CHILDREN, act, answer_wait
from pgqrs.db.tables import runs
from pgqrs.db.tables.runs import RunRow
from pgqrs.errors import ConfigError, InvalidTransition
from pgqrs.reports import BulkResult
from pgqrs.web.api.runs import RUN, forbidden
from pgqrs.web.api.shapes import API, RequestShape, RunId, Words
from pgqrs.web.auth.access import Scope
from pgqrs.web.routing import Endpoint, Handler, RequestContext

# Each run is a transaction of its own: what was done when the time is up is done, and a second call goes on.
BULK_SECONDS = 300.0


class Reason(RequestShape):
    """Why; it is kept in the run's history."""

    reason: Words | None = None


class Nothing(RequestShape):
    """An empty object, or no body at all."""


class RunResumption(RequestShape):
    """With `step`, `data` becomes what that paused step returns."""

    step: str | None = None
    data: Any = None


class Reset(RequestShape):
    """From that step on; else from the start."""

    from_step: str | None = None


class Signal(RequestShape):
    """What `ctx.wait_for` gets."""

    payload: Any = None


class PersonsReply(RequestShape):
    """To a run that waits for a person: yes or no, which reaches it as `{"approved", "comment"}`; or `data`, any
    JSON, which reaches it as it is. Who answered stands beside it, as the token's name: `Answer.actor`."""

    approved: bool | None = None
    comment: Words | None = None
    data: Any = msgspec.UNSET


class Bulk(RequestShape):
    """A verb for all runs of a filter. `dry_run`, the default, only says how many there are."""

    verb: Literal["cancel", "restart", "delete"]
    filter: str = ""
    dry_run: bool = True
    reason: Words | None = None
    # An empty filter is refused unless this says that it is meant.
    everything: bool = False


async def bulk(asked: RequestContext) -> BulkResult:
    given: Bulk = asked.body
    verbs = admin(asked.store)
    common: dict[str, Any] = {
        "dry_run": given.dry_run,
        "everything": given.everything,
        "actor": asked.actor,
        "on_progress": asked.progress,
    }
    match given.verb:
        case "cancel":
            return await verbs.cancel_runs(given.filter, reason=given.reason, **common)
        case "restart":
            return await verbs.restart_runs(given.filter, **common)
        case "delete":
            return await verbs.delete_runs(given.filter, reason=given.reason, **common)


async def answer(asked: RequestContext) -> RunRow:
    given: PersonsReply = asked.body
    told: Any = given.data
    if (given.approved is None) is (told is msgspec.UNSET):
        raise ConfigError("say either approved, true or false, or data")
    if given.approved is not None:
        told = {"approved": given.approved, "comment": given.comment}
    run_id = asked.number("run_id")
    try:
        await answer_wait(asked.store, run_id, told, actor=asked.actor)
    except InvalidTransition as error:
        raise await forbidden(asked, run_id, error) from None
    return await runs.get(await asked.store.ready(), run_id)


def _doing(action: str, given: Callable[[RequestContext], dict[str, Any]]) -> Handler:
    """The handler of one verb; it answers with the run as it is then."""

    async def handler(asked: RequestContext) -> RunRow:
        run_id = asked.number("run_id")
        try:
            await act(asked.store, run_id, action, actor=asked.actor, **given(asked))
        except InvalidTransition as error:
            raise await forbidden(asked, run_id, error) from None
        return await runs.get(await asked.store.ready(), run_id)

    return handler


def _reason(asked: RequestContext) -> dict[str, Any]:
    return {} if asked.body.reason is None else {"reason": asked.body.reason}


def _nothing(_asked: RequestContext) -> dict[str, Any]:
    return {}


def _resumption(asked: RequestContext) -> dict[str, Any]:
    return {"step": asked.body.step, "data": asked.body.data}


def _reset(asked: RequestContext) -> dict[str, Any]:
    return {"from_step": asked.body.from_step}


async def signal(asked: RequestContext) -> Any:
    """Answers with the id alone: a caller who may only send signals must not read."""
    run_id = asked.number("run_id")
    name, payload = asked.path("name"), asked.body.payload
    try:
        await act(asked.store, run_id, "signal", name=name, payload=payload, actor=asked.actor)
    except InvalidTransition as error:
        raise await forbidden(asked, run_id, error) from None
    return {"run_id": run_id}


def _verb(
    action: str, summary: str, takes: type[RequestShape], given: Callable[[RequestContext], dict[str, Any]]
) -> Endpoint:
    handler = _doing(action, given)
    return Endpoint("POST", f"{RUN}/{action}", handler, Scope.OPERATE, summary, takes=takes, gives=RunRow)


ENDPOINTS = (
    _verb("cancel", "End it, and its children", Reason, _reason),
    _verb("restart", "Continue where it stopped; only the steps that made it fail run again", Nothing, _nothing),
    _verb(
        RETRY_CHILDREN,
        "Restart it together with the failed or cancelled children that it failed because of",
        Nothing,
        _nothing,
    ),
    _verb("resume", "Let a paused run go on", RunResumption, _resumption),
    _verb("pause", "Take it out of the workers' hands until it is resumed", Reason, _reason),
    _verb("reset", "Once more, forgetting what it has done", Reset, _reset),
    _verb("delete", "Take it out of sight; `restore` takes that back", Reason, _reason),
    _verb("restore", "Take a deletion back", Nothing, _nothing),
    Endpoint(
        "POST",
        f"{RUN}/signals/{{name}}",
        signal,
        Scope.SIGNAL,
        "Send it a signal, which `ctx.wait_for(name)` gets",
        takes=Signal,
        gives=RunId,
    ),
    Endpoint(
        "POST",
        f"{RUN}/answer",
        answer,
        Scope.OPERATE,
        "Give it what it waits for: approve, reject, or data",
        takes=PersonsReply,
        gives=RunRow,
    ),
    Endpoint(
        "POST",
        f"{API}/bulk",
        bulk,
        Scope.OPERATE,
        "Cancel, restart or delete all runs of a filter; a dry run unless `dry_run` is false",
        takes=Bulk,
        gives=BulkResult,
        seconds=BULK_SECONDS,
    ),
)
