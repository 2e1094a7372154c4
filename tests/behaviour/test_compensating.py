"""A handler that made up for an error and raises it: the run ends, and what failed is not tried again behind its back."""

import asyncio
import contextlib

import pytest

import pgqrs

flow_ = pgqrs.workflow("flow")


class Refused(Exception):
    """Shipping says no, the first time."""


class Shop:
    """Ships at the second attempt; counts what was done."""

    def __init__(self):
        self.did = []

    async def charge(self):
        self.did.append("charge")

    async def ship(self):
        self.did.append("ship")
        if self.did.count("ship") == 1:
            raise Refused("no van")
        return "shipped"

    async def refund(self):
        self.did.append("refund")


@pytest.fixture
def shop():
    return Shop()


async def worked_off(run, clock, handler):
    found = await run(handler)
    for _ in range(4):
        if found.status in ("SUCCESS", "ERROR"):
            break
        clock.advance(600)
        found = await run(handler, run_id=found.run_id)
    return found


async def _in_except(ctx, shop):
    try:
        return await ctx.step("ship", shop.ship)
    except Refused:
        await ctx.step("refund", shop.refund)
        raise


async def _in_finally(ctx, shop):
    done = False
    try:
        result = await ctx.step("ship", shop.ship)
        done = True
        return result
    finally:
        if not done:
            await ctx.step("refund", shop.refund)


async def _as_another_error(ctx, shop):
    try:
        return await ctx.step("ship", shop.ship)
    except Refused as error:
        await ctx.step("refund", shop.refund)
        raise RuntimeError("not shipped") from error


async def _of_the_handlers_own(ctx, shop):
    try:
        await ctx.step("charged", lambda: None)
        raise Refused("by the handler")
    except Refused:
        await ctx.step("refund", shop.refund)
        raise


async def _in_a_manager(ctx, shop):
    @contextlib.asynccontextmanager
    async def refunded():
        try:
            yield
        except Refused:
            await ctx.step("refund", shop.refund)
            raise

    async with refunded():
        return await ctx.step("ship", shop.ship)


async def _in_tasks(ctx, shop):
    async def refund():
        await asyncio.sleep(0)
        await ctx.step("refund", shop.refund)

    try:
        return await ctx.step("ship", shop.ship)
    except Refused:
        await asyncio.gather(refund())
        raise


async def _in_a_branch(ctx, shop):
    async with asyncio.TaskGroup() as group:
        group.create_task(_in_except(ctx, shop))


async def _of_a_group(ctx, shop):
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.step("ship", shop.ship))
    except* Refused:
        await ctx.step("refund", shop.refund)
        raise


async def _by_emitting(ctx, shop):
    try:
        return await ctx.step("ship", shop.ship)
    except Refused:
        shop.did.append("refund")
        await ctx.emit("order.failed")
        raise


def _plainly(ctx, shop):
    try:
        return ctx.step("ship", shop.ship)
    except Refused:
        ctx.step("refund", shop.refund)
        raise


def _plainly_in_threads(ctx, shop):
    try:
        return ctx.step("ship", shop.ship)
    except Refused:
        ctx.gather(lambda: ctx.step("refund", shop.refund))
        raise


FORMS = [
    _in_except,
    _in_finally,
    _as_another_error,
    _of_the_handlers_own,
    _in_a_manager,
    _in_tasks,
    _in_a_branch,
    _of_a_group,
    _by_emitting,
]


def handler_of(form, shop):
    if form in (_plainly, _plainly_in_threads):
        return lambda ctx, params: form(ctx, shop)

    async def handler(ctx, params):
        return await form(ctx, shop)

    return handler


@pytest.mark.parametrize("form", [*FORMS, _plainly, _plainly_in_threads])
async def test_what_was_made_up_for_is_not_tried_again(run, clock, shop, form):
    done = await worked_off(run, clock, handler_of(form, shop))

    assert (done.status, done.attempt, shop.did.count("refund")) == ("ERROR", 1, 1)
    assert shop.did.count("ship") <= 1


async def test_what_was_made_up_for_beside_the_error_that_left_is_not_tried_again(run, clock, shop):
    async def pack():
        raise ConnectionError("no answer")

    async def handler(ctx, params):
        tasks = [asyncio.create_task(each) for each in (ctx.step("pack", pack), _in_except(ctx, shop))]
        await asyncio.wait(tasks)
        tasks[0].result()

    found = await worked_off(run, clock, handler)

    assert (found.status, found.error["type"]) == ("ERROR", "ConnectionError")
    assert found.error["compensated_by"] == ["refund@2"]
    assert shop.did == ["ship", "refund"]


async def test_the_record_names_what_made_up_for_it(run, clock, shop):
    done = await worked_off(run, clock, handler_of(_in_except, shop))
    why = await done.why()

    assert done.error["compensated_by"] == ["refund"]
    assert any("'refund'" in each and "not retried" in each for each in why.evidence)


async def test_a_pass_that_was_cut_after_the_refund_decides_the_same(run, clock, shop):
    async def handler(ctx, params):
        try:
            return await ctx.step("ship", shop.ship)
        except Refused:
            await ctx.step("refund", shop.refund)
            await ctx.sleep(60)
            raise

    done = await worked_off(run, clock, handler)

    assert (done.status, done.attempt, shop.did) == ("ERROR", 1, ["ship", "refund"])


async def test_a_handler_asks_for_another_attempt_with_a_transient_error(run, clock, shop):
    async def handler(ctx, params):
        try:
            return await ctx.step("ship", shop.ship)
        except Refused as error:
            await ctx.step("refund", shop.refund)
            raise pgqrs.TransientError("once more") from error

    done = await worked_off(run, clock, handler)

    assert (done.status, shop.did) == ("SUCCESS", ["ship", "refund", "ship"])


async def _nothing_was_done(ctx, shop):
    try:
        return await ctx.step("ship", shop.ship)
    except Refused:
        ctx.log.info("refused at %s", await ctx.now())
        await ctx.sleep(5)
        raise


async def _another_error_was_handled(ctx, shop):
    try:
        {}["missing"]
    except KeyError:
        await ctx.step("charge", shop.charge)
    return await ctx.step("ship", shop.ship)


async def _all_are_tried_first(ctx, shop):
    errors = []
    for _ in range(2):
        try:
            await ctx.step("ship", shop.ship)
        except Refused as error:
            errors.append(error)
    await ctx.step("count", lambda: len(errors))
    if errors:
        raise ExceptionGroup("some", errors)
    return "shipped"


@pytest.mark.parametrize("form", [_nothing_was_done, _another_error_was_handled, _all_are_tried_first])
async def test_what_nothing_was_done_about_is_tried_again(run, clock, shop, form):
    done = await worked_off(run, clock, handler_of(form, shop))

    assert (done.status, done.output()) == ("SUCCESS", "shipped")


def test_an_error_that_the_workers_own_code_handles_is_none_of_the_handlers(shop):
    clock = pgqrs.ManualClock()

    async def handler(ctx, params):
        await ctx.step("charge", shop.charge)
        return await ctx.step("ship", shop.ship)

    async def main():
        async with pgqrs.connect("sqlite://:memory:", clock=clock) as store:
            await store.create_workflow("flow")
            worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
            await flow_.trigger(None).execute(store)
            await worker.run_until_idle()
            clock.advance(600)
            await worker.run_until_idle()
            await worker.close()

    try:
        raise ImportError("no uvloop")
    except ImportError:
        # The event loop runs inside of this block.
        asyncio.run(main())

    assert shop.did == ["charge", "ship", "ship"]


async def test_a_reset_begins_again_after_a_refund(run, clock, shop, store):
    async def handler(ctx, params):
        await ctx.step("charge", shop.charge)
        return await _in_except(ctx, shop)

    done = await worked_off(run, clock, handler)
    why = await done.why()

    assert why.fix == f"pgqrs run reset {done.run_id}"
    await flow_.reset(done.run_id, store)
    again = await run(handler, run_id=done.run_id)
    assert (again.status, shop.did) == ("SUCCESS", ["charge", "ship", "refund", "charge", "ship"])


async def _behind_the_block(ctx, shop):
    try:
        return await ctx.step("ship", shop.ship)
    except Refused as refused:
        kept = refused
    await ctx.step("refund", shop.refund)
    raise kept


async def _from_a_gather(ctx, shop):
    [result] = await asyncio.gather(ctx.step("ship", shop.ship), return_exceptions=True)
    if isinstance(result, Refused):
        await ctx.step("refund", shop.refund)
        raise result
    return result


@pytest.mark.parametrize("handle", [_behind_the_block, _from_a_gather])
async def test_what_is_done_outside_of_the_block_is_no_compensation(run, clock, shop, handle):
    """The guide says so: whether it makes up for the error, or is the next item of a list, cannot be known."""

    async def handler(ctx, params):
        return await handle(ctx, shop)

    done = await worked_off(run, clock, handler)

    assert (done.status, done.output()) == ("SUCCESS", "shipped")
    assert shop.did == ["ship", "refund", "ship"]


# -- errors that are raised from another one -------------------------------------------------------------------


class Failed(Exception):
    """Of the handler's own."""


def from_a_group(error):
    raise ExceptionGroup("the order failed", [Failed("a")]) from error


def from_the_cause(error):
    raise Failed("wrapped") from error.__cause__


def from_another(_error):
    raise Failed("wrapped") from RuntimeError("what was known of it")


def from_none(_error):
    raise Failed("wrapped") from None


WRAPPED = pytest.mark.parametrize("wrap", [from_a_group, from_the_cause, from_another, from_none])


def fails_once(times):
    def body():
        times.append(1)
        if len(times) == 1:
            raise ValueError("the first time") from KeyError("root")
        return "shipped"

    return body


@WRAPPED
async def test_a_retry_runs_the_step_again_whatever_its_error_is_wrapped_in(run, clock, wrap):
    times = []

    async def handler(ctx, params):
        try:
            return await ctx.step("ship", fails_once(times))
        except ValueError as error:
            wrap(error)

    failed = await run(handler, max_attempts=2)
    clock.advance(60)
    done = await run(handler, run_id=failed.run_id)

    assert (done.status, done.output(), len(times)) == ("SUCCESS", "shipped", 2)


@WRAPPED
async def test_what_was_made_up_for_is_not_retried_whatever_the_error_is_wrapped_in(run, clock, wrap):
    times = []

    async def handler(ctx, params):
        try:
            return await ctx.step("ship", fails_once(times))
        except ValueError as error:
            await ctx.step("refund", lambda: 1)
            wrap(error)

    done = await run(handler, max_attempts=2)

    assert (done.status, len(times)) == ("ERROR", 1)


class Nothing(Exception):
    """An error that is false."""

    def __len__(self):
        return 0


async def test_what_a_handler_does_about_an_error_that_is_false_is_a_compensation(run):
    times = []

    def ship():
        times.append(1)
        if len(times) == 1:
            raise Nothing

    async def handler(ctx, params):
        try:
            await ctx.step("ship", ship)
        except Nothing:
            await ctx.step("refund", lambda: 1)
            raise

    done = await run(handler, max_attempts=2)

    assert (done.status, len(times)) == ("ERROR", 1)


async def test_a_call_with_the_key_of_a_run_that_compensated_does_not_carry_it_on(store, shop):
    @pgqrs.workflow(name="flow")
    async def sell(ctx):
        await ctx.step("charge", shop.charge)
        try:
            return await ctx.step("ship", shop.ship)
        except Refused:
            await ctx.step("refund", shop.refund)
            raise

    with pytest.raises(Refused):
        await sell.run(key="order-1", store=store)
    with pytest.raises(pgqrs.InvalidTransition) as refused:
        await sell.run(key="order-1", store=store)
    await flow_.reset(1, store)
    shipped = await sell.run(key="order-1", store=store)

    assert refused.value.problem == (
        "run 1 ended in ERROR after its workflow had run 'refund' because of the error, and the step that failed could "
        "succeed now"
    )
    assert refused.value.hint == (
        "to begin again: pgqrs run reset 1; to run only the failed step again: pgqrs run restart 1"
    )
    assert (shipped, shop.did) == ("shipped", ["charge", "ship", "refund", "charge", "ship"])


async def test_a_restart_of_many_leaves_out_those_that_compensated(run, store, shop):
    async def handler(ctx, params):
        await ctx.step("charge", shop.charge)
        try:
            await ctx.step("ship", shop.ship)
        except Refused:
            await ctx.step("refund", shop.refund)
            raise

    failed = await run(handler, max_attempts=1)
    done = await pgqrs.admin(store).restart_runs(workflow="flow", dry_run=False)
    await failed.refresh()

    assert (done.done, done.skipped, failed.status) == (0, 1, "ERROR")
    assert "had run 'refund' because of the error" in done.reasons[0].reason
    await flow_.restart(failed.run_id, store)
    assert (await run(handler, run_id=failed.run_id)).status == "SUCCESS"
