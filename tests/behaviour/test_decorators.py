"""`@step` and `@workflow` as people first write them: a name that is accepted, or an error that shows the fix."""

import functools
import re

import pytest

import pgqrs

POLICY = "retry=pgqrs.RetryPolicy(max_attempts=3)"


async def test_a_step_takes_its_name_as_a_workflow_does(store, flow, run):
    @pgqrs.step("fetch.page")
    def fetch(url):
        return url

    @pgqrs.step(id="store.page")
    def keep(page):
        return page

    @pgqrs.step("ship", retry=pgqrs.RetryPolicy(max_attempts=2))
    def send():
        return "sent"

    async def handler(ctx):
        return [await fetch("x"), await keep("y"), await send()]

    done = await run(handler)

    assert done.output() == ["x", "y", "sent"]
    assert [step.step_id for step in await flow.steps(done.run_id, store)] == ["fetch.page", "store.page", "ship"]
    assert fetch("outside") == "outside"


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda: pgqrs.step(retry=3), f"step(retry=) must be a pgqrs.RetryPolicy, got 3; write {POLICY}"),
        (lambda: pgqrs.step("pay", retry=3), f"step(retry=) must be a pgqrs.RetryPolicy, got 3; write {POLICY}"),
        (lambda: pgqrs.workflow(retry=3), f"workflow(retry=) must be a pgqrs.RetryPolicy, got 3; write {POLICY}"),
        (
            lambda: pgqrs.workflow("order", retry=True),
            "workflow(retry=) must be a pgqrs.RetryPolicy, got True; write retry=pgqrs.RetryPolicy()",
        ),
        (
            lambda: pgqrs.workflow(retry=pgqrs.RetryPolicy),
            (
                "workflow(retry=) must be a pgqrs.RetryPolicy, got <class 'pgqrs.retry.RetryPolicy'>; "
                "write retry=pgqrs.RetryPolicy()"
            ),
        ),
        (lambda: pgqrs.step("pay", id="charge"), "step has two names, 'pay' and 'charge'; keep one"),
        (lambda: pgqrs.step(name="pay"), "step() does not know 'name'; write @pgqrs.step(id='pay')"),
        (
            lambda: pgqrs.step(timeout=5),
            (
                "step() does not know 'timeout'; it takes id and retry; a timeout is an option of "
                "ctx.step(name, function, timeout=...)"
            ),
        ),
        (lambda: pgqrs.step(max_attempts=3), f"step() does not know 'max_attempts'; write @pgqrs.step({POLICY})"),
        (lambda: pgqrs.step(retries=3), f"step() does not know 'retries'; write @pgqrs.step({POLICY})"),
        (lambda: pgqrs.step(attempts="x"), "step() does not know 'attempts'; it takes id and retry"),
        (lambda: pgqrs.step(3), "step() decorates a function or takes a name, got 3; write @pgqrs.step(id='...')"),
        (lambda: pgqrs.workflow(id="order"), "workflow() does not know 'id'; write @pgqrs.workflow(name='order')"),
        (
            lambda: pgqrs.workflow(max_attempts=3),
            f"workflow() does not know 'max_attempts'; write @pgqrs.workflow({POLICY})",
        ),
        (
            lambda: pgqrs.workflow(queue="fast"),
            (
                "workflow() does not know 'queue'; it takes name, retry, lease_seconds, concurrency, dead_letter and "
                "schedule"
            ),
        ),
    ],
)
def test_what_a_decorator_does_not_take_is_refused_where_it_is_written(write, error):
    with pytest.raises(pgqrs.ConfigError, match=f"^{re.escape(error)}$"):
        write()


def _plain_generator(ctx):
    yield 1


async def _async_generator(ctx):
    yield 1


class ShipOrder:
    pass


class _Yielding:
    __name__ = "yielding"

    def __call__(self):
        yield 1


@pytest.mark.parametrize("decorator", ["workflow", "step"])
@pytest.mark.parametrize(
    ("function", "error"),
    [
        (_plain_generator, "is a generator function"),
        (_async_generator, "is a generator function"),
        (_Yielding(), "is a generator function"),
        (ShipOrder, "'ShipOrder' is a class; write a function, `def ship_order(...)`"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
def test_a_generator_or_a_class_is_refused_where_it_is_decorated(decorator, function, error, named):
    """The finding: it was taken, and its run failed with 'cannot store a value of type generator'."""
    decorate = getattr(pgqrs, decorator)
    decorate = decorate("ShipOrder") if named else decorate

    with pytest.raises(pgqrs.ConfigError, match=f"^{decorator} .*{re.escape(error)}"):
        decorate(function)


def test_a_worker_refuses_a_generator_or_a_class_as_a_handler():
    for function in (_plain_generator, _async_generator, ShipOrder):
        with pytest.raises(pgqrs.ConfigError, match=r"workflow 'flow' is a (generator|class)"):
            pgqrs.worker("w").workflows({"flow": function})
        with pytest.raises(pgqrs.ConfigError, match=r"workflow 'flow' is a (generator|class)"):
            pgqrs.consumer("w", 0, "flow").handler(function)


async def test_a_decorator_may_make_a_list_of_what_a_generator_gives(run):
    def listed(function):
        @functools.wraps(function)
        def call(*args):
            return list(function(*args))

        return call

    @pgqrs.step
    @listed
    def rows(count):
        yield from range(count)

    async def handler(ctx):
        return await rows(3)

    assert (await run(handler)).output() == [0, 1, 2]


def test_a_name_that_cannot_be_one_is_refused_before_the_function_is_there():
    for name in ("", "a@b", "x" * 201):
        with pytest.raises(pgqrs.ConfigError, match="is not allowed"):
            pgqrs.step(name)
        with pytest.raises(pgqrs.ConfigError, match="is not allowed"):
            pgqrs.step(id=name)


@pytest.mark.parametrize("given", [3, "3", {}, True])
async def test_a_step_of_the_context_takes_a_policy_too(run, given):
    async def handler(ctx):
        return await ctx.step("pay", lambda: 1, retry=given)

    failed = await run(handler, max_attempts=1)

    assert f"ctx.step(retry=) must be a pgqrs.RetryPolicy, got {given!r}; write retry=" in failed.error["message"]


async def test_a_trigger_makes_the_definition_of_a_workflow_whose_code_is_at_hand(store):
    @pgqrs.workflow
    async def fresh(ctx, n: int):
        return n + 1

    run_id = await fresh.trigger(1).execute(store)
    worker = await pgqrs.worker("w").workflows([fresh]).create(store)
    await worker.run_until_idle()
    await worker.close()

    assert (await fresh.get_run(run_id, store)).output() == 2
    with pytest.raises(pgqrs.WorkflowNotFound):
        await pgqrs.workflow("another_programs").trigger(1).execute(store)


async def test_a_worker_takes_one_workflow_or_a_list_of_them(store):
    @pgqrs.workflow
    async def first(ctx):
        return 1

    @pgqrs.workflow
    async def second(ctx):
        return 2

    run_ids = [await each.trigger().execute(store) for each in (first, second)]
    for given in (first, [second]):
        worker = await pgqrs.worker("w").workflows(given).create(store)
        await worker.run_until_idle()
        await worker.close()

    assert [
        (await first.get_run(run_ids[0], store)).output(),
        (await second.get_run(run_ids[1], store)).output(),
    ] == [
        1,
        2,
    ]
    with pytest.raises(pgqrs.ConfigError, match=r"takes a module, decorated workflows or a mapping, not \[5\]"):
        pgqrs.worker("w").workflows([5])
