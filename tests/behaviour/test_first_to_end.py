"""`ctx.first` gives the wait that ended first by the database's clock, however late the run is looked at."""

import pytest

import pgqrs


@pytest.fixture
async def raced(store, clock):
    """Executes a handler up to its waits; then, unseen by any worker, so much happens; then executes it again."""

    async def execute(handler, happens):
        async def child(ctx):
            await ctx.sleep(10)

        await store.create_workflow("child")
        await store.create_workflow("flow")
        flow = pgqrs.workflow("flow")
        run_id = await flow.trigger().execute(store)
        workers = [
            await pgqrs.consumer("w", 0, "flow").handler(handler).create(store),
            await pgqrs.consumer("c", 0, "child").handler(child).create(store),
        ]
        for worker in workers * 2:
            await worker.run_until_idle()
        for event in happens:
            match event:
                case int() as seconds:
                    clock.advance(seconds)
                case "child":
                    await workers[1].run_until_idle()
                case str() as name:
                    await flow.signal(run_id, store, name)
        await workers[0].run_until_idle()
        for worker in workers:
            await worker.close()
        return (await flow.get_run(run_id, store)).output()

    return execute


async def test_the_shorter_of_two_sleeps_wins(raced):
    async def handler(ctx):
        return (await ctx.first(long=ctx.sleep(20), short=ctx.sleep(10))).key

    assert await raced(handler, [60]) == "short"


@pytest.mark.parametrize(("happens", "winner"), [([5, "approval", 60], "approval"), ([60, "approval"], "late")])
async def test_an_answer_in_time_wins_and_one_that_is_late_does_not(raced, happens, winner):
    async def handler(ctx):
        return (await ctx.first(late=ctx.sleep(20), approval=ctx.wait_for("approval"))).key

    assert await raced(handler, happens) == winner


@pytest.mark.parametrize(("happens", "winner"), [(["b", 1, "a"], "b"), (["a", 1, "b"], "a")])
async def test_of_two_signals_the_one_that_was_sent_first_wins_and_the_other_is_kept(raced, happens, winner):
    async def handler(ctx):
        first = await ctx.first(a=ctx.wait_for("a"), b=ctx.wait_for("b"))
        await ctx.wait_for("b" if first.key == "a" else "a")
        return first.key

    assert await raced(handler, happens) == winner


@pytest.mark.parametrize(("happens", "winner"), [([10, "child", 60], "child"), ([60, "child"], "late")])
async def test_a_child_is_raced_by_when_it_ended(raced, happens, winner):
    async def handler(ctx):
        child = await ctx.spawn("child")
        return (await ctx.first(late=ctx.sleep(30), child=child.result())).key

    assert await raced(handler, happens) == winner


async def test_waits_that_ended_at_the_same_time_win_in_the_order_in_which_they_are_given(raced):
    async def handler(ctx):
        return (await ctx.first(ctx.sleep(10), ctx.sleep(10))).key

    assert await raced(handler, [60]) == 0


async def test_a_wait_ends_with_its_timeout_however_late_its_signal_comes(raced):
    async def handler(ctx):
        return (await ctx.first(late=ctx.sleep(20), approval=ctx.wait_for("approval", timeout=10))).key

    assert await raced(handler, [30, "approval"]) == "approval"
