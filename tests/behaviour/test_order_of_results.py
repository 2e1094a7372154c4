"""Results reach the branches of a handler in one order, which every pass repeats."""

import asyncio

import pgqrs
from pgqrs import faults


class FlightError(Exception):
    """No flight."""


class HotelError(Exception):
    """No hotel."""


def one_after_the_other():
    """Two bodies of steps, of which the second to be called ends first."""
    may_end = asyncio.Event()

    async def flight():
        await may_end.wait()
        raise FlightError("full")

    async def hotel():
        may_end.set()
        raise HotelError("full")

    return flight, hotel


async def test_a_gather_raises_the_error_that_came_first_in_every_pass(passes):
    async def handler(ctx, note):
        flight, hotel = one_after_the_other()
        try:
            await asyncio.gather(ctx.step("flight", flight), ctx.step("hotel", hotel))
        except (FlightError, HotelError) as error:
            note(type(error).__name__)
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert seen.passes == [["HotelError"], ["HotelError"]]


async def test_a_group_fails_with_the_same_errors_in_every_pass(passes):
    async def handler(ctx, note):
        flight, hotel = one_after_the_other()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ctx.step("flight", flight))
                group.create_task(ctx.step("hotel", hotel))
        except* (FlightError, HotelError) as errors:
            note([type(error).__name__ for error in errors.exceptions])
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.passes == [[["HotelError"]], [["HotelError"]]]


async def test_a_branch_that_a_group_cancels_is_cancelled_in_every_pass(passes):
    """Its step ends all the same, and is recorded: a replay does not get its value instead."""

    async def handler(ctx, note):
        booked, undone = asyncio.Event(), []

        async def book():
            await booked.wait()
            return "ref-1"

        async def hotel():
            raise HotelError("full")

        async def flight():
            try:
                note(await ctx.step("book", book))
            except asyncio.CancelledError:
                undone.append(await ctx.step("undo", booked.set))
                raise

        async def rooms():
            # In a group of its own: some turns of the event loop pass before the other branch hears of it.
            async with asyncio.TaskGroup() as inner:
                inner.create_task(ctx.step("hotel", hotel))

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(flight())
                group.create_task(rooms())
        except* HotelError:
            note(undone)
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert seen.passes == [[[None]], [[None]]]


async def test_branches_that_share_a_queue_take_the_same_items_in_every_pass(passes):
    async def handler(ctx, note):
        items: asyncio.Queue[int] = asyncio.Queue()
        for item in range(9):
            items.put_nowait(item)
        ended = [asyncio.Event() for _ in range(9)]

        async def fetch(item):
            # Each third item ends after the two behind it.
            if item % 3 == 0 and item < 6:
                await ended[item + 2].wait()
            ended[item].set()
            return f"result of {item}"

        async def work():
            while not items.empty():
                item = items.get_nowait()
                note((item, await ctx.step("fetch", fetch, item)))

        await asyncio.gather(work(), work(), work())
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert sorted(seen.passes[0]) == [(item, f"result of {item}") for item in range(9)]
    assert seen.passes[1] == seen.passes[0]
    assert [item for item, _ in seen.passes[0]] != list(range(9))


async def test_the_first_to_complete_is_the_first_in_every_pass(passes):
    async def handler(ctx, note):
        may_end = asyncio.Event()

        async def slow():
            await may_end.wait()
            return "slow"

        async def quick():
            may_end.set()
            return "quick"

        tasks = [asyncio.ensure_future(ctx.step(each.__name__, each)) for each in (slow, quick)]
        for each in asyncio.as_completed(tasks):
            note(await each)
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.passes == [["quick", "slow"], ["quick", "slow"]]


async def test_what_one_branch_tells_another_is_told_in_every_pass(passes):
    async def handler(ctx, note):
        shared = []

        async def writer():
            shared.append(await ctx.step("write", lambda: "written"))

        async def reader():
            # Before anything has ended: the other branch has only begun.
            note(list(shared))
            await ctx.step("read", lambda: None)

        await asyncio.gather(writer(), reader())
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.passes == [[[]], [[]]]


async def test_an_answer_between_two_passes_comes_after_all_that_was_there(passes, store):
    """And keeps its place in the passes behind that one."""

    async def handler(ctx, note):
        async def person():
            note(await ctx.pause("approval"))
            await ctx.step("paid", lambda: None)

        async def others():
            for number in range(3):
                note(await ctx.step("work", lambda number=number: number))
            await ctx.sleep(60)
            note("slept")
            await ctx.sleep(60)

        await asyncio.gather(person(), others())

    async def answer(run_id):
        await pgqrs.workflow("flow").resume(run_id, store, step="pause@1", data="yes")

    seen = await passes(handler, times=3, between=answer)

    assert seen.run.status == "SUCCESS"
    assert seen.passes[0] == [0, 1, 2]
    assert seen.passes[1][:3] == [0, 1, 2]
    assert sorted(seen.passes[1][3:]) == ["slept", "yes"]
    assert seen.passes[2] == seen.passes[1]


async def test_a_result_that_is_written_late_is_not_overtaken(passes):
    """The database goes away while the first is written: the second is written before it, and comes after it."""

    async def handler(ctx, note):
        may_end = asyncio.Event()

        def refuse():
            may_end.set()
            raise pgqrs.ConnectionFailed("no database")

        async def first():
            return "first"

        async def second():
            await may_end.wait()
            return "second"

        async def branch(step):
            note(await ctx.step(step.__name__, step))

        with faults.injected(faults.at("before", "settlement.commit", refuse)):
            await asyncio.gather(branch(first), branch(second))
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.passes == [["first", "second"], ["first", "second"]]


async def test_many_branches_are_replayed(passes):
    async def handler(ctx, note):
        note(await asyncio.gather(*(ctx.step("part", lambda n=n: n) for n in range(200))))
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.passes == [[list(range(200))]] * 2


async def test_a_branch_that_never_rests_holds_up_no_result(passes):
    async def handler(ctx, note):
        done = []

        async def impatient():
            while not done:
                await asyncio.sleep(0)

        async def work():
            done.append(await ctx.step("work", lambda: "done"))

        await asyncio.gather(impatient(), work())
        note(done)
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.passes == [[["done"]], [["done"]]]


async def test_a_wait_that_the_handler_gives_up_is_not_waited_for(passes):
    async def handler(ctx, note):
        waiting = asyncio.create_task(ctx.wait_for("never"))
        await ctx.step("work", lambda: None)
        waiting.cancel()
        try:
            await waiting
        except asyncio.CancelledError:
            note("given up")
        await ctx.step("more", lambda: None)
        return "ended"

    seen = await passes(handler, times=1)

    assert (seen.run.status, seen.run.output()) == ("SUCCESS", "ended")


async def test_showing_progress_has_its_place_in_the_order(passes):
    """It is written in the first pass alone: there another branch takes an item while it is."""

    async def handler(ctx, note):
        items = iter(["first", "second"])
        is_taken = asyncio.Event()

        async def reporter():
            await ctx.progress(1)
            note(("reporter", next(items)))
            await ctx.step("report", lambda: None)

        async def worker():
            await ctx.step("work", lambda: None)
            note(("worker", next(items)))
            is_taken.set()

        with faults.injected(faults.at("before", "claims.show_progress", is_taken.wait)):
            await asyncio.gather(reporter(), worker())
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert seen.passes[1] == seen.passes[0]


def fetching(ctx, names):
    """A coroutine for each name, in whose step that name is: a set of them has another order in every pass."""

    async def fetch(name):
        return name, await ctx.step("fetch", lambda: name)

    return [fetch(name) for name in names]


async def test_as_completed_gives_each_coroutine_its_own_result_in_every_pass(passes):
    kept = []

    async def handler(ctx, note):
        # Other objects before them, so that they lie elsewhere in memory.
        kept.extend([0] * number for number in range(37))
        for each in asyncio.as_completed(fetching(ctx, "abcdefgh")):
            note(await each)
        again = fetching(ctx, "xy")
        for each in asyncio.as_completed((*again, asyncio.ensure_future(ctx.step("z", lambda: "z")))):
            note(await each)
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert sorted(map(str, seen.passes[0])) == sorted(["z", *(str((name, name)) for name in "abcdefghxy")])
    assert seen.passes[1] == seen.passes[0]


async def test_as_completed_of_coroutines_in_no_order_is_refused(passes):
    async def handler(ctx, note):
        for each in asyncio.as_completed(set(fetching(ctx, "ab"))):
            note(await each)

    seen = await passes(handler, times=1)

    assert seen.run.status == "ERROR"
    assert "a list in the place of a set" in seen.run.last_error
    assert seen.passes == [[]]


async def test_as_completed_takes_steps_in_any_order(passes):
    """They have their places already."""

    async def handler(ctx, note):
        for each in asyncio.as_completed({ctx.step(name, lambda name=name: name) for name in "abcdefgh"}):
            note(await each)
        await ctx.sleep(60)

    seen = await passes(handler)

    assert seen.run.status == "SUCCESS"
    assert seen.passes[1] == seen.passes[0]


async def test_a_branch_that_was_cancelled_takes_its_other_way_in_the_next_attempt(store, clock):
    """It cleaned up when its sibling failed. The sibling is tried again, and this time it comes further."""
    tried = []

    async def handler(ctx):
        booking = asyncio.Event()

        async def book():
            await booking.wait()
            return "ref-1"

        async def hotel():
            tried.append("hotel")
            if len(tried) == 1:
                raise HotelError("full")

        async def flight():
            try:
                await ctx.step("book", book)
                await ctx.step("pay", lambda: None)
            except asyncio.CancelledError:
                await ctx.step("tell", booking.set)
                raise

        async with asyncio.TaskGroup() as group:
            group.create_task(flight())
            group.create_task(ctx.step("hotel", hotel))

    await store.create_workflow("flow")
    run_id = await pgqrs.workflow("flow").trigger(max_attempts=2).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    clock.advance(3600)
    await worker.run_until_idle()
    await worker.close()
    run = await pgqrs.workflow("flow").get_run(run_id, store)

    assert (run.status, run.waiting_for) == ("SUCCESS", None)


async def test_data_for_a_step_that_paused_comes_after_all_that_was_there(passes, store):
    async def handler(ctx, note):
        items = iter(range(3))

        async def courier():
            raise pgqrs.PauseError("waiting for the courier")

        async def person():
            await ctx.step("courier", courier)
            note(("person", await ctx.step("deliver", str, next(items))))

        async def others():
            for _ in range(2):
                await ctx.step("look", lambda: None)
                note(("other", await ctx.step("work", str, next(items))))
            await ctx.sleep(60)

        await asyncio.gather(person(), others())
        await ctx.sleep(60)

    async def answer(run_id):
        await pgqrs.workflow("flow").resume(run_id, store, step="courier@1", data="ok")

    seen = await passes(handler, times=4, between=answer)

    assert seen.run.status == "SUCCESS"
    assert seen.passes[0] == [("other", "0"), ("other", "1")]
    assert [sorted(each) for each in seen.passes[1:]] == [[("other", "0"), ("other", "1"), ("person", "2")]] * 2
    assert seen.passes[1] == seen.passes[2]


async def test_an_answer_of_another_type_is_not_overtaken_while_it_is_refused(passes, store):
    async def handler(ctx, note):
        await ctx.wait_for("start")
        noted = asyncio.Event()

        async def answered():
            try:
                await ctx.wait_for("number", type=int)
            except pgqrs.SerializationError:
                note("refused")

        async def working():
            for n in range(5):
                await ctx.step("work", lambda: None)
                note(n)
            noted.set()

        refused = faults.at("before", "claims.refuse_answer", lambda: asyncio.sleep(0.01))
        with faults.injected(refused):
            await asyncio.gather(working(), answered())
        await ctx.sleep(60)

    async def send(run_id):
        flow = pgqrs.workflow("flow")
        await flow.signal(run_id, store, "number", "seven")
        await flow.signal(run_id, store, "start")

    seen = await passes(handler, times=3, between=send)

    assert seen.run.status == "SUCCESS"
    assert "refused" in seen.passes[1]
    assert seen.passes[1] == seen.passes[2]


async def test_as_completed_begins_coroutines_in_the_order_of_its_list(passes):
    async def handler(ctx, note):
        items = list("abcdefgh")

        async def work():
            item = items.pop(0)
            note((item, await ctx.step("work", str, item)))

        for each in asyncio.as_completed([work() for _ in range(8)]):
            await each
        await ctx.sleep(60)

    for _ in range(3):
        seen = await passes(handler)
        assert all(asked == got for each in seen.passes for asked, got in each)


async def test_waits_in_as_completed_do_not_move_the_numbers_of_later_branches(passes, store):
    async def handler(ctx, note):
        async def work(name):
            await ctx.step(name, str, name)

        for each in asyncio.as_completed([work("a"), ctx.sleep(1), ctx.sleep(1), work("b"), ctx.sleep(2)]):
            await each
        await asyncio.gather(work("c"), work("d"))
        await ctx.sleep(60)

    for _ in range(4):
        seen = await passes(handler, times=4)
        steps = [each.step_id for each in await pgqrs.workflow("flow").steps(seen.run.run_id, store)]
        assert len([each for each in steps if each.startswith("c@")]) == 1
