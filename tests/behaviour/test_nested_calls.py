"""A decorated workflow that is called inside a workflow is a child run: recorded once, in the same store."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

import pgqrs


@pytest.fixture
async def serve(store, tmp_path, monkeypatch):
    """Serves workflows, triggers the first one and works until nothing is due; gives its run."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.delenv("PGQRS_DSN", raising=False)
    workers = []

    async def served(*flows, given=()):
        worker = await pgqrs.worker("w").workflows({each.name: each for each in flows}).create(store)
        workers.append(worker)
        run_id = await flows[0].trigger(*given).execute(store)
        await worker.run_until_idle()
        return await flows[0].get_run(run_id, store)

    yield served
    for worker in workers:
        await worker.close()
    # Before, a call opened a database of its own here.
    assert list(Path.cwd().iterdir()) == []


async def children_of(store, run):
    return await pgqrs.admin(store).runs(parent_run_id=run.run_id)


@pgqrs.workflow
async def double(n: int) -> int:
    return n * 2


@pgqrs.workflow
def double_plainly(n: int) -> int:
    return n * 2


@pytest.mark.parametrize("child", [double, double_plainly], ids=["async", "plain"])
async def test_an_async_workflow_awaits_a_child_of_either_kind(store, serve, child):
    passes = []

    @pgqrs.workflow
    async def parent() -> int:
        passes.append("pass")
        return await child(3) + 1

    run = await serve(parent, child)

    assert (run.status, run.output()) == ("SUCCESS", 7)
    [made] = await children_of(store, run)
    assert (made.workflow, made.parent_run_id, made.status) == (child.name, run.run_id, "SUCCESS")
    assert len(passes) == 2  # before and after the child: the second pass starts no other one
    assert [step.step_id for step in await run.steps()] == ["spawn", f"result:{made.run_id}"]


@pytest.mark.parametrize("child", [double, double_plainly], ids=["async", "plain"])
async def test_a_plain_workflow_calls_a_child_of_either_kind(store, serve, child):
    @pgqrs.workflow
    def parent() -> int:
        return child(3) + 1

    run = await serve(parent, child)

    assert (run.status, run.output()) == ("SUCCESS", 7)
    assert len(await children_of(store, run)) == 1


async def test_the_child_of_a_workflow_that_the_store_does_not_know_yet_waits_for_a_worker(store, serve):
    @pgqrs.workflow
    async def parent() -> int:
        return await double(3)

    run = await serve(parent)

    assert (run.status, run.waiting_for) == ("PAUSED", f"run {(await children_of(store, run))[0].run_id}")
    worker = await pgqrs.worker("w2").workflows({"double": double, "parent": parent}).create(store)
    await worker.run_until_idle()
    await worker.close()
    assert (await run.refresh()).output() == 6


async def test_a_context_may_be_passed_to_a_child(store, serve):
    @pgqrs.workflow
    async def child(ctx, n: int) -> int:
        return ctx.run_id + n

    @pgqrs.workflow
    async def parent(ctx) -> int:
        return await child(ctx, 1000)

    run = await serve(parent, child)

    [made] = await children_of(store, run)
    assert run.output() == made.run_id + 1000


@dataclass
class Receipt:
    amount: int
    currency: str


async def test_arguments_and_result_are_of_their_types(serve):
    @pgqrs.workflow
    async def pay(amount: int, *, currency: str = "EUR") -> Receipt:
        return Receipt(amount, currency)

    @pgqrs.workflow
    async def parent() -> list:
        first, second = await pay(5), await pay(7, currency="CHF")
        assert isinstance(first, Receipt)
        return [first.currency, second.currency, second.amount]

    run = await serve(parent, pay)

    assert run.output() == ["EUR", "CHF", 7]


async def test_children_run_side_by_side(store, serve):
    @pgqrs.workflow
    async def parent() -> list:
        return await asyncio.gather(double(1), double(2), double(3))

    run = await serve(parent, double)

    assert run.output() == [2, 4, 6]
    assert len(await children_of(store, run)) == 3


async def test_the_failure_of_a_child_is_raised_as_its_failure_in_every_pass(store, serve):
    caught = []

    @pgqrs.workflow
    async def child() -> None:
        raise pgqrs.PermanentError("no stock")

    @pgqrs.workflow
    async def parent(ctx) -> str:
        try:
            await child()
        except pgqrs.ExecutionFailed as error:
            caught.append((type(error), str(error)))
        await ctx.sleep(60)
        return "handled"

    run = await serve(parent, child)
    store.database.clock.advance(61)
    worker = await pgqrs.consumer("w2", 0, "parent").handler(parent).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert (await run.refresh()).output() == "handled"
    assert len(caught) == 2
    assert caught[0] == caught[1]
    assert "no stock" in caught[0][1]


async def test_a_child_is_cancelled_with_its_parent(store, serve):
    @pgqrs.workflow
    async def child(ctx) -> None:
        await ctx.wait_for("never")

    @pgqrs.workflow
    async def parent() -> None:
        await child()

    run = await serve(parent, child)
    assert run.status == "PAUSED"
    await parent.cancel(run.run_id, store)

    [made] = await children_of(store, run)
    assert made.status == "CANCELLED"


@pytest.mark.parametrize("plain", [False, True])
async def test_a_workflow_cannot_be_called_in_the_body_of_a_step(store, serve, plain):
    @pgqrs.step
    def plain_body() -> int:
        return double_plainly(3)

    @pgqrs.step
    async def body() -> int:
        return await double(3)

    @pgqrs.workflow
    async def parent() -> int:
        return await (plain_body() if plain else body())

    run = await serve(parent, double)

    assert (run.status, run.error["type"]) == ("ERROR", "NotAllowedInStep")
    assert "call it in the body of the workflow" in run.last_error
    assert await children_of(store, run) == []


async def test_run_is_the_same_as_a_call_and_takes_no_key(store, serve):
    @pgqrs.workflow
    async def parent() -> int:
        with pytest.raises(pgqrs.ConfigError, match="recorded once"):
            await double.run(3, key="k")
        return await double.run(3)

    run = await serve(parent, double)

    assert run.output() == 6
    assert len(await children_of(store, run)) == 1


async def test_a_trigger_in_the_body_of_a_workflow_is_warned_of_as_each_replay_repeats_it(store, serve, caplog):
    @pgqrs.workflow
    async def parent(ctx) -> list:
        await double.trigger(1).execute(store)
        keyed = await double.trigger(2, idempotency_key="two").execute(store)
        in_step = await ctx.step("trigger", lambda: double.trigger(3).execute(store))
        return [keyed, in_step]

    run = await serve(parent, double)

    assert len(run.output()) == 2
    assert {each.status for each in await double.runs(store)} == {"SUCCESS"}
    assert sum("again by each replay" in each.message for each in caplog.records) == 1


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_child_that_is_not_awaited_ends_its_parent_in_error(store, serve):
    @pgqrs.workflow
    async def parent() -> int:
        double(3)
        return 1

    run = await serve(parent, double)

    assert run.status == "ERROR"
    assert "await" in run.last_error
    assert await children_of(store, run) == []
