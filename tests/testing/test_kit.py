"""The kit that users test their workflows with: the fixtures `pgqrs` and `apgqrs`."""

import ast
import inspect
import subprocess
import sys

import pytest

import pgqrs as library
from pgqrs import blocking
from pgqrs.testing import Kit, assert_deterministic, crash_everywhere, kit, replay, sync_kit
from testing.orders import approve, basket, charge, order, purchase


def test_a_run_waits_for_its_signal_however_long_that_takes(pgqrs):
    run = pgqrs.trigger(order, sku="A1")
    pgqrs.drain()
    waits = (run.status, run.waiting_for)
    pgqrs.advance(days=6)
    pgqrs.signal(run, "approve", {"by": "ann"})
    pgqrs.drain()

    assert waits == ("PAUSED", "approve")
    assert run.result() == {"paid": "A1 is paid for", "sent": "A1 is on its way", "by": "ann"}
    pgqrs.assert_steps(run, ["charge", "wait_for:approve", "emit:order.shipped", "ship"])
    pgqrs.assert_emitted("order.shipped", matching={"sku": "A1"}, run=run)


async def test_the_verbs_are_awaited_in_async_tests(apgqrs):
    run = await apgqrs.trigger(order, "A1")
    await apgqrs.drain()
    await apgqrs.cancel(run, reason="changed their mind")

    assert run.status == "CANCELLED"
    with pytest.raises(library.RunCancelled):
        run.result()


def test_a_step_fails_as_often_as_it_is_told_to(pgqrs):
    pgqrs.fail_step(charge, library.TransientError("no connection", retry_after=60), times=2)
    run = pgqrs.trigger(purchase, "A1")
    pgqrs.drain()
    first = (run.status, run.error)
    pgqrs.drain(skip_time=True)

    assert first == ("RUNNING", "TransientError: no connection")
    assert run.result() == "A1 is paid for"
    assert run.attempt == 3


@library.workflow
async def napper(ctx: library.PyWorkflow, times: int) -> int:
    for _ in range(times):
        await ctx.sleep(3 * 3600)
    return times


async def test_time_is_skipped_until_everything_has_ended_or_waits_for_the_outside(apgqrs):
    async def waits(ctx) -> str:
        return await ctx.wait_for("never")

    async def parent(ctx) -> list:
        return await ctx.map(napper, [1, 2, 3])

    async def leaves_a_child(ctx) -> None:
        await ctx.spawn(napper, 2)

    async def fails_twice(ctx) -> int:
        if ctx.attempt < 3:
            raise library.TransientError("not yet", retry_after=60)
        return ctx.attempt

    waiting = await apgqrs.trigger(waits)
    runs = [await apgqrs.trigger(each) for each in (parent, leaves_a_child, fails_twice)]
    await apgqrs.drain(skip_time=True)

    assert [run.status for run in runs] == ["SUCCESS"] * 3
    assert {run.status for run in await apgqrs.runs(napper)} == {"SUCCESS"}
    assert waiting.waiting_for == "never"


async def test_a_run_that_was_paused_by_a_person_is_not_waited_for(apgqrs):
    started = apgqrs.now()
    run = await apgqrs.trigger(purchase, "A1")
    await library.workflow("purchase").pause(run.run_id, apgqrs.store, reason="audit")
    await apgqrs.drain(skip_time=True)

    assert run.status == "PAUSED"
    assert apgqrs.now() == started


async def test_a_step_that_asks_to_be_looked_at_later_is_looked_at_once(apgqrs):
    looks = []

    def ready() -> None:
        looks.append(1)
        raise library.PauseError("not yet")

    async def waits(ctx) -> None:
        await ctx.step("ready", ready)

    await apgqrs.trigger(waits)
    await apgqrs.drain(skip_time=True)

    assert len(looks) == 2


async def test_a_workflow_that_sleeps_for_ever_is_told(apgqrs, monkeypatch):
    async def restless(ctx) -> None:
        for _ in range(200):
            await ctx.sleep(1)

    run = await apgqrs.trigger(restless)

    with monkeypatch.context() as patched:
        patched.setattr(kit, "_MOST_SKIPS", 100)
        with pytest.raises(AssertionError, match=r"(?s)still continue after 100 waits.*advance.*run 1 of 'restless'"):
            await apgqrs.drain(skip_time=True)
    await apgqrs.drain(skip_time=True)
    assert run.status == "SUCCESS"


def test_a_stub_stands_in_for_a_step_and_its_type_is_kept(pgqrs):
    pgqrs.stub_step("charge", "a stub")
    first = pgqrs.trigger(purchase, "A1")
    pgqrs.stub_step(charge, lambda sku: f"a stub for {sku}")
    second = pgqrs.trigger(purchase, "A2")
    pgqrs.drain()

    assert [first.result(), second.result()] == ["a stub for A1", "a stub for A2"]


def test_children_are_served_and_stubbed_too(pgqrs):
    pgqrs.stub_step(charge, lambda sku: sku.lower())
    run = pgqrs.trigger(basket, ["A1", "A2"])
    pgqrs.drain()

    assert run.result() == ["a1", "a2"]
    assert [child.input for child in pgqrs.runs(purchase)] == ["A1", "A2"]


def test_a_plain_function_is_a_workflow_and_a_noun_needs_its_handler(pgqrs):
    async def greet(ctx, name: str) -> str:
        return await ctx.step("say", lambda: f"hello {name}")

    run = pgqrs.trigger(greet, name="ann")
    pgqrs.serve({"expenses": greet})
    other = pgqrs.trigger(library.workflow("expenses"), "bob", priority=3)
    pgqrs.drain()

    assert [run.result(), other.result(), other.workflow] == ["hello ann", "hello bob", "expenses"]
    with pytest.raises(library.ConfigError, match="no code here"):
        pgqrs.trigger("nobody_knows")


def test_what_the_code_under_test_has_enqueued_is_found(pgqrs):
    pgqrs.store.create_queue("mails")
    pgqrs.store.producer("mails").enqueue({"to": "ann", "about": "A1"})
    pgqrs.trigger(purchase, "A7")

    pgqrs.assert_enqueued("mails", matching={"to": "ann"})
    pgqrs.refute_enqueued("mails", matching={"to": "bob"})
    pgqrs.assert_enqueued(workflow=purchase, matching=lambda sku: sku.startswith("A"))


def test_failures_say_what_was_expected_what_is_there_and_how_it_came_about(pgqrs):
    run = pgqrs.trigger(order, "A1")
    pgqrs.drain()
    pgqrs.store.create_queue("mails")

    with pytest.raises(
        AssertionError, match=r"(?s)at 1: 'nothing' instead of 'ship'.*step charge -> 'A1 is paid for'"
    ):
        pgqrs.assert_steps(run, ["charge", "ship"])
    with pytest.raises(AssertionError, match=r"(?s)has not ended.*PAUSED, waiting for approve.*paused"):
        run.result()
    with pytest.raises(AssertionError, match=r"(?s)expected 1 of \{'to': 'ann'\} in queue 'mails'.*nothing"):
        pgqrs.assert_enqueued("mails", matching={"to": "ann"})
    with pytest.raises(AssertionError, match=r"(?s)found 0.*holds no other type"):
        pgqrs.assert_emitted("order.shipped", times=1)


def test_each_test_has_a_database_of_its_own(pgqrs):
    assert pgqrs.trigger(purchase, "A1").run_id == 1


def test_a_kit_takes_any_database(config):
    with Kit(config.with_changes(audit="full")) as elsewhere:
        elsewhere.store.create_queue("mails")
        elsewhere.store.producer("mails").enqueue({"to": "ann"})
        run = elsewhere.trigger(order, "A1")
        approve(elsewhere, run)
        napping = elsewhere.trigger(napper, 2)
        elsewhere.drain(skip_time=True)

        assert run.result()["by"] == "ann"
        assert napping.result() == 2
        assert [signal["consumed"] for signal in elsewhere.export(run)["signals"]] == [True]
        elsewhere.assert_enqueued("mails", matching={"to": "ann"})
        elsewhere.assert_emitted("order.shipped", run=run)


def test_the_plugin_imports_nothing_of_the_library():
    code = "import sys, pytest_pgqrs; sys.exit(any(name.partition('.')[0] in ('pgqrs', 'msgspec') for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Refused(Exception):
    """An error of the program under test, with an attribute."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason, code)
        self.code = code


def refuse() -> None:
    raise Refused("out of stock", 409)


async def compensating(ctx) -> str:
    try:
        await ctx.step("ship", refuse)
    except Refused as error:
        await ctx.step("refund", lambda: None)
        await ctx.sleep(60)
        return f"refunded: {error.code}"
    return "shipped"


def compensating_plainly(ctx) -> str:
    try:
        ctx.step("ship", refuse)
    except Refused as error:
        ctx.sleep(60)
        return f"refunded: {error.code}"
    return "shipped"


@pytest.mark.parametrize("workflow", [compensating, compensating_plainly])
def test_errors_of_the_program_under_test_are_its_own_in_every_pass(pgqrs, workflow):
    run = pgqrs.trigger(workflow)
    pgqrs.drain(skip_time=True)

    assert run.result() == "refunded: 409"
    assert replay(pgqrs.export(run), workflow) == "refunded: 409"
    assert_deterministic(workflow)
    report = crash_everywhere(workflow)
    assert report.survived == report.boundaries


SCRIPT = """
import asyncio
from pgqrs.testing import Kit, assert_deterministic, replay

class Refused(Exception):
    pass

def refuse():
    raise Refused("out of stock")

async def order(ctx) -> str:
    try:
        await asyncio.gather(ctx.step("charge", lambda: 1), ctx.step("ship", refuse))
    except Refused as error:
        await ctx.sleep(60)
        return str(error)

with Kit() as kit:
    run = kit.trigger(order)
    kit.drain(skip_time=True)
    assert replay(kit.export(run), order) == run.result() == "out of stock"
assert_deterministic(order)
"""


def test_errors_of_a_script_are_its_own_too(tmp_path):
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)

    done = subprocess.run([sys.executable, "-W", "error", file], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@library.workflow
async def fragile_child(ctx: library.PyWorkflow, n: int) -> int:
    return await ctx.step("work", lambda: n)


@library.workflow
async def fragile_parent(ctx: library.PyWorkflow) -> list[int]:
    return await ctx.map(fragile_child, [1, 2])


def test_children_that_failed_are_retried_with_their_parent(pgqrs):
    pgqrs.fail_step("work", library.PermanentError("no paper"))
    run = pgqrs.trigger(fragile_parent)
    pgqrs.drain(skip_time=True)
    before = run.status
    restarted = pgqrs.retry_children(run, actor="ann")
    pgqrs.drain()

    assert (before, run.status, run.result()) == ("ERROR", "SUCCESS", [1, 2])
    assert [each.workflow for each in restarted] == ["fragile_parent", "fragile_child"]
    assert restarted[0] is run


async def test_children_are_retried_in_async_tests(apgqrs):
    apgqrs.fail_step("work", library.PermanentError("no paper"))
    run = await apgqrs.trigger(fragile_parent)
    await apgqrs.drain(skip_time=True)
    await apgqrs.retry_children(run)
    await apgqrs.drain()

    assert run.result() == [1, 2]


def test_type_checkers_know_the_verbs_of_the_plain_kit():
    """It hands everything on to the other kit, and they would not see what that does not have."""
    source = inspect.getsource(sync_kit)
    [kit_class] = [each for each in ast.parse(source).body if isinstance(each, ast.ClassDef)]
    known = next(each for each in kit_class.body if isinstance(each, ast.If)).body
    declared = {each.name: ast.unparse(each.args) for each in known if isinstance(each, ast.FunctionDef)}
    [other] = [each for each in ast.parse(inspect.getsource(kit)).body if getattr(each, "name", "") == "AsyncKit"]
    there = {
        each.name: ast.unparse(each.args)
        for each in other.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_")
    }
    inner = {"open", "disconnect", "met", "hire", "body", "lent", "settings_for", "handlers", "store"}

    assert {"drain", "advance"} < set(declared)
    assert declared == {name: text for name, text in there.items() if name not in inner}


@library.workflow
async def labels(ctx: library.PyWorkflow, first: str, second: str = "-") -> str:
    return await ctx.step("join", lambda: first + second)


@library.workflow
async def keeps(ctx: library.PyWorkflow, params: dict) -> dict:
    return await ctx.step("keep", lambda: params)


@pytest.mark.parametrize(
    ("workflow", "params", "outcome"),
    [
        (labels, {"first": "1", "second": "2"}, "12"),
        (labels, {"first": "1"}, "1-"),
        (keeps, {"a": 1}, {"a": 1}),
        (keeps, {"params": {"a": 1}}, {"params": {"a": 1}}),
    ],
)
def test_one_mapping_is_bound_as_an_input_is_wherever_it_is_given(pgqrs, workflow, params, outcome):
    run = pgqrs.trigger(workflow, params, delay=1)
    pgqrs.drain(skip_time=True)
    triggered = blocking.workflow(workflow.name).trigger(params).execute(pgqrs.store)
    report = crash_everywhere(workflow, params, only="kill after claims.claim#1")
    assert_deterministic(workflow, params)

    assert run.result() == outcome
    assert pgqrs.run(triggered).row.input == run.row.input
    assert report.outcome == f"SUCCESS {outcome!r}"


@pytest.mark.parametrize("params", [{"first": "1", "scond": "2"}, {"second": "2"}, {"first": 5}])
def test_a_mapping_that_does_not_fit_is_refused_wherever_it_is_given(pgqrs, params):
    for tried in (pgqrs.trigger, crash_everywhere, assert_deterministic):
        with pytest.raises(library.InvalidArguments):
            tried(labels, params)


def test_a_stub_that_was_never_used_is_told_at_the_end():
    with (
        pytest.raises(AssertionError, match=r"stub_step\('no-such-step', \.\.\.\) was never used.*ran: charge"),
        Kit() as kit,
    ):
        kit.stub_step("no-such-step", 1)
        kit.stub_step(charge, "paid")
        kit.trigger(purchase, "A1")
        kit.drain()


def test_an_error_of_the_test_itself_is_not_hidden_by_a_stub():
    with pytest.raises(ZeroDivisionError), Kit() as kit:
        kit.stub_step("no-such-step", 1)
        _ = 1 / 0


def test_a_stub_may_be_optional(pgqrs):
    pgqrs.stub_step("no-such-step", 1, optional=True)


def test_a_stub_that_another_one_replaced_before_it_was_used_is_told_of_neither(pgqrs):
    pgqrs.stub_step(charge, "paid")
    pgqrs.stub_step(charge, "paid later")
    run = pgqrs.trigger(purchase, "A1")
    pgqrs.drain()

    assert run.result() == "paid later"


def test_the_fixtures_tell_of_a_stub_that_was_never_used(tmp_path):
    (tmp_path / "test_it.py").write_text("""
def test_plain(pgqrs):
    pgqrs.stub_step("chrage", 1)


def test_async(apgqrs):
    apgqrs.stub_step("chrage", 1)
""")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "-p", "no:hypothesispytest", "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "2 passed, 2 errors" in done.stdout
    # In CI pytest repeats them in its summary.
    told = [
        line for line in done.stdout.splitlines() if line.startswith("E  ") and "AssertionError: stub_step" in line
    ]
    assert len(told) == 2
    assert all("stub_step('chrage', ...) was never used" in line for line in told)
