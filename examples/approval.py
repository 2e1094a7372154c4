"""A run pauses until a person has decided; while it waits it holds nothing, and a restart does not matter."""

import asyncio
from typing import Any

import pgqrs

expenses = pgqrs.workflow("expenses")


def wait_for_approval() -> dict[str, Any]:
    raise pgqrs.PauseError("Waiting for approval")


async def handler(ctx: pgqrs.Context, amount: int) -> str:
    await ctx.step("send_approval_request", lambda: print(f"mail: please approve {amount} EUR"))
    approval = await ctx.step("wait_for_approval", wait_for_approval)
    if not approval["approved"]:
        return f"{amount} EUR declined by {approval['by']}"
    await ctx.step("pay", lambda: print(f"paying {amount} EUR"))
    return f"{amount} EUR approved by {approval['by']}"


async def main() -> None:
    async with pgqrs.connect(install=True) as store:
        await store.create_workflow("expenses")
        worker = await pgqrs.consumer("worker-1", 8080, "expenses").handler(handler).create(store)
        run_id = await expenses.trigger(120).execute(store)
        await worker.run_until_idle()

        run = await expenses.get_run(run_id, store)
        print(f"{run.status}: {run.waiting_for}")

        # What a web hook would do; the data becomes what the paused step returns.
        await expenses.resume(run_id, store, step="wait_for_approval", data={"approved": True, "by": "ann"})
        await worker.run_until_idle()
        await worker.close()

        await run.refresh()
        print(f"{run.status}: {run.output()}")


if __name__ == "__main__":
    asyncio.run(main())
