"""A transaction that takes longer than a lease: its own run keeps going, and so does every other one of its worker."""

import asyncio
import time

import pytest

import pgqrs


@pytest.mark.backends("postgres")
async def test_a_transaction_longer_than_the_lease_commits_and_no_other_run_loses_its_lease(live_store, config):
    bodies, calls = [], []
    async with pgqrs.connect_with(config.with_changes(lease_seconds=1.0)) as store:
        done = asyncio.Event()

        @pgqrs.workflow(name="beside")
        async def beside(ctx: pgqrs.Context) -> int:
            bodies.append(ctx.attempt)
            await ctx.step("wait", done.wait)
            return ctx.attempt

        @pgqrs.workflow(name="long")
        async def long(ctx: pgqrs.Context) -> int:
            async def work(tx):
                calls.append(ctx.attempt)
                await tx.execute("select pg_sleep(3)")
                return ctx.attempt

            attempt = await ctx.transaction("work", work)
            await ctx.step("after", done.set)
            return attempt

        worker = await pgqrs.worker("w").workflows([beside, long]).create(store)
        runs = [await beside.get_run(await beside.trigger().execute(store), store)]
        runs.append(await long.get_run(await long.trigger().execute(store), store))
        await worker.run_until_idle()
        await worker.close()
        for run in runs:
            await run.refresh()

    assert [(run.status, run.attempt) for run in runs] == [("SUCCESS", 1), ("SUCCESS", 1)]
    assert (bodies, calls) == ([1], [1])


@pytest.mark.backends("postgres")
async def test_a_step_beside_a_long_transaction_does_not_hold_up_other_runs(live_store, config):
    """The committer, which records the steps of all runs, does not wait for the transaction."""
    order = []
    # Else the wait for the lock would be given up, and each write tried alone.
    async with pgqrs.connect_with(config.with_changes(command_timeout_seconds=120.0)) as store:
        working, others = asyncio.Event(), asyncio.Event()

        @pgqrs.workflow(name="both")
        async def both(ctx: pgqrs.Context) -> None:
            async def work(tx):
                working.set()
                await asyncio.wait_for(others.wait(), 30)
                order.append("transaction")

            async def beside():
                await working.wait()

            await asyncio.gather(ctx.transaction("work", work), ctx.step("beside", beside))
            order.append("step")

        @pgqrs.workflow(name="other")
        async def other(ctx: pgqrs.Context) -> None:
            await working.wait()
            # By then the step beside the transaction wants to be recorded.
            await asyncio.sleep(0)
            await ctx.step("a", lambda: None)
            await ctx.step("b", lambda: None)
            order.append("other")
            others.set()

        worker = await pgqrs.worker("w").workflows([both, other]).create(store)
        first = await both.get_run(await both.trigger().execute(store), store)
        await other.trigger().execute(store)
        await worker.run_until_idle()
        await worker.close()
        await first.refresh()

    assert (first.status, first.attempt) == ("SUCCESS", 1)
    assert order == ["other", "transaction", "step"]


@pytest.mark.backends("sqlite")
async def test_on_a_file_such_a_transaction_costs_leases_and_is_recorded_once(live_store, config):
    """Nothing else is written meanwhile, heartbeats included: transactions.md says so."""
    calls = []
    async with pgqrs.connect_with(config.with_changes(lease_seconds=1.0)) as store:

        @pgqrs.workflow(name="long")
        async def long(ctx: pgqrs.Context) -> int:
            async def work(tx):
                calls.append(ctx.attempt)
                # It has the writer's thread to itself.
                time.sleep(2)
                return ctx.attempt

            first = await ctx.transaction("work", work)
            await ctx.step("after", lambda: None)
            return first

        worker = await pgqrs.worker("w").workflows([long]).create(store)
        run = await long.get_run(await long.trigger().execute(store), store)
        polling = asyncio.create_task(worker.poll_forever())
        await run.result(30)
        worker.stop()
        await polling
        await run.refresh()

    assert (run.status, run.output(), calls) == ("SUCCESS", 1, [1])
    assert run.attempt > 1


@pytest.mark.backends("postgres")
async def test_a_statement_that_is_too_slow_is_the_error_of_the_users_function(live_store, config):
    calls, caught = [], []
    async with pgqrs.connect_with(config.with_changes(command_timeout_seconds=1.0)) as store:

        @pgqrs.workflow(name="slow")
        async def slow(ctx: pgqrs.Context) -> int:
            async def work(tx):
                calls.append(1)
                await tx.execute("select pg_sleep(60)")

            async def quick(tx) -> int:
                [(one,)] = await tx.fetch("select 1")
                return one

            try:
                await ctx.transaction("work", work)
            except TimeoutError as error:
                caught.append(str(error))
            return await ctx.transaction("quick", quick)

        worker = await pgqrs.worker("w").workflows([slow]).create(store)
        run = await slow.get_run(await slow.trigger().execute(store), store)
        await worker.run_until_idle()
        await worker.close()
        await run.refresh()

    assert (run.status, run.output(), len(calls)) == ("SUCCESS", 1, 1)
    assert caught[0].startswith("the statement took longer than command_timeout_seconds")
