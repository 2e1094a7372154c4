"""Seed 003: the Airflow graph `print_date >> [sleep, templated] >> report` as code; the middle really is parallel."""

import asyncio
import subprocess
import threading

import pgqrs

# Each of the two middle tasks says that it runs, and waits for the other: neither gets on unless both run at the same
# time. After a crash one of them may be on record already, and does not come: then the other goes on by itself.
running = {"sleep": threading.Event(), "templated": threading.Event()}


def meet(task: str, other: str) -> None:
    running[task].set()
    running[other].wait(timeout=5)


@pgqrs.step(id="print_date")
def print_date(ctx: pgqrs.Context) -> str:
    return subprocess.run(["date"], check=True, capture_output=True, text=True).stdout.strip()


@pgqrs.step(id="sleep")
def sleep_step(ctx: pgqrs.Context) -> str:
    meet("sleep", "templated")
    subprocess.run(["sleep", "0.2"], check=True)
    return "slept"


@pgqrs.step(id="templated")
def templated_step(ctx: pgqrs.Context, date: str) -> str:
    meet("templated", "sleep")
    return "a report of today" if date else "nothing"


@pgqrs.step(id="report")
def report(ctx: pgqrs.Context, parts: list[str]) -> str:
    return ", then ".join(parts)


@pgqrs.workflow
async def my_dag(ctx: pgqrs.Context) -> str:
    date = await print_date(ctx)
    print("print_date is done")
    parts = await asyncio.gather(sleep_step(ctx), templated_step(ctx, date))
    print("sleep and templated ran side by side")
    return await report(ctx, list(parts))


if __name__ == "__main__":
    print(asyncio.run(my_dag()))
