"""The options of `@workflow(...)`, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypedDict

from pgqrs.api.arguments import checked_whole, unknown_option
from pgqrs.api.schedules import check_declared
from pgqrs.engine.definitions.handlers import WorkflowOptions
from pgqrs.errors import ConfigError
from pgqrs.retry import RetryPolicy, checked_policy
from pgqrs.text.durations import checked_seconds
from pgqrs.text.names import checked_name


class DecoratorOptions(TypedDict, total=False):
    """`concurrency` is how many runs of it one worker executes at once; `dead_letter` names the workflow that gets a
    run when one of this one's fails."""

    retry: RetryPolicy | None
    lease_seconds: float | timedelta | None
    concurrency: int | None
    dead_letter: str | None
    schedule: str | timedelta | datetime | Mapping[str, Any] | None


def checked_options(
    name: str | None,
    *,
    retry: RetryPolicy | None = None,
    lease_seconds: float | timedelta | None = None,
    concurrency: int | None = None,
    dead_letter: str | None = None,
    schedule: Any = None,
    **unknown: Any,
) -> WorkflowOptions:
    if unknown:
        raise unknown_option("workflow", unknown, ("name", *DecoratorOptions.__annotations__), named_by="name")
    if dead_letter is not None and checked_name("workflow", dead_letter) == name:
        raise ConfigError(f"workflow {name!r} cannot be its own dead letter", hint="name another one")
    if schedule is not None:
        check_declared(name or "it", schedule)
    return WorkflowOptions(
        retry=checked_policy("workflow", retry),
        lease_seconds=None if lease_seconds is None else checked_seconds(lease_seconds, "lease_seconds", least=1),
        concurrency=None if concurrency is None else checked_whole("concurrency", concurrency, least=1, most=10_000),
        dead_letter=dead_letter,
        schedule=schedule,
    )
