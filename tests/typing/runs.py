"""What type checkers know of runs."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_type

import pgqrs


@dataclass
class Receipt:
    total: int


@pgqrs.workflow
async def order(ctx: pgqrs.Context, customer: str) -> Receipt:
    return Receipt(1)


async def reading(store: pgqrs.Store) -> None:
    run = await order.get_run(1, store)
    assert_type(run, pgqrs.Run[Receipt])
    assert_type(run.run_id, int)
    assert_type(run.workflow, str)
    assert_type(run.status, pgqrs.RunStatus)
    assert_type(run.created_at, datetime)
    assert_type(run.completed_at, datetime | None)
    assert_type(run.last_error, str | None)
    assert_type(run.waiting_for, str | None)
    assert_type(run.attempt, int)
    assert_type(run.input, Any)
    assert_type(await run.steps(), list[pgqrs.types.Step])
    assert_type(await run.why(), pgqrs.reports.Why)
    assert_type(await run.result(timeout=5), Receipt)
    assert_type(run.output(), Receipt | None)
    assert_type(run.output(int), int | None)
    assert_type(await run.refresh(), pgqrs.Run[Receipt])
    assert_type((await order.runs(store, limit=5))[0], pgqrs.Run[Receipt])
    run.ouput()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    run.stauts  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018
    run.status = pgqrs.RunStatus.ERROR  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    run.result()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    (await run.result()).totl  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018


async def without_a_type(store: pgqrs.Store) -> pgqrs.Run:
    return await pgqrs.workflow("order").get_run(1, store)
