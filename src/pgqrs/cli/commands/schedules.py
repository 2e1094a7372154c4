"""`pgqrs schedule ...` and `pgqrs outbox ...`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgqrs.cli import output, parse_values
from pgqrs.cli.commands.run_actions import confirm
from pgqrs.cli.output import Column, age, column
from pgqrs.cli.state import say, state, with_admin, with_store
from pgqrs.errors import ConfigError

if TYPE_CHECKING:
    from pgqrs.api.operations.admin import Admin
    from pgqrs.api.schedules import Schedules
    from pgqrs.api.store import Store

schedules: typer.Typer = typer.Typer(help="Schedules: what is triggered when.", no_args_is_help=True)
outbox: typer.Typer = typer.Typer(
    help="The outbox: what waits to be published, and what is dead.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="SCHEDULE")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")]

LIST = (
    column("schedule", "name"),
    column("workflow"),
    Column(
        "when",
        lambda item: item["cron"] or (f"every {item['every_seconds']:g} s" if item["every_seconds"] else item["at"]),
    ),
    column("zone", "timezone"),
    Column("paused", lambda item: item["paused_at"] is not None),
    column("next", "next_slot_at"),
    column("last run", "last_run_id", right=True),
    column("error", "last_error"),
)
EVENTS = (
    column("event", "event_id", right=True),
    column("type"),
    column("run", "run_id", right=True),
    Column("age", age("created_at"), right=True),
    column("attempts", right=True),
    column("error", "last_error"),
)


@schedules.command("list")
def list_schedules() -> None:
    """Every schedule, by name."""

    async def work(found: Schedules) -> None:
        output.items(output.body(await found.list()), LIST, key="name")

    _with_schedules(work)


@schedules.command("get")
def get(schedule: Name) -> None:
    """All about a schedule."""

    async def work(found: Schedules) -> None:
        output.one(output.body(await found.get(schedule)))

    _with_schedules(work)


@schedules.command("create")
def create(  # noqa: PLR0917 - options
    schedule: Name,
    workflow: Annotated[str, typer.Argument()],
    params: Annotated[list[str] | None, typer.Argument(help="name=text, name:=json, @file, or -")] = None,
    cron: Annotated[str | None, typer.Option("--cron", help="'30 2 * * *'")] = None,
    every: Annotated[str | None, typer.Option("--every", help="15m")] = None,
    at: Annotated[str | None, typer.Option("--at", help="Once: 2030-01-31T12:00Z")] = None,
    timezone: Annotated[str, typer.Option("--timezone", help="Europe/Berlin")] = "UTC",
) -> None:
    """Make it, or change it to be so."""
    options: dict[str, Any] = {"cron": cron, "timezone": timezone, "params": parse_values.arguments(params or [])}
    options["every"] = None if every is None else parse_values.parse_duration(every)
    options["at"] = None if at is None else parse_values.moment(at)

    async def work(found: Schedules) -> None:
        output.one(output.body(await found.create(schedule, workflow, **options)))

    _with_schedules(work)


@schedules.command("pause")
def pause(schedule: Name) -> None:
    """Nothing is triggered until it is resumed."""
    _with_schedules(lambda found: found.pause(schedule))
    output.told(f"schedule {schedule} is paused")


@schedules.command("resume")
def resume(
    schedule: Name, catch_up: Annotated[bool, typer.Option("--catch-up", help="Make up for the pause.")] = False
) -> None:
    """Go on with the next slot."""
    _with_schedules(lambda found: found.resume(schedule, catch_up=catch_up))
    output.told(f"schedule {schedule} is resumed")


@schedules.command("trigger")
def trigger(schedule: Name) -> None:
    """A run now, beside its slots."""
    run_id = _with_schedules(lambda found: found.trigger(schedule))
    if state().output == "table":
        output.told(f"run {run_id} is triggered")
    else:
        output.one({"run_id": run_id, "schedule": schedule})


@schedules.command("next")
def next_slots(
    schedule: Name, count: Annotated[int, typer.Option("--count", "-n", min=1, max=1_000, help="How many.")] = 5
) -> None:
    """When it is due next."""

    async def work(found: Schedules) -> None:
        slots = [{"slot_at": each} for each in output.body(await found.next(schedule, count))]
        output.items(slots, [column("slot", "slot_at")], key="slot_at")

    _with_schedules(work)


@schedules.command("slots")
def slots(schedule: Name, limit: Limit = 50) -> None:
    """What became of its latest slots."""

    async def work(found: Schedules) -> None:
        columns = [column("slot", "slot_at"), column("state"), column("run", "run_id", right=True)]
        output.items(output.body(await found.slots(schedule, limit)), columns, key="slot_at")

    _with_schedules(work)


@schedules.command("delete")
def delete(schedule: Name) -> None:
    """Remove it with its history; runs that it triggered go on."""
    confirm(f"delete schedule {schedule} with its history")
    _with_schedules(lambda found: found.delete(schedule))
    output.told(f"schedule {schedule} is deleted")


@outbox.command("list")
def list_events(limit: Limit = 100) -> None:
    """What is still to be published."""

    async def work(admin: Admin) -> None:
        output.items(output.body(await admin.outbox.unpublished(limit=limit)), EVENTS, key="event_id")

    with_admin(work)


@outbox.command("dead")
def dead(limit: Limit = 100) -> None:
    """What receivers refused too often."""

    async def work(admin: Admin) -> None:
        output.items(output.body(await admin.outbox.dead(limit=limit)), EVENTS, key="event_id")

    with_admin(work)


@outbox.command("dispatch")
def dispatch(
    app: Annotated[
        str | None,
        typer.Argument(help="file.py:name: dispatcher(store), a publisher, or {'order.*': one}."),
    ] = None,
    url: Annotated[str | None, typer.Option("--to", help="POST each event to this URL, as a CloudEvent.")] = None,
    types: Annotated[list[str] | None, typer.Option("--type", help="Only these: 'order.*'; may be repeated.")] = None,
    once: Annotated[bool, typer.Option("--once", help="What is due now, then end.")] = False,
) -> None:
    """Publish what is in the outbox, until SIGTERM or Ctrl-C. PGQRS_OUTBOX_SECRET signs what goes to a URL."""
    if (app is None) == (url is None):
        raise ConfigError("say where events go: --to URL, or file.py:name of what publishes them")
    from pgqrs.cli.load_app import imported

    found, where = (_webhook(str(url)), str(url)) if app is None else (imported(app), app)

    async def work(store: Store) -> None:
        from pgqrs.api.operations.admin import admin
        from pgqrs.cli.dispatchers import dispatcher_of

        made = dispatcher_of(found, where, store, types or ())
        await (made.run_until_idle() if once else made.run_forever(signals=True))
        left = await admin(store).outbox.counts()
        say(f"{left.pending:,} event(s) wait to be published, {left.dead:,} are dead")

    with_store(work)


def _webhook(url: str) -> Any:
    from pgqrs.engine.outbox.publishers.http import HttpPublisher

    return HttpPublisher(url, secret=os.environ.get("PGQRS_OUTBOX_SECRET"))


@outbox.command("replay")
def replay(ids: Annotated[list[str] | None, typer.Argument(help="Events; all when none is named.")] = None) -> None:
    """Let dead events start anew."""
    chosen = parse_values.ids(ids) if ids else None
    output.told(f"{with_admin(lambda admin: admin.outbox.replay(chosen))} event(s) start anew")


def _with_schedules(work: Any) -> Any:
    async def call(store: Store) -> Any:
        from pgqrs.api.schedules import schedules as of

        return await work(of(store))

    return with_store(call)
