"""Which runs: the options of lists and bulk verbs, all of them words of the one filter grammar."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from typer import Option

from pgqrs.cli.state import with_options
from pgqrs.filters import RunFilter, filter_of

OPTIONS: dict[str, Any] = {
    "where": Annotated[str | None, Option("--where", help="A filter: 'status:error since:1h attr:customer=c42'.")],
    "status": Annotated[str | None, Option("--status", help="error,paused")],
    "workflow": Annotated[str | None, Option("--workflow", "-w", help="A name, or a pattern: 'billing.*'")],
    "since": Annotated[str | None, Option("--since", help="Created at most that long ago: 1h; or a time.")],
    "before": Annotated[str | None, Option("--before", help="Created longer ago.")],
    "attr": Annotated[list[str] | None, Option("--attr", help="customer=c42; may be given several times.")],
    "error": Annotated[str | None, Option("--error", help="An error signature, as `pgqrs failures` shows it.")],
    "text": Annotated[str | None, Option("--text", help="Part of the last error.")],
    "parent": Annotated[str | None, Option("--parent", help="Children of that run.")],
    "key": Annotated[str | None, Option("--key", help="An idempotency key.")],
    "worker": Annotated[str | None, Option("--worker", help="Last taken by that worker.")],
    "waiting": Annotated[str | None, Option("--waiting", help="Waiting for that.")],
    "deleted": Annotated[str | None, Option("--deleted", help="no, yes or any")],
}


def chooses(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the filter's options; it gets the filter as `wanted`."""
    return with_options(command, OPTIONS, _wanted)


def _wanted(*, where: str | None, attr: list[str] | None, **given: str | None) -> dict[str, RunFilter]:
    return {"wanted": filter_of(where, attr=attr or (), **given)}


_wanted.makes = ("wanted",)  # type: ignore[attr-defined]
