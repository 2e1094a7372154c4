"""Mistakes that were silent, or told in words of our insides: a forgotten execute, arguments in the wrong order."""

import asyncio
import gc
import inspect
import itertools
import re
import threading
import warnings

import pytest

import pgqrs
from pgqrs import blocking


def forgotten(recorded):
    return [str(each.message) for each in recorded if "was never executed" in str(each.message)]


async def test_a_trigger_that_is_never_executed_warns(store, flow):
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        flow.trigger({"n": 1}, priority=3)
        flow.trigger_many([1, 2])
        gc.collect()

    assert [each.category for each in recorded] == [RuntimeWarning] * 2
    assert forgotten(recorded)[0] == (
        "trigger(...) of workflow 'flow' was never executed, so nothing was triggered; "
        "write `await workflow.trigger(...).execute(store)`"
    )
    assert await flow.runs(store) == []


async def test_a_trigger_that_was_used_or_refused_does_not_warn(store, flow):
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        await flow.trigger(1).execute(store)
        await flow.trigger(2).triggered(store)
        waiting = flow.trigger(3).wait().timeout(0)
        with pytest.raises(pgqrs.WaitTimeout):
            await waiting.execute(store)
        for refused in (
            lambda: flow.trigger(1, prioity=3),
            lambda: flow.trigger_many([1]).wait(),
            lambda: flow.trigger(object()).execute(store),
            lambda: pgqrs.workflow("nowhere").trigger(1).execute(store),
        ):
            with pytest.raises(pgqrs.PgqrsError):
                await refused()
        del waiting
        gc.collect()

    assert forgotten(recorded) == []


async def test_an_execute_that_is_not_awaited_gets_pythons_own_warning_alone(store, flow):
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("always")
        flow.trigger(1).execute(store)
        gc.collect()

    assert len(recorded) == 1
    assert "was never awaited" in str(recorded[0].message)


VERBS = [
    name
    for name, each in inspect.getmembers(pgqrs.Workflow, inspect.iscoroutinefunction)
    if not name.startswith("_") and "run_id" in inspect.signature(each).parameters
]


def test_all_verbs_are_tested():
    assert {"get_run", "steps", "events", "cancel", "pause", "resume", "signal", "restart", "reset", "delete"} < {
        *VERBS
    }


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_with_its_arguments_in_the_wrong_order_shows_the_right_one(store, flow, verb):
    run_id = await flow.trigger(1).execute(store)
    call = getattr(flow, verb)

    with pytest.raises(
        pgqrs.ConfigError, match=rf"wrong order: write {verb}\(run_id, store.*\), not \(store, {run_id}"
    ):
        await call(store, run_id)
    with pytest.raises(pgqrs.ConfigError, match=rf"{verb}\(run_id, store.*\) needs a connected store, got"):
        await call(run_id, pgqrs.connect("sqlite://:memory:"))
    with pytest.raises(
        pgqrs.ConfigError, match=rf"{verb}\(run_id, store.*\) takes the id of the run: pass run.run_id"
    ):
        await call(await flow.get_run(run_id, store), store, *(["go"] if verb == "signal" else []))


async def test_a_signal_in_the_wrong_order_shows_the_right_one(store, flow):
    run_id = await flow.trigger(1).execute(store)

    for given in ((run_id, "go", store), ("go", run_id, store), (store, run_id, "go")):
        with pytest.raises(pgqrs.ConfigError, match=r"write signal\(run_id, store, name, payload=None\), not \("):
            await flow.signal(*given)


async def test_lists_and_triggers_need_a_store(store, flow):
    with pytest.raises(pgqrs.ConfigError, match=r"runs\(store\) needs a connected store, got \('flow'\)"):
        await flow.runs("flow")
    with pytest.raises(pgqrs.ConfigError, match=r"execute\(store\) needs a connected store, got \(None\)"):
        await flow.trigger(1).execute(None)


def test_a_blocking_store_given_to_an_async_workflow_shows_how_to_write_it(config):
    @pgqrs.workflow(name="child")
    async def child(ctx, n: int): ...

    with blocking.connect_with(config, install=True) as store:
        store.create_workflow("child")
        with pytest.raises(pgqrs.ConfigError) as caught:
            child.trigger(1).execute(store)
        run_id = blocking.workflow(child).trigger(1).execute(store)
        with pytest.raises(pgqrs.ConfigError) as got:
            asyncio.run(child.get_run(run_id, store))

        assert blocking.workflow(child).get_run(run_id, store).input == 1

    assert "write pgqrs.blocking.workflow(child).trigger(...).execute(store)" in str(caught.value)
    assert "write pgqrs.blocking.workflow(child).get_run(run_id, store)" in str(got.value)


EVERY_VERB = sorted(
    name
    for name, each in inspect.getmembers(pgqrs.Workflow, inspect.iscoroutinefunction)
    if not name.startswith("_") and "store" in inspect.signature(each).parameters
)


@pytest.mark.parametrize("verb", EVERY_VERB)
async def test_no_order_of_arguments_gives_an_error_of_our_insides(store, flow, verb):
    """Every arrangement of one to three of the things that people have at hand."""
    run_id = await flow.trigger(1).execute(store)
    run = await flow.get_run(run_id, store)
    at_hand = {"id": run_id, "run": run, "store": store, "word": "go", "flow": flow, "None": None, "text id": "1"}
    call = getattr(flow, verb)
    right = {"signal": [("id", "store", "word"), ("id", "store", "text id")]}.get(verb, [("id", "store")])
    if "run_id" not in inspect.signature(call).parameters:
        right = [("store",)]
    unclear = {}

    for count in (0, 1, 2, 3):
        for names in itertools.product(at_hand, repeat=count):
            if names[: len(right[0])] in right and (verb == "signal" or count == len(right[0])):
                continue
            try:
                await call(*(at_hand[name] for name in names))
            except (pgqrs.ConfigError, TypeError) as error:
                if not re.search(rf"\b{verb}\(|run_id must be|step name must be a string", str(error)):
                    unclear[names] = error
            except BaseException as error:  # noqa: BLE001 - all of them are looked at
                unclear[names] = error
            else:
                unclear[names] = "was taken"

    assert unclear == {}


# -- values that cannot be stored ----------------------------------------------------------------------------


def _returning(value):
    async def handler(ctx):
        return value

    return handler


async def _emitting(ctx):
    await ctx.emit("order.shipped", {"by": threading.Lock()})


async def _in_a_step(ctx):
    await ctx.step("lock", lambda: {"by": threading.Lock()})


async def _in_a_transaction(ctx):
    async def work(tx):
        return threading.Lock()

    await ctx.transaction("book", work)


async def _of_another_type(ctx):
    async def charge() -> int:
        return "paid"

    await ctx.step("charge", charge)


async def _of_another_type_in_a_transaction(ctx):
    async def work(tx) -> int:
        return "paid"

    await ctx.transaction("book", work)


@pytest.mark.parametrize(
    ("handler", "said"),
    [
        (_of_another_type, "the result of step 'charge': Expected `int`, got `str`"),
        (_of_another_type_in_a_transaction, "the result of step 'book': Expected `int`, got `str`"),
        (_in_a_step, "the result of step 'lock': $.by: cannot store a value of type lock"),
        (_in_a_transaction, "the result of step 'book': cannot store a value of type lock"),
        (_returning(threading.Lock()), "the result of workflow 'flow': cannot store a value of type lock"),
        (_returning([threading.Lock()]), "the result of workflow 'flow': $[0]: cannot store a value of type lock"),
        (_emitting, "the data of event 'order.shipped': $.by: cannot store a value of type lock"),
    ],
)
async def test_a_run_that_fails_for_a_value_says_whose_it_is(run, handler, said):
    failed = await run(handler)

    assert failed.status == "ERROR"
    assert failed.last_error.startswith(f"SerializationError: {said}")


async def test_a_caller_whose_value_cannot_be_stored_is_told_whose_it_is(store, flow):
    @pgqrs.workflow(name="flow")
    async def decorated(n):
        return n

    run_id = await flow.trigger().execute(store)
    for call, said in (
        (lambda: flow.trigger(threading.Lock()).execute(store), "the input of workflow 'flow': cannot"),
        (lambda: decorated.trigger(threading.Lock()).execute(store), "the input of workflow 'flow': $.n: cannot"),
        (lambda: flow.signal(run_id, store, "go", threading.Lock()), "the payload of signal 'go': cannot"),
    ):
        with pytest.raises(
            pgqrs.SerializationError, match=f"^{re.escape(said)} store a value of type lock"
        ) as caught:
            await call()
        assert caught.value.reason.startswith("cannot store")


async def test_a_result_of_another_type_than_annotated_names_its_workflow(store, run):
    async def handler(ctx) -> int:
        return "many"

    done = await run(handler)

    with pytest.raises(pgqrs.SerializationError, match=r"^the result of workflow 'flow': Expected `int`, got `str`$"):
        done.output()


async def test_a_direct_call_whose_result_has_another_type_names_its_workflow(store):
    @pgqrs.workflow(name="counted")
    async def handler(ctx) -> int:
        return "many"

    for _ in range(2):
        with pytest.raises(pgqrs.SerializationError, match=r"^the result of workflow 'counted': Expected `int`"):
            await handler.run(key="one", store=store)
