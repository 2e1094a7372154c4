"""Spans: a producer at the trigger, a trace of its own for each pass, one span per step that is executed."""

import asyncio
import sqlite3
from contextlib import suppress

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

import pgqrs
from pgqrs import telemetry
from pgqrs.db.queries import Query

AT_ONCE = pgqrs.RetryPolicy(max_attempts=3, base=0.0, jitter=0.0)
SECRET = "S3cr3t-payload"


def by_name(spans, name):
    return [span for span in spans() if span.name == name]


async def nothing(ctx, params):
    return None


async def test_an_execution_is_a_trace_of_its_own_linked_to_its_trigger(store, flow, worker, spans):
    caller = TracerProvider().get_tracer("caller")
    with caller.start_as_current_span("request") as request:
        run_id = await flow.trigger(None).execute(store)
    with caller.start_as_current_span("what the worker happens to be in"):
        await (await worker(nothing)).run_until_idle()

    [trigger], [run] = by_name(spans, "trigger flow"), by_name(spans, "run flow")
    assert (trigger.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert trigger.parent.span_id == request.get_span_context().span_id
    assert run.parent is None
    assert run.context.trace_id != trigger.context.trace_id
    [link] = run.links
    assert (link.context.trace_id, link.context.span_id) == (trigger.context.trace_id, trigger.context.span_id)
    assert trigger.attributes["pgqrs.run_id"] == run.attributes["pgqrs.run_id"] == run_id
    assert run.attributes["pgqrs.workflow"] == "flow"
    assert run.attributes["pgqrs.status"] == "SUCCESS"
    assert run.status.status_code is StatusCode.UNSET


async def test_a_step_is_a_span_inside_its_execution_and_what_it_calls_inside_it(store, flow, worker, spans):
    seen = []

    def plain():
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def handler(ctx, params):
        seen.append(trace.get_current_span().get_span_context().span_id)
        await ctx.step("fetch", plain)
        await ctx.step("fetch", plain)

    await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    [run], steps = by_name(spans, "run flow"), by_name(spans, "step fetch")
    assert seen == [run.context.span_id, *(step.context.span_id for step in steps)]
    assert {step.parent.span_id for step in steps} == {run.context.span_id}
    assert [step.attributes["pgqrs.step"] for step in steps] == ["fetch", "fetch#2"]


async def test_steps_of_a_plain_handler_and_of_branches_are_spans_inside_it(store, flow, worker, spans):
    def handler(ctx, params):
        ctx.gather(lambda: ctx.step("left", lambda: 1), lambda: ctx.step("right", lambda: 2))

    await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    [run] = by_name(spans, "run flow")
    for name in ("step left", "step right"):
        [step] = by_name(spans, name)
        assert step.parent.span_id == run.context.span_id


async def test_a_retried_step_has_a_span_for_each_attempt_and_the_failed_one_says_why(store, flow, worker, spans):
    calls = []

    async def flaky():
        calls.append(1)
        if len(calls) == 1:
            raise OSError("not yet")

    async def handler(ctx, params):
        await ctx.step("flaky", flaky, retry=AT_ONCE)

    await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    first, second = by_name(spans, "step flaky")
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert first.attributes["error.type"] == "OSError"
    assert [step.attributes["pgqrs.step_attempt"] for step in (first, second)] == [1, 2]
    [exception] = first.events
    assert exception.attributes["exception.message"] == "not yet"
    # The first pass waited for the retry: that is no failure of the run.
    assert [run.status.status_code for run in by_name(spans, "run flow")] == [StatusCode.UNSET] * 2
    assert [run.attributes["pgqrs.status"] for run in by_name(spans, "run flow")] == ["RUNNING", "SUCCESS"]


async def test_a_run_that_fails_has_the_status_error_and_so_has_its_step_once(store, flow, worker, spans):
    async def broken():
        raise pgqrs.PermanentError("never")

    async def handler(ctx, params):
        await ctx.step("broken", broken)

    await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    [step], [run] = by_name(spans, "step broken"), by_name(spans, "run flow")
    assert (step.status.status_code, run.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)
    assert (len(step.events), len(run.events)) == (1, 1)
    assert run.attributes["pgqrs.status"] == "ERROR"
    assert run.attributes["error.type"] == "PermanentError"


async def test_a_replayed_step_has_no_span(store, flow, worker, clock, spans):
    async def handler(ctx, params):
        await ctx.step("one", lambda: 1)
        await ctx.sleep(60)
        await ctx.step("two", lambda: 2)

    await flow.trigger(None).execute(store)
    made = await worker(handler)
    await made.run_until_idle()
    clock.advance(61)
    await made.run_until_idle()

    first, second = by_name(spans, "run flow")
    assert [step.parent.span_id for step in by_name(spans, "step one")] == [first.context.span_id]
    assert [step.parent.span_id for step in by_name(spans, "step two")] == [second.context.span_id]
    assert (first.attributes["pgqrs.status"], second.attributes["pgqrs.status"]) == ("PAUSED", "SUCCESS")
    assert [run.attributes["pgqrs.recorded_steps"] for run in (first, second)] == [0, 2]
    assert first.links[0].context == second.links[0].context


async def test_after_a_crash_the_other_worker_draws_only_what_it_executes(store, flow, worker, clock, spans):
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hangs():
        if not reached.is_set():
            reached.set()
            await go_on.wait()

    async def handler(ctx, params):
        await ctx.step("one", lambda: 1)
        await ctx.step("two", hangs)

    await flow.trigger(None).execute(store)
    lost = asyncio.create_task((await worker(handler)).run_until_idle())
    await asyncio.wait_for(reached.wait(), 30)
    clock.advance(store.config.lease_seconds + 1)
    await (await worker(handler)).run_until_idle()

    go_on.set()
    await asyncio.wait_for(lost, 30)

    # The first ended when its worker noticed, before the other or after it.
    _, run = sorted(by_name(spans, "run flow"), key=lambda span: span.attributes["pgqrs.attempt"])
    assert (run.attributes["pgqrs.attempt"], run.attributes["pgqrs.recorded_steps"]) == (2, 1)
    inside = [span.name for span in spans() if span.parent and span.parent.span_id == run.context.span_id]
    assert inside == ["step two"]
    assert len(by_name(spans, "step one")) == 1
    # To lose a run is no failure of the code.
    assert {each.status.status_code for each in spans()} == {StatusCode.UNSET}


async def test_a_child_is_triggered_inside_its_parents_execution(store, flow, worker, spans):
    await store.create_workflow("child")

    async def parent(ctx, params):
        await ctx.spawn("child", 1)

    await flow.trigger(None).execute(store)
    await (await worker(parent)).run_until_idle()
    child = await pgqrs.consumer("c", 0, "child").handler(nothing).create(store)
    await child.run_until_idle()
    await child.close()

    [run], [trigger], [executed] = (
        by_name(spans, "run flow"),
        by_name(spans, "trigger child"),
        by_name(spans, "run child"),
    )
    assert trigger.parent.span_id == run.context.span_id
    assert executed.links[0].context.span_id == trigger.context.span_id


async def test_progress_is_shown_without_the_trace_and_does_not_lose_it(store, flow, worker, clock, spans):
    async def handler(ctx, params):
        await ctx.progress(1, 2, "half")
        await ctx.sleep(60)

    run_id = await flow.trigger(None).execute(store)
    [triggered] = await pgqrs.admin(store).runs()
    assert triggered.progress is None
    made = await worker(handler)
    await made.run_until_idle()
    shown = {"done": 1, "total": 2, "note": "half"}
    assert (await flow.get_run(run_id, store)).progress == shown
    assert [each.progress for each in await pgqrs.admin(store).runs()] == [shown]
    clock.advance(61)
    await made.run_until_idle()

    [trigger] = by_name(spans, "trigger flow")
    assert [run.links[0].context.span_id for run in by_name(spans, "run flow")] == [trigger.context.span_id] * 2


async def test_payloads_are_in_no_span(store, flow, worker, spans):
    def broken(given):
        raise pgqrs.PermanentError("it is broken")

    async def handler(ctx, params):
        await ctx.step("echo", lambda given: given, params)
        await ctx.emit("told", params)
        await ctx.step("broken", broken, params)

    await flow.trigger(SECRET, attributes={"customer": SECRET}, idempotency_key=SECRET).execute(store)
    await (await worker(handler)).run_until_idle()

    assert len(spans()) == 4
    assert not any(SECRET in span.to_json() for span in spans())


async def test_a_program_may_keep_the_texts_of_errors_to_itself(store, flow, worker):
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.instrument(tracer_provider=provider, record_exceptions=False)

    async def handler(ctx, params):
        raise pgqrs.PermanentError(SECRET)

    await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    [run] = [span for span in exporter.get_finished_spans() if span.name == "run flow"]
    assert (run.status.status_code, run.attributes["error.type"]) == (StatusCode.ERROR, "PermanentError")
    assert SECRET not in run.to_json()


@pytest.mark.parametrize(
    "headers", ['"traceparent"', '{"traceparent": 7}', '{"traceparent": "00-nonsense-01"}', "[]"]
)
async def test_a_run_with_nonsense_in_its_headers_is_executed(store, flow, worker, spans, headers):
    run_id = await flow.trigger(None).execute(store)
    await store.database.execute(
        Query("edit", "update pgqrs_workflow_runs set headers = {as_json :headers}"), headers=headers
    )
    await (await worker(nothing)).run_until_idle()

    assert (await flow.get_run(run_id, store)).status == "SUCCESS"
    [run] = by_name(spans, "run flow")
    assert run.links == ()


@pytest.mark.backends("sqlite")
async def test_a_run_triggered_in_a_transaction_of_the_callers_is_linked_too(store, flow, worker, config, spans):
    with sqlite3.connect(config.path) as connection:
        pgqrs.using(connection).trigger("flow", None)
    connection.close()
    await (await worker(nothing)).run_until_idle()

    [trigger], [run] = by_name(spans, "trigger flow"), by_name(spans, "run flow")
    assert run.links[0].context.span_id == trigger.context.span_id


async def test_a_run_that_was_triggered_unwatched_has_no_link(store, flow, worker, spans):
    from pgqrs.engine.instrumentation import hooks

    tracer, hooks.tracer = hooks.tracer, None
    await flow.trigger(None).execute(store)
    hooks.tracer = tracer
    await (await worker(nothing)).run_until_idle()

    [run] = by_name(spans, "run flow")
    assert run.links == ()


async def test_a_trigger_that_is_refused_is_a_failed_span(store, flow, spans):
    await flow.trigger(1, idempotency_key="k").execute(store)
    with suppress(pgqrs.IdempotencyConflict):
        await flow.trigger(2, idempotency_key="k").execute(store)

    first, second = by_name(spans, "trigger flow")
    assert (first.status.status_code, second.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)


async def test_without_a_provider_nothing_is_drawn_and_all_goes_on(store, flow, worker):
    telemetry.instrument()

    async def handler(ctx, params):
        return await ctx.step("one", lambda: 1)

    run_id = await flow.trigger(None).execute(store)
    await (await worker(handler)).run_until_idle()

    assert (await flow.get_run(run_id, store)).output() == 1


def test_without_opentelemetry_it_is_left_out_unless_it_was_asked_for(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    monkeypatch.delitem(sys.modules, "pgqrs.telemetry.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    telemetry.instrument()
    with pytest.raises(pgqrs.ConfigError, match=r"pip install 'pgqrs-durable\[telemetry\]'"):
        telemetry.instrument(tracing=True)
