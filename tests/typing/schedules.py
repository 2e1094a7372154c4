"""What type checkers know of schedules, settings and connections."""

import sqlite3
from datetime import timedelta
from typing import assert_type

import pgqrs


@pgqrs.workflow
async def report(ctx: pgqrs.Context, day: str) -> None: ...


async def schedules(store: pgqrs.Store) -> None:
    made = await pgqrs.schedules(store).create("nightly", report, cron="0 3 * * *", params="today", overlap="queue")
    assert_type(made, pgqrs.types.Schedule)
    assert_type(await pgqrs.schedules(store).list(), list[pgqrs.types.Schedule])
    await pgqrs.schedules(store).create("hourly", "report", every=timedelta(hours=1), jitter=5)
    await pgqrs.schedules(store).create("x", report, corn="0 3 * * *")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await pgqrs.schedules(store).create("x", report, cron=5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await pgqrs.schedules(store).create("x", report, cron="* * * * *", overlap="never")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await pgqrs.schedules(store).create("x", 5, cron="* * * * *")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    pgqrs.schedules(store).pause("x")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


async def settings(connection: sqlite3.Connection) -> None:
    store = await pgqrs.connect("sqlite://:memory:", lease_seconds=5, install=True, schema="tenant_a")
    assert_type(store, pgqrs.Store)
    pgqrs.connect("sqlite://:memory:", lease_secs=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    pgqrs.connect("sqlite://:memory:", pool_size="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(pgqrs.using(connection, schema="tenant_a").trigger("report", "today"), int)
    pgqrs.using(connection, shcema="tenant_a")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
