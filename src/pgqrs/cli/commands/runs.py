"""`pgqrs run ...`: trigger, find, look, act."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgqrs.cli import output, parse_values
from pgqrs.cli.commands.run_actions import act_on, answer, bulk, confirm, named_runs
from pgqrs.cli.commands.sent_signals import show_signals
from pgqrs.cli.filter_options import chooses
from pgqrs.cli.output import Column, age, column
from pgqrs.cli.state import say, state, with_store
from pgqrs.errors import ConfigError, InvalidArguments
from pgqrs.filters import RunFilter
from pgqrs.text.durations import format_duration

if TYPE_CHECKING:
    from pgqrs.api.store import Store

runs: typer.Typer = typer.Typer(help="Runs: trigger, find, look, act.", no_args_is_help=True)

RunId = Annotated[int, typer.Argument(metavar="ID", min=0)]
RunIds = Annotated[list[str] | None, typer.Argument(metavar="[ID...]", help="Runs; - reads ids from standard input.")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Where the next page begins, as the last one said.")]
Comment = Annotated[str | None, typer.Option("--comment", help="It goes with the answer.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; it is kept in the run's history.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")]


# The message of an error in a cell.
_MOST_ERROR = 100


def _took(step: dict[str, Any]) -> str:
    began, ended = step["started_at"], step["completed_at"]
    if began is None or ended is None:
        return ""
    return format_duration((datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds())


LIST = (
    column("run", "run_id", right=True),
    column("status"),
    column("workflow"),
    Column("age", age("created_at"), right=True),
    Column("attempt", lambda run: f"{run['attempt']}/{run['max_attempts']}", right=True),
    Column("reason", lambda run: run["waiting_for"] or run["last_error"]),
)


def _result(step: dict[str, Any]) -> Any:
    """What it returned, or its error in one line; `-o json` has the traceback."""
    error = step["error"]
    if not isinstance(error, dict):
        return step["output"] if error is None else error
    said = ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
    line = said.partition("\n")[0]
    return line if line == said and len(line) <= _MOST_ERROR else f"{line[: _MOST_ERROR - 3]}..."


STEPS = (
    column("step", "step_id"),
    column("status"),
    column("attempts", right=True),
    Column("took", _took, right=True),
    Column("result", _result),
)
EVENTS = (
    column("when", "created_at"),
    column("event", "event_type"),
    column("data"),
    column("actor"),
)


@runs.command("trigger")
def trigger(  # noqa: PLR0917 - options
    workflow: Annotated[str, typer.Argument()],
    params: Annotated[list[str] | None, typer.Argument(help="name=text, name:=json, @file.json, or -")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end, and print the result.")] = False,
    timeout: Annotated[str | None, typer.Option("--timeout", help="How long to wait: 5m.")] = None,
    key: Annotated[str | None, typer.Option("--key", help="An idempotency key.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="When to begin: 2030-01-31T12:00Z")] = None,
    later: Annotated[str | None, typer.Option("--in", help="How long from now to begin: 15m")] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher ones are taken first.")] = 0,
    attr: Annotated[list[str] | None, typer.Option("--attr", help="customer=c42")] = None,
) -> None:
    """Start a run."""
    options: dict[str, Any] = {"priority": priority, "idempotency_key": key}
    if at:
        options["run_at"] = parse_values.moment(at)
    if later:
        options["delay"] = parse_values.parse_duration(later)
    if attr:
        options["attributes"] = dict(each.partition("=")[::2] for each in attr)
    given = parse_values.arguments(params or [])
    seconds = None if timeout is None else parse_values.parse_duration(timeout).total_seconds()

    async def work(store: Store) -> None:
        from pgqrs.api.workflow import workflow as named
        from pgqrs.engine.definitions.input_schema import stored_signature

        try:
            run_id = await named(workflow).trigger(given, **options).execute(store)
        except InvalidArguments as error:
            row = await store.workflow(workflow)
            raise parse_values.with_json(error, given, stored_signature(workflow, row.input_schema)) from None
        if not wait:
            await _print_run(store, run_id, said=f"run {run_id} of {workflow} is triggered")
            return
        say(f"run {run_id} of {workflow} is triggered; waiting")
        await _print_result(store, run_id, seconds)

    with_store(work)


@runs.command("list")
@chooses
def list_runs(wanted: RunFilter, limit: Limit = 50, cursor: Cursor = None) -> None:
    """Find runs, newest first."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.admin import admin
        from pgqrs.api.operations.json_view import to_json

        page = await admin(store).runs(wanted, limit=limit, cursor=cursor)
        output.items(to_json(page), LIST, key="run_id", next_cursor=page.next_cursor, paged=True)

    with_store(work)


@runs.command("get")
def get(run_id: RunId) -> None:
    """All about a run."""
    with_store(lambda store: _print_run(store, run_id))


@runs.command("steps")
def steps(run_id: RunId) -> None:
    """What is on record of its steps."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.json_view import to_json
        from pgqrs.db.tables import runs as table

        db = await store.ready()
        await table.get(db, run_id)
        output.items(to_json(await table.steps(db, run_id)), STEPS, key="step_id")

    with_store(work)


@runs.command("events")
def events(
    run_id: RunId, limit: Limit = 100, after: Annotated[int, typer.Option("--after", help="Page on.")] = 0
) -> None:
    """What happened to it, oldest first."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.admin import admin
        from pgqrs.api.operations.json_view import to_json

        found = await admin(store).events(run_id, limit=limit, after=after)
        told = to_json(found)
        if state().output == "table":
            await show_signals(store, run_id, found, told)
        output.items(told, EVENTS, key="event_id")

    with_store(work)


@runs.command("watch")
def watch(run_id: RunId) -> None:
    """Follow what happens to it until it ends."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.admin import admin
        from pgqrs.api.operations.json_view import to_json
        from pgqrs.errors import WaitTimeout
        from pgqrs.types import ENDED

        after = 0
        while True:
            run = await _run(store, run_id)
            for event in to_json(await admin(store).events(run_id, limit=1000, after=after)):
                after = event["event_id"]
                _print_event(event)
            if run.status in ENDED:
                return
            try:
                await store.results.wait(run_id, 1.0)
            except WaitTimeout:
                continue

    with_store(work)


@runs.command("wait")
def wait(
    ids: Annotated[list[str], typer.Argument(metavar="ID...")],
    timeout: Annotated[str | None, typer.Option("--timeout", help="5m")] = None,
) -> None:
    """Wait until they have ended. Exit code 6 when that took too long, 7 when one failed."""
    seconds = None if timeout is None else parse_values.parse_duration(timeout).total_seconds()

    async def work(store: Store) -> None:
        for run_id in parse_values.ids(ids):
            await (await _run(store, run_id)).result(seconds)
            say(f"run {run_id} has ended in SUCCESS")

    with_store(work)


@runs.command("result")
def result(run_id: RunId, timeout: Annotated[str | None, typer.Option("--timeout", help="5m")] = None) -> None:
    """Print what it returned, as JSON; waits for its end."""
    seconds = None if timeout is None else parse_values.parse_duration(timeout).total_seconds()
    with_store(lambda store: _print_result(store, run_id, seconds))


@runs.command("why")
def why(run_id: RunId) -> None:
    """Why does it not move? One sentence, the evidence, and what to do."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.json_view import to_json
        from pgqrs.api.operations.why import why as reason

        found = await reason(run_id, store)
        if state().output != "table":
            output.one(to_json(found))
            return
        print(output.lines(str(found)))
        for line in found.evidence:
            print(output.lines(f"  {line}", "    | "))
        if found.fix:
            print(f"to get it going: {output.safe(found.fix)}")

    with_store(work)


@runs.command("export")
@chooses
def export(wanted: RunFilter, ids: RunIds = None) -> None:
    """All that is on record of runs, as JSON: one as a document, several (ids, -, or a filter) as lines."""
    chosen = parse_values.ids(ids) if ids else None
    if chosen is None and wanted.is_empty:
        raise ConfigError("say which runs to export: their ids, - to read those, or a filter such as --status error")
    if chosen is not None and not wanted.is_empty:
        raise ConfigError("name the runs, or say which with a filter, not both")
    alone = chosen is not None and len(chosen) == 1 and ids != ["-"] and state().output != "jsonl"

    async def work(store: Store) -> None:
        from pgqrs.api.operations.export import export_run

        async for run_id in _chosen(store, chosen, wanted):
            print(output.dumps(await export_run(store, run_id), indent=2 if alone else None))

    with_store(work)


async def _chosen(store: Store, ids: list[int] | None, wanted: RunFilter) -> AsyncIterator[int]:
    from pgqrs.api.operations.admin import admin

    for run_id in ids or ():
        yield run_id
    cursor, more = None, ids is None
    while more:
        page = await admin(store).runs(wanted, limit=500, cursor=cursor)
        for run in page:
            yield run.run_id
        cursor = page.next_cursor
        more = cursor is not None


@runs.command("signal")
def signal(
    run_id: RunId,
    name: Annotated[str, typer.Argument()],
    payload: Annotated[str | None, typer.Argument(help="JSON, @file or -")] = None,
) -> None:
    """Send it a signal, which `ctx.wait_for(name)` gets."""
    given = None if payload is None else parse_values.document(payload)
    act_on([run_id], "signal", f"got signal {name}", name=name, payload=given)


@runs.command("approve")
def approve(run_id: RunId, comment: Comment = None) -> None:
    """Say yes to what it waits for. It gets `{"approved": true, "comment": ...}`."""
    answer(run_id, approved=True, comment=comment)


@runs.command("reject")
def reject(run_id: RunId, comment: Comment = None) -> None:
    """Say no to what it waits for."""
    answer(run_id, approved=False, comment=comment)


@runs.command("resume")
def resume(
    ids: RunIds = None,
    step: Annotated[str | None, typer.Option("--step", help="The paused step that gets the data.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="JSON, @file or -")] = None,
) -> None:
    """Let paused runs go on."""
    given = None if data is None else parse_values.document(data)
    act_on(named_runs(ids), "resume", "is resumed", step=step, data=given)


@runs.command("pause")
def pause(ids: RunIds = None, reason: Reason = None) -> None:
    """Take runs out of the workers' hands until they are resumed."""
    act_on(named_runs(ids), "pause", "is paused", **({"reason": reason} if reason else {}))


@runs.command("reset")
def reset(
    ids: RunIds = None,
    from_step: Annotated[str | None, typer.Option("--from", help="From that step on; else from the start.")] = None,
) -> None:
    """Run them again, forgetting what they have done."""
    chosen = named_runs(ids)
    confirm(f"forget what {len(chosen)} run(s) have done, and run them again")
    act_on(chosen, "reset", "begins anew", from_step=from_step)


@runs.command("restore")
def restore(ids: RunIds = None) -> None:
    """Take a deletion back."""
    act_on(named_runs(ids), "restore", "is restored")


@runs.command("cancel")
@chooses
def cancel(wanted: RunFilter, ids: RunIds = None, reason: Reason = None) -> None:
    """End runs, and their children. Those named, or all that a filter finds."""
    bulk("cancel", "is cancelled", wanted, ids, reason=reason)


@runs.command("restart")
@chooses
def restart(wanted: RunFilter, ids: RunIds = None) -> None:
    """Continue failed or cancelled runs where they stopped. Those named, or all that a filter finds."""
    bulk("restart", "is restarted", wanted, ids)


@runs.command("retry-children")
def retry_children(ids: RunIds = None) -> None:
    """Restart failed runs and the children they failed because of."""
    act_on(named_runs(ids), "retry-children", "is restarted, with the children that it failed because of")


@runs.command("delete")
@chooses
def delete(wanted: RunFilter, ids: RunIds = None, reason: Reason = None) -> None:
    """Take ended runs out of sight. Those named, or all that a filter finds; `restore` takes it back."""
    bulk("delete", "is deleted", wanted, ids, reason=reason)


# -- printing ------------------------------------------------------------------------------------------------


async def _run(store: Store, run_id: int) -> Any:
    from pgqrs.api.run import Run
    from pgqrs.db.tables import runs as table

    return Run(await table.get(await store.ready(), run_id), store)


async def _print_run(store: Store, run_id: int, *, said: str | None = None) -> None:
    from pgqrs.api.operations.json_view import to_json
    from pgqrs.db.tables import runs as table

    match state().output:
        case "ids":
            print(run_id)
        case "table" if said:
            output.told(said)
        case _:
            output.one(to_json(await table.get(await store.ready(), run_id)))


async def _print_result(store: Store, run_id: int, seconds: float | None) -> None:
    from pgqrs.api.operations.json_view import to_json

    run = await _run(store, run_id)
    await run.result(seconds)
    await run.refresh()
    print(output.dumps(to_json(run._row)["output"]))  # noqa: SLF001 - as it is stored


def _print_event(event: dict[str, Any]) -> None:
    if state().output != "table":
        print(output.dumps(event), flush=True)
        return
    data = "" if event["data"] is None else f"  {output.shown(event['data'])}"
    print(output.lines(f"{event['created_at']}  {event['event_type']}{data}"), flush=True)
