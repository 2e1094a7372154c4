"""Why a run does not move: one sentence, the evidence, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgqrs.api.operations.metrics import LIVE_LEASES
from pgqrs.clock import is_readable
from pgqrs.db.runs.restarts import blames_children, compensations_in, culprits_in
from pgqrs.db.runs.transitions import PUT_AWAY_SECONDS
from pgqrs.db.views import run_facts as db_why
from pgqrs.db.views.run_facts import OpenStep, RunFacts
from pgqrs.errors import SerializationError
from pgqrs.reports import Why
from pgqrs.serialization import decode
from pgqrs.text.durations import format_duration
from pgqrs.text.shell import command
from pgqrs.text.step_ids import is_answered_by_people, is_pause, is_sleep, signal_of
from pgqrs.types import ENDED, RunStatus, StepStatus

if TYPE_CHECKING:
    from pgqrs.api.store import Store
    from pgqrs.db.tables.runs import RunRow
    from pgqrs.db.views.inspection import LiveRun

PARKED = "parked: "


async def why(run_id: int, store: Store) -> Why:
    """What keeps the run from moving, first what would keep it whatever else were mended."""
    facts = await db_why.facts(await store.ready(), run_id)
    found = list(_obstacles(facts, live_within=LIVE_LEASES * store.config.lease_seconds))
    first, *others = found
    if not others:
        return first
    also = tuple(f"also: {other.sentence}" for other in others)
    return Why(first.run_id, first.cause, first.sentence, (*first.evidence, *also), first.fix, first.until)


def is_parked(run: RunFacts | RunRow | LiveRun) -> bool:
    """Return whether its code has asked for other steps than are recorded: it waits for an operator."""
    return run.status == RunStatus.PAUSED and (run.waiting_for or "").startswith(PARKED)


def _obstacles(facts: RunFacts, *, live_within: float) -> Iterator[Why]:
    """Everything that is in its way, one at least."""
    if facts.deleted_at is not None:
        yield _why(
            facts,
            "deleted",
            f"it was deleted at {_time(facts.deleted_at)}",
            fix=command("run restore", facts.run_id),
        )
        return
    if facts.status in ENDED:
        yield _ended(facts)
        return
    if _is_held(facts):
        yield _held(facts, live_within)
        return
    if is_parked(facts):
        yield _parked(facts)
    if facts.queue_paused_at is not None:
        yield _why(
            facts,
            "queue_paused",
            f"its queue {facts.queue!r} is paused since {_time(facts.queue_paused_at)}",
            fix=command("queue resume", facts.queue),
        )
    yield from _nobody(facts, live_within)
    if not is_parked(facts):
        yield from _waiting(facts)


def _is_held(facts: RunFacts) -> bool:
    return facts.leased_by is not None and (facts.visible_in_seconds or 0) > 0


def _ended(facts: RunFacts) -> Why:
    at = _time(facts.completed_at)
    match facts.status:
        case RunStatus.SUCCESS:
            return _why(facts, "succeeded", f"it has ended in SUCCESS at {at}")
        case RunStatus.CANCELLED:
            cancelled = [child for child in facts.failed_children if child[2] is RunStatus.CANCELLED]
            verb = "retry-children" if cancelled else "restart"
            fix = command(f"run {verb}", facts.run_id)
            return _why(facts, "cancelled", f"it was cancelled at {at}", _ends(cancelled), fix=fix)
    evidence = [f"last error: {facts.last_error}"] if facts.last_error else []
    culprits = culprits_in(facts.error, facts.last_error)
    failed = [step.step_id for step in facts.steps if step.status is StepStatus.ERROR]
    evidence += [f"step {step_id!r} failed" for step_id in failed if culprits is None or step_id in culprits]
    if blames_children(facts.error, facts.last_error):
        evidence += _ends(facts.failed_children)
        fix = command("run retry-children", facts.run_id)
        return _why(facts, "failed", f"it has ended in ERROR at {at}", evidence, fix=fix)
    if compensations := compensations_in(facts.error):
        # A restart would run the failed step again beside its refund.
        evidence += [f"not retried: the workflow ran {', '.join(map(repr, compensations))} because of the error"]
        fix = command("run reset", facts.run_id)
        return _why(facts, "failed", f"it has ended in ERROR at {at}", evidence, fix=fix)
    return _failed(facts, at, evidence, is_blameless=culprits == frozenset())


def _failed(facts: RunFacts, at: str, evidence: list[str], *, is_blameless: bool) -> Why:
    """What a restart is for. `is_blameless`: no step failed."""
    if facts.last_error == "worker_lost":
        sentence = f"it is a dead letter since {at}: its worker was lost in every attempt"
        return _why(facts, "dead_letter", sentence, evidence, fix=command("run restart", facts.run_id))
    if is_blameless and facts.last_error != "no_handler_registered":
        return _failed_by_itself(facts, at, evidence)
    return _why(facts, "failed", f"it has ended in ERROR at {at}", evidence, fix=command("run restart", facts.run_id))


def _failed_by_itself(facts: RunFacts, at: str, evidence: list[str]) -> Why:
    """The handler raised, and raises again for as long as its code and what is recorded stay the same."""
    answers = [step_id for step_id in facts.completed if is_answered_by_people(step_id)]
    restart = command("run restart", facts.run_id)
    sentence = f"it has ended in ERROR at {at}"
    evidence = [
        *evidence,
        "no step failed: the handler itself raised, and a restart replays the same recorded values",
    ]
    if not answers:
        return _why(facts, "failed", sentence, [*evidence, "fix the code first"], fix=restart)
    # With nothing recorded after it, the answer is the last thing that the handler was given.
    again = command("run reset", facts.run_id, **{"from": answers[0]})
    if facts.completed[0] == answers[0]:
        evidence.append(f"the last of them is the answer to {answers[0]!r}: the reset asks for it again")
        return _why(
            facts, "failed", sentence, [*evidence, f"if the code was wrong, fix it, then: {restart}"], fix=again
        )
    evidence.append(f"fix the code first; or, if the answer to {answers[0]!r} was wrong, ask for it again: {again}")
    return _why(facts, "failed", sentence, evidence, fix=restart)


def _ends(children: Iterable[tuple[int, str, RunStatus]]) -> list[str]:
    return [f"child {run_id} of {workflow!r} ended in {status}" for run_id, workflow, status in children]


def _held(facts: RunFacts, live_within: float) -> Why:
    left = facts.visible_in_seconds or 0.0
    who = f"worker {facts.holder or facts.leased_by}"
    silent = facts.holder_silent_seconds
    evidence = [f"attempt {facts.attempts} of {facts.max_attempts}"]
    evidence += [f"step {step.step_id!r} is to be tried again" for step in facts.steps if step.attempts]
    if silent is not None:
        evidence.append(f"the worker's last sign of life was {format_duration(silent)} ago")
    if silent is not None and silent > live_within:
        sentence = (
            f"{who} holds it and has been silent for {format_duration(silent)}; "
            f"it is taken over in {format_duration(left)}"
        )
        return _why(facts, "holder_silent", sentence, evidence, until=facts.visible_after)
    sentence = f"{who} is at work on it; the lease runs {format_duration(left)} and is renewed meanwhile"
    return _why(facts, "leased", sentence, evidence, until=facts.visible_after)


def _parked(facts: RunFacts) -> Why:
    """A worker with the right code looks at it only when its check interval is over: a resume is needed, too."""
    return _why(
        facts,
        "parked",
        f"parked for {format_duration(facts.since_seconds)}: "
        "its code asks for different steps than the ones recorded",
        [
            (facts.waiting_for or "").removeprefix(PARKED),
            "first run a worker with the code that the run began with; other code parks it again",
            f"to restart it from scratch with the code that is deployed: {command('run reset', facts.run_id)}",
        ],
        fix=command("run resume", facts.run_id),
    )


def _nobody(facts: RunFacts, live_within: float) -> Iterator[Why]:
    """Nobody could take it, even if it were due."""
    wanting = [server for server in facts.servers if server.wants(facts.workflow)]
    alive = [server for server in wanting if server.silent_seconds <= live_within]
    start = command("worker run YOUR_APP")
    if not wanting:
        others = sorted({name for server in facts.servers for name in server.handlers})
        served = [f"workers serve {', '.join(others[:10])}"] if others else ["no worker at all is registered"]
        yield _why(facts, "no_worker", f"no worker serves {facts.workflow!r}", served, fix=start)
    elif not alive:
        silent = min(server.silent_seconds for server in wanting)
        names = ", ".join(sorted({server.name for server in wanting})[:10])
        sentence = (
            f"the workers of {facts.workflow!r} are gone: the last sign of life was {format_duration(silent)} ago"
        )
        yield _why(facts, "workers_stale", sentence, [f"workers: {names}"], fix=start)
    elif all(facts.workflow not in server.handlers for server in alive):
        names = ", ".join(sorted({server.name for server in alive})[:10])
        sentence = f"the workers that take {facts.workflow!r} by its prefix have no code for it"
        yield _why(facts, "no_handler", sentence, [f"workers: {names}"], fix=start)


def _waiting(facts: RunFacts) -> Iterator[Why]:
    """What it waits for itself; when for nothing, it is due."""
    for_long = format_duration(facts.since_seconds)
    waits_in = facts.visible_in_seconds or 0.0
    paused = facts.status is RunStatus.PAUSED
    label = facts.waiting_for or ""
    failed = [step for step in facts.steps if step.error and step.status is StepStatus.PENDING]
    if paused and waits_in > PUT_AWAY_SECONDS:
        sentence = f"somebody paused it {for_long} ago: {label}"
        yield _why(facts, "paused", sentence, fix=command("run resume", facts.run_id))
    elif paused and facts.children:
        yield _children(facts)
    elif paused:
        yield _wait_of(facts, for_long)
    elif waits_in > 0 and facts.attempts and facts.last_error:
        sentence = f"it failed and is tried again in {format_duration(waits_in)}"
        evidence = [f"attempt {facts.attempts} of {facts.max_attempts}: {facts.last_error}"]
        yield _why(facts, "backing_off", sentence, evidence, until=facts.visible_after)
    elif waits_in > 0 and failed:
        names = ", ".join(repr(each.step_id) for each in failed)
        sentence = f"step {names} failed and is tried again in {format_duration(waits_in)}"
        yield _why(facts, "backing_off", sentence, [_failure(each) for each in failed], until=facts.visible_after)
    elif waits_in > 0:
        yield _why(facts, "scheduled", f"it is to begin in {format_duration(waits_in)}", until=facts.visible_after)
    elif facts.leased_by is not None:
        sentence = f"the lease of worker {facts.holder or facts.leased_by} ran out {format_duration(-waits_in)} ago"
        then = "it ends in ERROR" if (facts.attempts or 0) >= (facts.max_attempts or 0) else "it is taken again"
        evidence = [f"attempt {facts.attempts} of {facts.max_attempts}; at the next look {then}"]
        yield _why(facts, "lease_expired", sentence, evidence)
    else:
        ahead = f"{facts.ready_before:,}" if facts.ready_before < 1000 else "1,000 or more"
        yield _why(facts, "ready", f"it is due, and waits for a free worker; {ahead} are taken before it")


def _children(facts: RunFacts) -> Why:
    evidence = [f"run {run_id} of {workflow!r} is {status}" for run_id, workflow, status in facts.children]
    many = "20 or more" if len(facts.children) == 20 else str(len(facts.children))
    sentence = f"it waits for {many} of its children to end"
    return _why(facts, "waiting_for_children", sentence, evidence, fix=command("run why", facts.children[0][0]))


def _wait_of(facts: RunFacts, for_long: str) -> Why:
    """Asleep, or waiting for a signal or a person: told by the steps that are paused."""
    waits = [step for step in facts.steps if step.status is StepStatus.PAUSED]
    ends = [(step, until) for step in waits if (until := _until(step)) is not None]
    evidence = [
        f"step {step.step_id!r}" + (f", until {_time(until)}" if (until := _until(step)) else "") for step in waits
    ]
    if waits and all(is_sleep(step.step_id) for step in waits) and ends:
        until = min(until for _, until in ends)
        return _why(facts, "asleep", f"it sleeps until {_time(until)}", evidence, until=until)
    until = min((until for _, until in ends), default=None)
    signals = [name for step in waits if (name := signal_of(step.step_id)) is not None]
    if signals:
        sentence = f"it waits for signal {', '.join(map(repr, signals))} since {for_long}"
        if _asks_for_approval(signals[0]):
            evidence.append(f"to decline: {command('run reject', facts.run_id)}")
            fix = command("run approve", facts.run_id)
        else:
            evidence.append(f"PAYLOAD is the JSON that ctx.wait_for({signals[0]!r}) returns; leave it out for None")
            fix = command("run signal", facts.run_id, signals[0], "PAYLOAD")
        return _why(facts, "waiting_for_signal", sentence, evidence, fix=fix, until=until)
    sentence = f"it waits for a person since {for_long}: {facts.waiting_for}"
    fix = command("run resume", facts.run_id)
    pauses = [step.step_id for step in waits if is_pause(step.step_id)]
    if pauses:
        # Without the step's name the run looks again, and waits on.
        evidence.append("DATA is the JSON that ctx.pause returns; leave --data out for None")
        fix = command("run resume", facts.run_id, step=pauses[0], data="DATA")
    return _why(facts, "waiting_for_person", sentence, evidence, fix=fix, until=until)


def _asks_for_approval(signal: str) -> bool:
    """Is it a yes or no? Only its name tells: what the handler makes of the payload is not recorded."""
    return "approv" in signal.lower()


def _failure(step: OpenStep) -> str:
    try:
        found = decode(step.error or "{}", dict[str, Any])
    except SerializationError:
        found = {}
    said = ": ".join(str(found[name]) for name in ("type", "message") if name in found)
    return f"step {step.step_id!r}, attempt {step.attempts}: {said or 'it cannot be read'}"


def _until(step: OpenStep) -> datetime | None:
    """When a wait ends by itself; None when only somebody can end it."""
    try:
        return decode(step.output, datetime) if step.output else None
    except SerializationError:
        return None


def _time(moment: datetime | None) -> str:
    return "an unknown time" if moment is None or not is_readable(moment) else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _why(
    facts: RunFacts,
    cause: str,
    sentence: str,
    evidence: list[str] | tuple[str, ...] = (),
    *,
    fix: str | None = None,
    until: datetime | None = None,
) -> Why:
    return Why(facts.run_id, cause, sentence, tuple(evidence), fix, until)
