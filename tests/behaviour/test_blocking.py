"""The blocking API: plain code, no event loop of its own."""

import inspect
import os
import signal
import threading

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


def _in_a_child(work):
    """What `work` returns in a forked child; the child ends after ten seconds at the latest."""
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os.write(writing, str(work()).encode())
        except BaseException as error:  # noqa: BLE001 - the parent shows it
            os.write(writing, repr(error).encode())
        finally:
            # Nothing of the parent's may be cleaned up here.
            os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading) as told:
            return told.read()
    finally:
        os.waitpid(pid, 0)


@pytest.mark.several_processes
def test_a_forked_child_that_connects_anew_works(plain, config):
    """As under `gunicorn --preload`: the parent has used the API, its event loop's thread is not in the child."""
    plain.create_queue("tasks")

    def work():
        with blocking.connect(config.dsn, schema=config.schema) as mine:
            return mine.producer("tasks").enqueue("from the child")

    assert int(_in_a_child(work)) > 0
    plain.producer("tasks").enqueue("from the parent")
    assert blocking.admin(plain).queue_metrics("tasks").ready == 2


@pytest.mark.several_processes
def test_a_store_from_before_the_fork_says_so_in_the_child(plain):
    plain.create_queue("tasks")
    producer = plain.producer("tasks")
    told = []

    def work():
        for each in (lambda: producer.enqueue(1), lambda: plain.create_queue("more"), plain.close):
            try:
                told.append(str(each()))
            except pgqrs.ConnectionFailed as error:
                told.append(str(error))
        return "\n".join(told)

    first, second, closed = _in_a_child(work).splitlines()

    assert first == second
    assert first.startswith("this store was connected before a fork; connect again")
    assert closed == "None"
    assert producer.enqueue("the parent's still works") > 0


@pytest.mark.several_processes
def test_a_child_forked_while_another_thread_connects_works(plain, config):
    """The lock that starts the loop's thread may be held when the process forks."""
    with blocking._portal._lock:

        def work():
            with blocking.connect(config.dsn, schema=config.schema) as mine:
                return mine.create_queue("child")

        assert _in_a_child(work) == "None"


def test_all_that_the_reference_promises_is_there():
    """docs/reference/python.md: `pgqrs.blocking` has all of them without `await`."""
    functions = [name for name in pgqrs.__all__ if inspect.isroutine(getattr(pgqrs, name))]
    verbs = [
        (each, name)
        for each in (getattr(pgqrs, name) for name in pgqrs.__all__)
        if inspect.isclass(each) and each.__module__.startswith("pgqrs.api.")
        for name, verb in inspect.getmembers(each)
        if not name.startswith("_") and (inspect.iscoroutinefunction(verb) or inspect.isasyncgenfunction(verb))
    ]

    assert len(functions) > 10
    assert [name for name in functions if not hasattr(blocking, name)] == []
    assert [(each, name) for each, name in verbs if each not in blocking._OURS] == []


def test_a_store_is_opened_with_a_config(config):
    with blocking.connect_with(config, install=True) as store:
        store.create_queue("tasks")
        assert blocking.admin(store).queue_metrics("tasks").ready == 0


def test_several_workers_are_polled_without_await(plain):
    done = threading.Event()

    def handler(ctx, n: int) -> int:
        done.set()
        return n

    workers = []
    for name in ("one", "two"):
        plain.create_workflow(name)
        workers.append(blocking.consumer(name, 0, name).handler(handler).create(plain))
    polling = threading.Thread(target=blocking.poll_all, args=workers)
    polling.start()
    run_id = blocking.workflow("two").trigger(21).execute(plain)

    assert blocking.workflow("two").get_run(run_id, plain).result(30) == 21
    assert done.is_set()
    workers[0].stop()
    polling.join(30)
    assert not polling.is_alive()


def test_a_decorated_workflow_is_triggered_with_its_arguments(plain):
    @blocking.workflow_decorator(name="sum")
    def add(ctx, a: int, b: int = 1) -> int:
        return a + b

    plain.create_workflow("sum")
    run_id = blocking.workflow(add).trigger(3, b=4).execute(plain)
    worker = blocking.consumer("w", 0, "sum").handler(add).create(plain)
    worker.run_until_idle()
    worker.close()

    assert blocking.workflow("sum").get_run(run_id, plain).result() == 7
