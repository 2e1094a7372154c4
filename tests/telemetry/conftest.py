"""What most tests of telemetry need: what was counted, and spans kept in memory."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import pgqrs
from pgqrs import telemetry
from rig.exposition import values_of


@pytest.fixture(autouse=True)
def _nobody_watches_afterwards():
    yield
    telemetry.uninstrument()


@pytest.fixture
def spans():
    """Everything is watched; the spans that have ended, in that order."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry.instrument(tracer_provider=provider)
    yield exporter.get_finished_spans
    provider.shutdown()


@pytest.fixture
def metric():
    """Everything is counted; `metric(name, **labels)` is a value now, None when there is none."""
    telemetry.instrument(tracing=False)

    def value(name, **labels):
        return values_of(telemetry.worker_metrics().text()).get((name, frozenset(labels.items())))

    return value


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.fixture
async def worker(store, flow):
    """`await worker(handler)`: a worker of the workflow, which is told to sign off after the test."""
    made = []

    async def make(handler, on=None):
        found = await pgqrs.consumer(f"worker-{len(made)}", 0, "flow").handler(handler).create(on or store)
        made.append(found)
        return found

    yield make
    for each in made:
        await each.close()
