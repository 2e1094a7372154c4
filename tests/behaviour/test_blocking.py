"""The blocking API: plain code, no event loop of its own."""

import pytest

import pgqrs
from pgqrs import blocking


@pytest.fixture
def plain(config):
    with blocking.connect(config.dsn, schema=config.schema, install=True) as store:
        yield store


def test_queues_work_without_await(plain):
    plain.create_queue("tasks")
    plain.producer("tasks").enqueue_many([1, 2, 3])

    with plain.consumer("tasks") as consumer:
        first, *rest = consumer.dequeue(2)
        first.archive()
        assert (first.payload, len(rest)) == (1, 1)
    got = []
    for message in plain.consume("tasks"):
        got.append(message.payload)
        message.archive()
        if len(got) == 2:
            break

    assert sorted(got) == [2, 3]
    assert blocking.admin(plain).queue_metrics("tasks").archived == 3


def test_errors_are_the_same(plain):
    with pytest.raises(pgqrs.QueueNotFound):
        plain.producer("nowhere")


def test_workflows_work_without_await(plain):
    plain.create_workflow("double")
    run_id = blocking.workflow("double").trigger(21).execute(plain)

    def handler(ctx, n: int) -> int:
        return ctx.step("double", lambda: n * 2)

    worker = blocking.consumer("w", 0, "double").handler(handler).create(plain)
    worker.run_until_idle()
    worker.close()

    run = blocking.workflow("double").get_run(run_id, plain)
    assert (run.status, run.output()) == ("SUCCESS", 42)
    assert run.result() == 42


def test_the_outbox_is_published_without_await(plain):
    plain.create_workflow("ship")
    blocking.workflow("ship").trigger(7).execute(plain)
    worker = blocking.consumer("w", 0, "ship").handler(lambda ctx, n: ctx.emit("order.shipped", n)).create(plain)
    worker.run_until_idle()
    worker.close()
    got = []

    blocking.dispatcher(plain).to(lambda event: got.append(event.payload)).run_until_idle()

    assert got == [7]
    assert blocking.admin(plain).outbox.counts().published == 1


def test_runs_are_found_page_by_page_without_await(plain):
    plain.create_workflow("double")
    flow = blocking.workflow("double")
    ids = flow.trigger_many([1, 2, 3]).execute(plain)

    page = flow.runs(plain, limit=2)
    rest = flow.runs(plain, limit=2, cursor=page.next_cursor)

    assert [run.run_id for run in [*page, *rest]] == ids[::-1]
    assert blocking.admin(plain).count_runs("workflow:double").count == 3
    assert blocking.workflow_metrics("double", plain).queue_depth == 3
