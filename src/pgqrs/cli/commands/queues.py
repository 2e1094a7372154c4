"""`pgqrs queue ...`: what waits, what is dead, and sending by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgqrs.cli import output, parse_values
from pgqrs.cli.commands.run_actions import confirm
from pgqrs.cli.output import Column, age, column
from pgqrs.cli.progress import progress
from pgqrs.cli.state import state, with_admin, with_store

if TYPE_CHECKING:
    from pgqrs.api.operations.admin import Admin

queues: typer.Typer = typer.Typer(help="Queues: what waits, what is dead, pause and resume.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="QUEUE")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Where the next page begins, as the last one said.")]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="At most so many.")]

LIST = (
    column("queue"),
    column("paused"),
    column("ready", right=True),
    column("scheduled", right=True),
    column("leased", right=True),
    column("dead", right=True),
    column("oldest ready, s", "oldest_ready_age_seconds", right=True),
)
MESSAGES = (
    column("message", "id", right=True),
    column("state"),
    column("priority", right=True),
    Column("attempts", lambda message: f"{message['attempts']}/{message['max_attempts']}", right=True),
    column("visible after", "visible_after"),
    column("worker", "leased_by", right=True),
    column("payload"),
)
DEAD = (
    column("message", "id", right=True),
    Column("dead since", age("dead_since"), right=True),
    column("attempts", right=True),
    column("payload"),
)


@queues.command("list")
def list_queues() -> None:
    """Every queue, with what it holds."""

    async def work(admin: Admin) -> None:
        from pgqrs.api.operations.json_view import to_json

        stats = await admin.stats()
        output.items(to_json(stats.queues), LIST, key="queue")

    with_admin(work)


@queues.command("get")
def get(queue: Name) -> None:
    """What it holds now."""

    async def work(admin: Admin) -> None:
        from pgqrs.api.operations.json_view import to_json

        output.one(to_json(await admin.queue_metrics(queue)))

    with_admin(work)


@queues.command("create")
def create(queue: Name) -> None:
    """Make it; one that is there stays as it is."""
    with_store(lambda store: store.create_queue(queue))
    output.told(f"queue {queue} is there")


@queues.command("pause")
def pause(queue: Name) -> None:
    """Nothing is taken from it until it is resumed."""
    with_admin(lambda admin: admin.pause_queue(queue))
    output.told(f"queue {queue} is paused")


@queues.command("resume")
def resume(queue: Name) -> None:
    """Take it up again."""
    with_admin(lambda admin: admin.resume_queue(queue))
    output.told(f"queue {queue} is resumed")


@queues.command("purge")
def purge(queue: Name, archived: Annotated[bool, typer.Option("--archived", help="The archive.")] = False) -> None:
    """Delete all that waits in it."""

    async def work(admin: Admin) -> None:
        metrics = await admin.queue_metrics(queue)
        count = metrics.archived if archived else metrics.ready + metrics.scheduled + metrics.leased + metrics.dead
        if state().dry_run:
            output.told(f"{count} message(s) would be deleted")
            return
        confirm(f"delete {count} message(s) of queue {queue}")
        with progress("purge", count) as advanced:
            gone = await admin.purge(queue, archived=archived, on_progress=advanced)
        output.told(f"{gone} message(s) deleted")

    with_admin(work)


@queues.command("send")
def send(
    queue: Name,
    payload: Annotated[list[str] | None, typer.Argument(help="name=text, name:=json, @file, or -")] = None,
    later: Annotated[str | None, typer.Option("--in", help="15m")] = None,
    priority: Annotated[int, typer.Option("--priority", help="Higher ones are taken first.")] = 0,
) -> None:
    """Put a message into it."""
    given = parse_values.parameters(payload or [])
    delay = 0 if later is None else parse_values.parse_duration(later)

    async def work(store: Any) -> None:
        producer = await store.producer(queue)
        message_id = await producer.enqueue(given, delay=delay, priority=priority)
        if state().output == "table":
            output.told(f"message {message_id} is in queue {queue}")
        else:
            output.one({"message_id": message_id, "queue": queue})

    with_store(work)


@queues.command("peek")
def peek(queue: Name, limit: Limit = 20, cursor: Cursor = None) -> None:
    """What is in it, in the order in which it would be taken; nothing is taken."""

    async def work(admin: Admin) -> None:
        page = await admin.peek(queue, limit=limit, cursor=cursor)
        output.items(output.body(page), MESSAGES, key="id", next_cursor=page.next_cursor, paged=True)

    with_admin(work)


@queues.command("dead")
def dead(queue: Name, limit: Limit = 100) -> None:
    """Messages that were tried too often."""

    async def work(admin: Admin) -> None:
        from pgqrs.api.operations.json_view import to_json

        output.items(to_json(await admin.dead_letters(queue, limit=limit)), DEAD, key="id")

    with_admin(work)


@queues.command("replay")
def replay(
    queue: Name, ids: Annotated[list[str] | None, typer.Argument(help="Messages; all when none is named.")] = None
) -> None:
    """Let dead messages start anew."""
    chosen = parse_values.ids(ids) if ids else None
    with progress("replay") as advanced:
        count = with_admin(lambda admin: admin.replay(queue, chosen, on_progress=advanced))
    output.told(f"{count} message(s) start anew")


@queues.command("delete")
def delete(queue: Name, force: Annotated[bool, typer.Option("--force", help="With what it holds.")] = False) -> None:
    """Remove it, with its archive."""
    confirm(f"delete queue {queue} with its archive")
    with_admin(lambda admin: admin.delete_queue(queue, force=force))
    output.told(f"queue {queue} is deleted")
