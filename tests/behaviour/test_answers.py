"""`pgqrs.Answer`: who answered a wait stands beside what they said, and a replay sees the same."""

import contextlib
from dataclasses import dataclass

import pytest

import pgqrs
from pgqrs.testing import replay


@dataclass
class Decision:
    approved: bool


async def _run(store, handler):
    """The worker of a run that waits, and the run."""
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    run_id = await pgqrs.workflow("flow").trigger(None).execute(store)
    await worker.run_until_idle()
    return worker, await pgqrs.workflow("flow").get_run(run_id, store)


async def approved(ctx, params=None):
    answer = await ctx.wait_for("approval", type=pgqrs.Answer[Decision])
    # The rest is another pass over a recorded answer.
    await ctx.sleep(1)
    return [answer.value.approved, answer.actor]


async def paused(ctx, params=None):
    answer = await ctx.pause("look at it", type=pgqrs.Answer[Decision])
    await ctx.sleep(1)
    return [answer.value.approved, answer.actor]


def plain(ctx, params=None):
    answer = ctx.wait_for("approval", type=pgqrs.Answer)
    ctx.sleep(1)
    return [answer.value["approved"], answer.actor]


@pytest.mark.parametrize("handler", [approved, paused, plain])
@pytest.mark.parametrize("actor", ["ann", None])
async def test_the_sender_stands_beside_the_value_in_every_pass(store, clock, handler, actor):
    worker, run = await _run(store, handler)
    flow = pgqrs.workflow("flow")
    if handler is paused:
        await flow.resume(run.run_id, store, step="pause", data=Decision(approved=True), actor=actor)
    else:
        await flow.signal(run.run_id, store, "approval", Decision(approved=True), actor=actor)
    await worker.run_until_idle()
    clock.advance(seconds=2)
    await worker.run_until_idle()
    await worker.close()

    await run.refresh()
    assert run.output() == [True, actor]
    assert replay(await run.export(), handler) == [True, actor]


async def test_a_signal_that_came_before_the_wait_has_its_sender(store):
    await store.create_workflow("flow")
    flow = pgqrs.workflow("flow")
    run_id = await flow.trigger(None).execute(store)
    for actor in ("ann", None, "bob"):
        await flow.signal(run_id, store, "go", 1, actor=actor)

    async def three(ctx, params=None):
        return [(await ctx.wait_for("go", type=pgqrs.Answer)).actor for _ in range(3)]

    worker = await pgqrs.consumer("w", 0, "flow").handler(three).create(store)
    await worker.run_until_idle()
    await worker.close()
    assert (await flow.get_run(run_id, store)).output() == ["ann", None, "bob"]


async def test_no_payload_makes_a_sender(store):
    """Neither a name in the payload, nor the form in which a sender is recorded."""
    for forged in ({"actor": "ceo"}, {"by": "ceo"}, {"value": 1, "actor": "ceo"}, [1, "ceo"]):

        async def read(ctx, params=None):
            answer = await ctx.wait_for("go", type=pgqrs.Answer)
            return [answer.value, answer.actor]

        worker, run = await _run(store, read)
        await pgqrs.workflow("flow").signal(run.run_id, store, "go", forged, actor="shop")
        await worker.run_until_idle()
        await worker.close()
        await run.refresh()
        assert run.output() == [forged, "shop"]


async def test_without_the_type_a_wait_gives_the_payload_as_before(store):
    async def read(ctx, params=None):
        return await ctx.wait_for("go")

    worker, run = await _run(store, read)
    await pgqrs.workflow("flow").signal(run.run_id, store, "go", {"n": 1}, actor="ann")
    await worker.run_until_idle()
    await worker.close()
    await run.refresh()
    assert run.output() == {"n": 1}
    [signal] = (await run.export())["signals"]
    assert signal == {"name": "go", "payload": {"n": 1}, "actor": "ann", "consumed": True}


async def test_a_race_gives_the_sender_of_its_winner(store):
    async def first(ctx, params=None):
        won = await ctx.first(approval=ctx.wait_for("go", type=pgqrs.Answer), late=ctx.sleep(3600))
        return [won.key, won.value.actor]

    worker, run = await _run(store, first)
    await pgqrs.workflow("flow").signal(run.run_id, store, "go", actor="ann")
    await worker.run_until_idle()
    await worker.close()
    await run.refresh()
    assert run.output() == ["approval", "ann"]


# -- an answer of another type than the handler asks for ------------------------------------------------------


async def asks_until_it_is_a_number(ctx, params=None):
    said = []
    while True:
        try:
            return [*said, await ctx.wait_for("amount", type=int)]
        except pgqrs.SerializationError as error:
            said.append(str(error))


async def pauses_until_it_is_a_decision(ctx, params=None):
    said = []
    while True:
        try:
            return [*said, (await ctx.pause("decide", type=pgqrs.Answer[Decision])).value.approved]
        except pgqrs.SerializationError as error:
            said.append(str(error))


def asks_plainly(ctx, params=None):
    said = []
    while True:
        try:
            return [*said, ctx.first(lambda: ctx.wait_for("amount", type=int), lambda: ctx.sleep(60)).value]
        except pgqrs.SerializationError as error:
            said.append(str(error))


@pytest.mark.parametrize("handler", [asks_until_it_is_a_number, asks_plainly])
async def test_a_signal_of_another_type_is_an_error_that_the_handler_can_catch(store, handler):
    worker, run = await _run(store, handler)
    flow = pgqrs.workflow("flow")
    for value in ("lots", None, 5):
        await flow.signal(run.run_id, store, "amount", value)
        await worker.run_until_idle()
    await worker.close()

    await run.refresh()
    expected = [f"$: signal 'amount' must be an int, got {value}" for value in ("'lots'", None)] + [5]
    assert (run.status, run.waiting_for) == ("SUCCESS", None)
    assert run.output() == expected
    assert replay(await run.export(), handler) == expected


async def test_data_of_another_type_to_resume_with_is_an_error_that_the_handler_can_catch(store):
    worker, run = await _run(store, pauses_until_it_is_a_decision)
    flow = pgqrs.workflow("flow")
    await flow.resume(run.run_id, store, step="pause", data={"approved": "perhaps"})
    await worker.run_until_idle()
    await flow.resume(run.run_id, store, step="pause#2", data={"approved": True})
    await worker.run_until_idle()
    await worker.close()

    await run.refresh()
    assert (run.status, run.waiting_for) == ("SUCCESS", None)
    told, decided = run.output()
    assert told.startswith("$: the data to resume with is not a Decision: $.approved: ")
    assert decided is True


async def test_a_signal_of_another_type_that_is_not_caught_ends_the_run_and_a_restart_waits_again(store):
    async def handler(ctx, params=None):
        return await ctx.wait_for("amount", type=int)

    worker, run = await _run(store, handler)
    flow = pgqrs.workflow("flow")
    await flow.signal(run.run_id, store, "amount", "lots")
    await worker.run_until_idle()
    failed = await flow.get_run(run.run_id, store)
    await flow.restart(run.run_id, store)
    await worker.run_until_idle()
    await flow.signal(run.run_id, store, "amount", 5)
    await worker.run_until_idle()
    await worker.close()

    await run.refresh()
    assert (failed.status, failed.attempt) == ("ERROR", 1)
    assert (run.status, run.output()) == ("SUCCESS", 5)


async def test_a_signal_that_an_earlier_pass_could_read_parks_the_run_when_the_type_changes(store, clock):
    async def before(ctx, params=None):
        word = await ctx.wait_for("amount", type=str)
        await ctx.sleep(60)
        return word

    async def after(ctx, params=None):
        with contextlib.suppress(pgqrs.SerializationError):
            await ctx.wait_for("amount", type=int)
        await ctx.sleep(60)

    worker, run = await _run(store, before)
    flow = pgqrs.workflow("flow")
    await flow.signal(run.run_id, store, "amount", "lots")
    await worker.run_until_idle()
    await worker.close()
    clock.advance(seconds=61)
    worker = await pgqrs.consumer("w2", 0, "flow").handler(after).create(store)
    await worker.run_until_idle()
    await worker.close()

    await run.refresh()
    assert run.status == "PAUSED"
    assert run.waiting_for.startswith("parked: ")
