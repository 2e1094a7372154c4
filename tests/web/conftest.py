"""The application in the test's process, on the test's database."""

import pytest

import pgqrs
from pgqrs.web.auth import tokens as kept
from pgqrs.web.auth.access import Scope
from rig import http

flow = pgqrs.workflow("flow")


async def _nothing(ctx, params=None):
    return None


@pytest.fixture
async def api(store):
    """A client that may do everything."""
    async with http.client(store) as client:
        yield client


@pytest.fixture
async def furnished(store):
    """Something under each of the names that stand in the paths of routes."""
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *")
    run_id = await flow.trigger({"n": 1}, attributes={"customer": "c1"}).execute(store)
    await (await store.producer("tasks")).enqueue({"n": 1})
    worker = await pgqrs.consumer("w1", 0, "flow").handler(_nothing).create(store)
    yield {"run_id": run_id, "worker_id": worker.worker_id}
    await worker.close()


@pytest.fixture
def token_file(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def tokens(token_file):
    """A token for each scope, by its name."""
    return {scope: kept.create(token_file, f"a_{scope}", [scope]) for scope in Scope}


@pytest.fixture
def execute(store):
    """Runs what is due, by a handler."""

    async def work(handler, workflow="flow"):
        worker = await pgqrs.consumer("w", 0, workflow).handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()

    return work


@pytest.fixture
async def listen():
    """Opens streams; those that the test leaves open are closed after it."""
    streams = []

    async def open_one(port, **headers):
        streams.append(await http.Stream.open(port, **headers))
        return streams[-1]

    yield open_one
    for stream in streams:
        await stream.close()
