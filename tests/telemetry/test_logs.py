"""`ctx.log` says where it is, and nothing twice; JSON logs are one object a line, whatever is in them."""

import asyncio
import json
import logging
import re

import pytest

import pgqrs
from pgqrs.telemetry import JsonFormatter

AT_ONCE = pgqrs.RetryPolicy(max_attempts=3, base=0.0, jitter=0.0)


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "pgqrs.run")

    def records(*names):
        ours = [record for record in caplog.records if hasattr(record, "workflow")]
        if not names:
            return [record.getMessage() for record in ours]
        return [tuple(getattr(record, name, None) for name in names) for record in ours]

    return records


async def test_a_line_says_which_run_workflow_attempt_and_step_it_is_of(store, flow, worker, said):
    calls = []

    async def handler(ctx, params):
        def body():
            calls.append(1)
            ctx.log.info("in the step", extra={"size": 3})
            if len(calls) == 1:
                raise OSError("not yet")

        ctx.log.info("at first")
        await ctx.step("fetch", body, retry=AT_ONCE)

    run_id = await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    assert said("run_id", "workflow", "attempt", "step", "step_attempt", "size") == [
        (run_id, "flow", 1, None, None, None),
        (run_id, "flow", 1, "fetch", 1, 3),
        (run_id, "flow", 1, "fetch", 2, 3),
    ]


async def test_a_replay_says_nothing_twice(store, flow, worker, clock, said):
    async def handler(ctx, params):
        ctx.log.info("a")
        await ctx.step("one", lambda: ctx.log.info("in one"))
        ctx.log.info("b")
        await ctx.sleep(60)
        ctx.log.info("c")
        await ctx.step("two", lambda: ctx.log.info("in two"))
        ctx.log.info("d")

    await flow.trigger(None).execute(store)
    made = await worker(handler)
    await made.run_until_idle()
    assert said() == ["a", "in one", "b"]
    clock.advance(61)
    await made.run_until_idle()

    assert said() == ["a", "in one", "b", "c", "in two", "d"]


async def test_after_a_crash_what_followed_the_last_checkpoint_is_said_again(store, flow, worker, clock, said):
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hangs():
        if not reached.is_set():
            reached.set()
            await go_on.wait()

    async def handler(ctx, params):
        ctx.log.info("before")
        await ctx.step("one", lambda: 1)
        ctx.log.info("after")
        await ctx.step("two", hangs)

    await flow.trigger(None).execute(store)
    lost = asyncio.create_task((await worker(handler)).run_until_idle())
    await asyncio.wait_for(reached.wait(), 30)
    clock.advance(store.config.lease_seconds + 1)
    await (await worker(handler)).run_until_idle()
    go_on.set()
    await asyncio.wait_for(lost, 30)

    # Whether the first worker ever said "after", nobody can know.
    assert said("attempt", "message") == [(1, "before"), (1, "after"), (2, "after")]


async def test_a_plain_handler_and_its_branches_are_as_quiet(store, flow, worker, clock, said):
    def handler(ctx, params):
        ctx.log.info("a")

        def branch(name):
            ctx.log.info("begin %s", name)
            ctx.step(name, lambda: 1)
            ctx.log.info("end %s", name)

        ctx.gather(lambda: branch("left"))
        ctx.sleep(60)
        ctx.log.info("b")

    await flow.trigger(None).execute(store)
    made = await worker(handler)
    await made.run_until_idle()
    assert said() == ["a", "begin left", "end left"]
    clock.advance(61)
    await made.run_until_idle()

    # What a branch says behind its last step is not known to have been said.
    assert said() == ["a", "begin left", "end left", "end left", "b"]


async def test_an_exception_is_logged_with_its_trace(store, flow, worker, caplog):
    async def handler(ctx, params):
        try:
            raise OSError("gone")
        except OSError:
            ctx.log.exception("it went wrong")

    await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    [record] = [record for record in caplog.records if record.getMessage() == "it went wrong"]
    assert record.workflow == "flow"
    assert "OSError: gone" in json.loads(JsonFormatter().format(record))["exception"]


def line(message="hello", *args, **more):
    record = logging.getLogger("shop").makeRecord("shop", logging.WARNING, "f.py", 1, message, args, None, extra=more)
    text = JsonFormatter().format(record)
    assert "\n" not in text
    assert text.isascii()
    return json.loads(text)


def test_a_line_is_one_object_with_the_time_in_utc():
    found = line("%s is %d", "size", 3, run_id=7)

    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found.pop("time"))
    assert found == {"level": "warning", "logger": "shop", "message": "size is 3", "run_id": 7}


class Unspeakable:
    def __str__(self):
        raise ValueError("no")


def _circle():
    circle = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"\xff", float("nan"), {"deep": float("inf")}, {(1, 2): 3}, _circle(), Unspeakable(), 10**400],
    ids=lambda value: type(value).__name__,
)
def test_no_line_is_lost_for_a_value_that_json_has_no_word_for(value):
    assert line("hello", thing=value)["message"] == "hello"


@pytest.mark.parametrize("text", ["a\nb", "\x1b]0;owned\x07", "\ud800", "\u2028", "\u202e", '"}', "\0"])
def test_hostile_text_stays_in_its_line(text):
    found = line(text, thing=text)

    assert found["message"] == found["thing"] == text


def test_what_is_added_does_not_take_the_place_of_what_is_ours():
    found = line("hello", level="mine", time="mine", logger="mine", exception="mine")

    assert (found["message"], found["level"], found["logger"]) == ("hello", "warning", "shop")
    assert found["time"] != "mine"
    # There was none, so that this is somebody's own.
    assert found["exception"] == "mine"


async def test_a_line_in_a_step_names_its_span(store, flow, worker, spans, caplog):
    async def handler(ctx, params):
        await ctx.step("one", lambda: ctx.log.warning("here"))

    await flow.trigger(None).execute(store)
    lines = []
    handler_ = logging.Handler()
    handler_.emit = lambda record: lines.append(JsonFormatter().format(record))
    logging.getLogger("pgqrs.run").addHandler(handler_)
    try:
        await (await worker(handler)).run_until_idle()
    finally:
        logging.getLogger("pgqrs.run").removeHandler(handler_)

    [found] = [json.loads(each) for each in lines if '"here"' in each]
    [step] = [span for span in spans() if span.name == "step one"]
    assert (int(found["trace_id"], 16), int(found["span_id"], 16)) == (step.context.trace_id, step.context.span_id)
