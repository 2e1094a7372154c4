"""Seed 003: the Airflow graph `print_date >> [sleep, templated] >> report` as code; the middle really is parallel."""

import asyncio
import subprocess
import threading

import pgqrs

# Each of the two middle tasks waits here for the other: they get past it only if they run at the same time.
both_are_running = threading.Barrier(2)


@pgqrs.step(id="print_date")
def print_date(ctx: pgqrs.PyWorkflow) -> str:
    return subprocess.run(["date"], check=True, capture_output=True, text=True).stdout.strip()


@pgqrs.step(id="sleep")
def sleep_step(ctx: pgqrs.PyWorkflow) -> str:
    both_are_running.wait(timeout=30)
    subprocess.run(["sleep", "0.2"], check=True)
    return "slept"


@pgqrs.step(id="templated")
def templated_step(ctx: pgqrs.PyWorkflow, date: str) -> str:
    both_are_running.wait(timeout=30)
    return "a report of today" if date else "nothing"


@pgqrs.step(id="report")
def report(ctx: pgqrs.PyWorkflow, parts: list[str]) -> str:
    return ", then ".join(parts)


@pgqrs.workflow
async def my_dag(ctx: pgqrs.PyWorkflow) -> str:
    date = await print_date(ctx)
    print("print_date is done")
    parts = await asyncio.gather(sleep_step(ctx), templated_step(ctx, date))
    print("sleep and templated ran side by side")
    return await report(ctx, parts)


print(asyncio.run(my_dag()))
