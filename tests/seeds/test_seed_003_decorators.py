"""Seed 003: plain functions as workflows and steps, with the context passed by hand."""

import asyncio
import json
import subprocess
import time
from types import SimpleNamespace

import pytest

import pgqrs

# -- what the examples take for granted ------------------------------------------------------------------

calls: list[str] = []


def _get(url):
    calls.append(f"get {url}")
    return SimpleNamespace(text='{"answer": 42}')


requests = SimpleNamespace(get=_get)


@pytest.fixture(autouse=True)
def no_calls_yet():
    calls.clear()


@pytest.fixture
def admin(live_store):
    return pgqrs.admin(live_store)


@pytest.fixture
async def steps_of(live_store):
    async def read(ctx, workflow):
        run = await pgqrs.workflow(workflow).get_run(ctx.run_id, live_store)
        return run.status, [(s.step_id, s.status) for s in await run.steps()]

    return read


# -- section 5.2, as written -----------------------------------------------------------------------------


@pgqrs.step(id="fetch")
def fetch_data(ctx, url: str) -> str:
    # Context is passed automatically to handle persistence
    return requests.get(url).text


@pgqrs.step(id="process")
def process_data(ctx, data: str) -> dict:
    return json.loads(data)


@pgqrs.workflow
def my_pipeline(ctx, url: str):
    # Workflow logic looks like normal python code
    data = fetch_data(ctx, url)
    return process_data(ctx, data)


DONE = ("SUCCESS", [("fetch", "SUCCESS"), ("process", "SUCCESS")])


async def test_a_plain_pipeline_runs_here_when_called_from_a_coroutine(admin, steps_of):
    ctx = await admin.create_workflow("my_pipeline", "https://example.org")

    assert my_pipeline(ctx, "https://example.org") == {"answer": 42}

    assert calls == ["get https://example.org"]
    assert await steps_of(ctx, "my_pipeline") == DONE


async def test_a_plain_pipeline_runs_here_when_called_from_a_thread(admin, steps_of):
    ctx = await admin.create_workflow("my_pipeline", "https://example.org")

    result = await asyncio.to_thread(my_pipeline, ctx, "https://example.org")

    assert result == {"answer": 42}
    assert await steps_of(ctx, "my_pipeline") == DONE


def test_a_plain_pipeline_runs_here_with_nothing_set_up(default_store):
    assert my_pipeline("https://example.org") == {"answer": 42}
    assert calls == ["get https://example.org"]


async def test_a_plain_pipeline_with_nothing_set_up_may_be_called_from_a_coroutine(default_store):
    assert my_pipeline("https://example.org") == {"answer": 42}


async def test_a_plain_pipeline_runs_in_a_worker(live_store):
    await live_store.create_workflow("my_pipeline")
    run_id = await my_pipeline.trigger("https://example.org").execute(live_store)
    worker = await pgqrs.consumer("worker-1", 8080, "my_pipeline").handler(my_pipeline).create(live_store)
    await worker.run_until_idle()
    await worker.close()

    assert (await my_pipeline.get_run(run_id, live_store)).output() == {"answer": 42}


async def test_a_completed_step_is_skipped_after_a_failure(admin, steps_of):
    broken = [True]

    @pgqrs.step(id="process")
    def process_data(ctx, data: str) -> dict:
        if broken:
            raise ValueError(broken.pop())
        return json.loads(data)

    @pgqrs.workflow
    def my_broken_pipeline(ctx, url: str):
        return process_data(ctx, fetch_data(ctx, url))

    ctx = await admin.create_workflow("my_broken_pipeline", "https://example.org")
    with pytest.raises(ValueError, match="True"):
        await asyncio.to_thread(my_broken_pipeline, ctx, "https://example.org")
    assert await steps_of(ctx, "my_broken_pipeline") == ("ERROR", [("fetch", "SUCCESS"), ("process", "ERROR")])

    assert await asyncio.to_thread(my_broken_pipeline, ctx, "https://example.org") == {"answer": 42}
    assert calls == ["get https://example.org"]
    assert await steps_of(ctx, "my_broken_pipeline") == DONE


# -- section 6.1, as written -----------------------------------------------------------------------------


@pgqrs.step
def step_a(ctx):
    calls.append("a")


@pgqrs.step
def step_b(ctx):
    calls.append("b")


@pgqrs.step
def step_c(ctx):
    calls.append("c")


@pgqrs.workflow
def dynamic_flow(ctx, condition: bool):  # noqa: FBT001 - the seed's signature
    step_a(ctx)
    if condition:
        step_b(ctx)  # This step only exists in DB for this run if condition is True
    else:
        step_c(ctx)


@pytest.mark.parametrize(("condition", "other"), [(True, "step_b"), (False, "step_c")])
async def test_a_step_exists_only_where_the_code_went(admin, steps_of, condition, other):
    ctx = await admin.create_workflow("dynamic_flow", condition)

    await asyncio.to_thread(dynamic_flow, ctx, condition)

    assert await steps_of(ctx, "dynamic_flow") == ("SUCCESS", [("step_a", "SUCCESS"), (other, "SUCCESS")])


# -- section 7, as written (a shorter sleep) -------------------------------------------------------------


@pgqrs.step(id="print_date")
def print_date(ctx):
    subprocess.run(["date"])  # noqa: PLW1510 - as written


@pgqrs.step(id="sleep")
def sleep_step(ctx):
    subprocess.run(["sleep", "0.5"])  # noqa: PLW1510 - as written
    calls.append("slept")


@pgqrs.step(id="templated")
def templated_step(ctx):
    # ... logic ...
    calls.append("templated")


@pgqrs.workflow
def my_dag(ctx):
    # t1 runs first
    print_date(ctx)

    # t2 and t3 run concurrenty (conceptually)
    # In synchronous Python, this runs sequentially:
    sleep_step(ctx)
    templated_step(ctx)

    # To achieve parallel execution in Python, we would use asyncio
    # or a future framing where `step` returns a Promise/Future.


DAG_STEPS = {("print_date", "SUCCESS"), ("sleep", "SUCCESS"), ("templated", "SUCCESS")}


async def test_the_airflow_dag_runs_one_after_the_other_in_plain_python(admin, steps_of):
    ctx = await admin.create_workflow("my_dag")

    await asyncio.to_thread(my_dag, ctx)

    status, steps = await steps_of(ctx, "my_dag")
    assert (status, set(steps)) == ("SUCCESS", DAG_STEPS)
    assert calls == ["slept", "templated"]


async def test_the_airflow_dag_runs_side_by_side_with_gather(admin, steps_of):
    """The analysis of section 7: `[t2, t3]` maps to `asyncio.gather`."""

    @pgqrs.workflow
    async def my_gathered_dag(ctx):
        await print_date(ctx)
        await asyncio.gather(sleep_step(ctx), templated_step(ctx))

    ctx = await admin.create_workflow("my_gathered_dag")
    await my_gathered_dag(ctx)

    status, steps = await steps_of(ctx, "my_gathered_dag")
    assert (status, set(steps)) == ("SUCCESS", DAG_STEPS)
    assert calls == ["templated", "slept"]


async def test_the_airflow_dag_runs_side_by_side_with_threads(admin, steps_of):
    """ "... or threading": each thread's steps keep their names, whichever is first."""
    from concurrent.futures import ThreadPoolExecutor

    @pgqrs.workflow
    def my_threaded_dag(ctx):
        print_date(ctx)
        with ThreadPoolExecutor() as pool:  # pgqrs: ignore[PGQ106]
            for done in [pool.submit(sleep_step, ctx), pool.submit(templated_step, ctx)]:
                done.result()

    ctx = await admin.create_workflow("my_threaded_dag")
    started = time.monotonic()
    await asyncio.to_thread(my_threaded_dag, ctx)

    status, steps = await steps_of(ctx, "my_threaded_dag")
    assert (status, set(steps)) == ("SUCCESS", DAG_STEPS)
    assert calls == ["templated", "slept"]
    assert time.monotonic() - started < 30


# -- DESIGN section 6: the context may be left out -------------------------------------------------------


def test_a_plain_workflow_and_its_steps_need_no_context_at_all(default_store):
    @pgqrs.step
    def charge(order: str) -> str:
        return f"charged {order}"

    @pgqrs.workflow
    def fulfil(order: str) -> str:
        return charge(order)

    assert fulfil("42") == "charged 42"


async def test_an_async_workflow_and_its_steps_need_no_context_at_all(default_store):
    @pgqrs.step
    async def charge(order: str) -> str:
        return f"charged {order}"

    @pgqrs.workflow
    async def fulfil(order: str) -> str:
        return await charge(order)

    assert await fulfil("42") == "charged 42"


async def test_a_step_without_context_is_recorded(admin, steps_of):
    @pgqrs.step
    def charge(order: str) -> str:
        return f"charged {order}"

    @pgqrs.workflow
    def fulfil(order: str) -> str:
        return charge(order)

    ctx = await admin.create_workflow("fulfil", "42")

    assert await asyncio.to_thread(fulfil, ctx, "42") == "charged 42"
    assert await steps_of(ctx, "fulfil") == ("SUCCESS", [("charge", "SUCCESS")])


async def test_a_workflow_may_leave_the_context_out_and_its_steps_may_take_it(admin):
    @pgqrs.step
    async def whoami(ctx) -> int:
        return ctx.run_id

    @pgqrs.workflow
    async def fulfil() -> int:
        return await whoami()

    ctx = await admin.create_workflow("fulfil")

    assert await fulfil(ctx) == ctx.run_id


async def test_a_step_that_calls_a_step_is_one_step_and_replays_as_one(admin):
    tries = []

    @pgqrs.step
    async def inner() -> int:
        return 1

    @pgqrs.step
    async def outer() -> int:
        return await inner() + 1

    @pgqrs.workflow
    async def nested() -> int:
        value = await outer()
        tries.append(value)
        if len(tries) == 1:
            raise RuntimeError("once")
        return value

    ctx = await admin.create_workflow("nested")
    with pytest.raises(RuntimeError, match="once"):
        await nested(ctx)

    assert await nested(ctx) == 2
