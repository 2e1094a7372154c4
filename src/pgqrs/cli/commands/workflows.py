"""`pgqrs workflow ...` and `pgqrs worker ...`: what there is to run, and who runs it."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pgqrs.cli import output
from pgqrs.cli.logs import LogFormat
from pgqrs.cli.output import Column, column
from pgqrs.cli.state import with_admin, with_store
from pgqrs.errors import ConfigError
from pgqrs.text.durations import format_duration

if TYPE_CHECKING:
    from pgqrs.api.operations.admin import Admin
    from pgqrs.api.store import Store

log: logging.Logger = logging.getLogger("pgqrs.cli")

workflows: typer.Typer = typer.Typer(help="Workflows: how they fare, pause and resume.", no_args_is_help=True)
workers: typer.Typer = typer.Typer(help="Workers: who is there, and starting one.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="WORKFLOW")]
WorkerId = Annotated[int, typer.Argument(metavar="ID", min=0)]
WorkerIds = Annotated[list[int], typer.Argument(metavar="ID...", min=0)]

WORKERS = (
    column("worker", "worker_id", right=True),
    column("name"),
    column("status"),
    Column("sign of life", lambda worker: f"{format_duration(worker['heartbeat_age_seconds'])} ago", right=True),
    column("holds", "leased", right=True),
    Column("serves", lambda worker: ", ".join(_served(worker))),
)


def _served(worker: dict[str, Any]) -> list[str]:
    info = worker["info"]
    return [f"{prefix}*" for prefix in info.get("prefixes") or ()] or info.get("handlers") or [worker["queue"] or ""]


@workflows.command("list")
def list_workflows() -> None:
    """Every workflow, with its runs that have not ended."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.json_view import to_json
        from pgqrs.api.operations.workflow_list import workflow_lines

        headings = ("pending", "running", "paused")
        columns = [column("workflow"), *(column(h, right=True) for h in headings)]
        output.items(to_json(await workflow_lines(store)), columns, key="workflow")

    with_store(work)


@workflows.command("get")
def get(workflow: Name) -> None:
    """How it fares: counts, rates, durations, queue and workers."""

    async def work(admin: Admin) -> None:
        from pgqrs.api.operations.json_view import to_json

        output.one(to_json(await admin.workflow_metrics(workflow)))

    with_admin(work)


@workflows.command("create")
def create(workflow: Name) -> None:
    """Make its definition and its queue; those that are there stay as they are."""
    with_store(lambda store: store.create_workflow(workflow))
    output.told(f"workflow {workflow} is there")


@workflows.command("pause")
def pause(workflow: Name) -> None:
    """No run of it begins or goes on until it is resumed; what is at work finishes."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.workflow_list import pause_workflow

        await pause_workflow(store, workflow)

    with_store(work)
    output.told(f"workflow {workflow} is paused")


@workflows.command("resume")
def resume(workflow: Name) -> None:
    """Take its runs up again."""

    async def work(store: Store) -> None:
        from pgqrs.api.operations.workflow_list import resume_workflow

        await resume_workflow(store, workflow)

    with_store(work)
    output.told(f"workflow {workflow} is resumed")


@workers.command("list")
def list_workers(queue: Annotated[str | None, typer.Option("--queue", help="Of that queue only.")] = None) -> None:
    """Every worker, with its last sign of life and what it holds."""

    async def work(admin: Admin) -> None:
        from pgqrs.api.operations.json_view import to_json

        output.items(to_json(await admin.workers(queue)), WORKERS, key="worker_id")

    with_admin(work)


@workers.command("get")
def get_worker(worker_id: WorkerId) -> None:
    """All about a worker."""

    async def work(admin: Admin) -> None:
        output.one(output.body(await admin.worker(worker_id)))

    with_admin(work)


@workers.command("stop")
def stop(worker_ids: WorkerIds) -> None:
    """Tell workers, wherever they run, to finish what they have and end; they hear of it within a lease."""

    async def work(admin: Admin) -> None:
        for worker_id in worker_ids:
            held = (await admin.stop_worker(worker_id)).leased
            print(f"worker {worker_id} is told to stop" + (f"; it holds {held} message(s)" if held else ""))

    with_admin(work)


@workers.command("release")
def release(worker_ids: WorkerIds) -> None:
    """Hand back at once all that workers hold: for those that are gone."""

    async def work(admin: Admin) -> None:
        for worker_id in worker_ids:
            count = await admin.release_worker_messages(worker_id)
            output.told(f"{count} message(s) of worker {worker_id} are free")

    with_admin(work)


@workers.command("run")
def run(
    app: Annotated[str | None, typer.Argument(help="module, module:attribute or file.py; else --app.")] = None,
    *,
    prefix: Annotated[list[str] | None, typer.Option("--prefix", help="Serve all that begins so: billing.")] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", "-c", min=1, max=10_000, help="Runs at once.")] = 10,
    drain: Annotated[bool, typer.Option("--drain", help="End when nothing is left to do.")] = False,
    name: Annotated[str | None, typer.Option("--name", help="What it is called in lists.")] = None,
    health_port: Annotated[
        int | None,
        typer.Option("--health-port", min=0, max=65_535, help="Serve /healthz, /readyz and /metrics there; 0: any."),
    ] = None,
    health_host: Annotated[
        str, typer.Option("--health-host", help="On this address; others than 127.0.0.1 are open to whoever sees it.")
    ] = "127.0.0.1",
    log_format: Annotated[
        LogFormat, typer.Option("--log-format", help="How to log to standard error.")
    ] = LogFormat.text,
) -> None:
    """Run the workflows of an application until SIGTERM or Ctrl-C."""
    from pgqrs.cli.load_app import load
    from pgqrs.cli.logs import logging_to_stderr

    async def work(store: Store) -> None:
        from pgqrs.api.store import _process_name
        from pgqrs.api.worker import worker
        from pgqrs.telemetry import instrument_worker, serve_health

        instrument_worker(metrics=health_port is not None)
        builder = worker(
            name or _process_name(), prefixes=prefix or None, port=health_port or 0, concurrency=concurrency
        )
        made = await builder.workflows(found).create(store)
        async with AsyncExitStack() as stack:
            if health_port is not None:
                try:
                    port = await stack.enter_async_context(serve_health(made, host=health_host, port=health_port))
                except ConfigError:
                    await made.close()
                    raise
                where = f"[{health_host}]" if ":" in health_host else health_host
                log.info("health checks on http://%s:%d", where, port)
            if drain:
                await made.run_until_idle()
                await made.close()
                return
            log.info("serving %s; Ctrl-C stops", ", ".join(sorted(found)))
            await made.poll_forever(signals=True)
            if made.leaves_code_behind:
                await _exit_without_it(store)

    with logging_to_stderr(log_format):
        found = load(app)
        with_store(work, creates=True)


async def _exit_without_it(store: Store) -> None:
    """End the process while code of a handler still runs. Python would wait for it, for as long as it takes."""
    log.error("code of a handler does not end although it was cancelled; the process ends without it")
    await store.close()
    logging.shutdown()
    os._exit(0)
