"""`pgqrs run ...` on every database."""

import re
import shlex
from pathlib import Path

import pytest

import pgqrs
from rig.failures import Failures, failed_family

flow = pgqrs.workflow("flow")


async def _nothing(ctx):
    return None


@pytest.fixture
async def run_id(store):
    await store.create_workflow("flow")
    return await flow.trigger({"n": 1}, attributes={"customer": "c1"}).execute(store)


async def _execute(store, handler):
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()


async def test_trigger_takes_parameters_and_options(store, command):
    await store.create_workflow("flow")

    said = await command("run", "trigger", "flow", "name=ann", "n:=3", "--key", "k1", "--attr", "a=b", "-o", "ids")

    run = await flow.get_run(int(said.out), store)
    assert (run.input, run.idempotency_key, run.attributes) == ({"name": "ann", "n": 3}, "k1", {"a": "b"})
    again = await command("run", "trigger", "flow", "name=ann", "n:=3", "--key", "k1", "--attr", "a=b", "-o", "ids")
    assert again.out == said.out


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("words", "given"),
    [(['{"n": 1}'], None), (["-"], '{"n": 1}'), (["n:=1"], None), (["@params.json"], None)],
)
async def test_parameters_come_from_anywhere(store, command, tmp_path, monkeypatch, words, given):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.json").write_text('{"n": 1}')
    await store.create_workflow("flow")

    said = await command("run", "trigger", "flow", *words, "-o", "json", given=given)

    assert said.json["input"] == {"n": 1}


async def test_list_is_the_same_for_people_and_programs(command, run_id):
    listed = await command("run", "list", "--status", "pending", "--attr", "customer=c1", "-o", "json")
    assert [run["run_id"] for run in listed.json["items"]] == [run_id]
    assert listed.json["next_cursor"] is None
    assert (await command("run", "list", "--status", "error", "-o", "ids")).out == ""
    table = await command("run", "list")
    assert table.out.splitlines()[0].split() == ["run", "status", "workflow", "age", "attempt", "reason"]


async def test_pages_follow_each_other(store, command):
    await store.create_workflow("flow")
    await flow.trigger_many([None] * 5).execute(store)

    first = await command("run", "list", "-n", 3, "-o", "json")
    rest = await command("run", "list", "-n", 3, "-o", "json", "--cursor", first.json["next_cursor"])

    assert len(first.json["items"]) + len(rest.json["items"]) == 5


async def test_everything_about_a_run_can_be_seen(store, command, run_id):
    async def handler(ctx, params):
        return await ctx.step("double", _double, params["n"])

    await _execute(store, handler)

    assert (await command("run", "get", run_id, "-o", "json")).json["output"] == 2
    [step] = (await command("run", "steps", run_id, "-o", "json")).json["items"]
    assert (step["step_id"], step["output"]) == ("double", 2)
    events = (await command("run", "events", run_id, "-o", "json")).json["items"]
    assert events[-1]["event_type"] == "succeeded"
    assert (await command("run", "result", run_id)).out == "2\n"
    watched = await command("run", "watch", run_id)
    assert watched.out.splitlines()[-1].endswith("succeeded")
    assert (await command("run", "why", run_id)).out.startswith(f"run {run_id}: it has ended in SUCCESS")


async def _double(n):
    return 2 * n


async def test_why_shows_the_way_out(store, command, run_id):
    said = await command("run", "why", run_id)

    assert said.out.splitlines()[0] == f"run {run_id}: no worker serves 'flow'"
    assert said.out.splitlines()[-1].startswith("to get it going: pgqrs worker run")


async def test_each_action_does_what_it_says(store, command, run_id):
    for verb, status in (
        ("pause", "PAUSED"),
        ("resume", "PENDING"),
        ("cancel", "CANCELLED"),
        ("restart", "PENDING"),
        ("delete", "PENDING"),
    ):
        done = await command("run", verb, run_id)
        assert done.code == 0, (verb, done)
        assert (await flow.get_run(run_id, store)).status == status
    assert (await command("run", "restore", run_id)).code == 0
    events = await flow.events(run_id, store)
    assert {event.actor for event in events if event.event_type in ("cancelled", "paused")} == {"ann"}


@pytest.mark.breaks("I4")
async def test_failed_children_are_retried(store, command):
    parent, [child] = await failed_family(await Failures(store).begin())

    advice = await command("run", "why", parent)
    done = await command("run", "retry-children", parent)
    again = await command("run", "retry-children", parent)

    assert advice.out.splitlines()[-1] == f"to get it going: pgqrs run retry-children {parent}"
    assert done.out == f"run {parent} is restarted, with the children that it failed because of\n"
    assert (await flow.get_run(child, store)).status == "PENDING"
    assert (again.code, "was restarted already" in again.err) == (5, True)


def _of_the_tutorial():
    """The `order` of the tutorial's page about approvals."""
    page = (Path(__file__).parent.parent.parent / "docs/tutorial/approval.md").read_text(encoding="utf-8")
    names = {"__name__": "approval_of_the_tutorial"}
    exec(re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL).group(1), names)
    return names["order"]


async def _advised(command, run_id):
    """What `why` says to do, carried out as it is."""
    line = (await command("run", "why", run_id)).out.splitlines()[-1].removeprefix("to get it going: ")
    done = await command("--yes", *shlex.split(line)[1:])
    assert done.code == 0, (line, done)
    return line


async def test_what_why_advises_gets_the_tutorials_order_approved(store, command, clock):
    order = _of_the_tutorial()
    worker = await pgqrs.worker("w").workflows({"order": order}).create(store)
    run_id = await order.trigger("ann", ["tea", "cup", "pot"]).execute(store)
    await worker.run_until_idle()

    assert await _advised(command, run_id) == f"pgqrs run approve {run_id}"
    await worker.run_until_idle()

    assert (await order.get_run(run_id, store)).output() == "parcel for ann"
    await worker.close()


async def test_a_wrong_answer_is_asked_for_again_as_why_advises(store, command, clock):
    order = _of_the_tutorial()
    worker = await pgqrs.worker("w").workflows({"order": order}).create(store)
    run_id = await order.trigger("ann", ["tea", "cup", "pot"], max_attempts=1).execute(store)
    await worker.run_until_idle()
    # None: not what the handler takes.
    await command("run", "signal", run_id, "approval")
    await worker.run_until_idle()
    assert (await order.get_run(run_id, store)).status == "ERROR"

    assert await _advised(command, run_id) == f"pgqrs run reset --from=wait_for:approval {run_id}"
    await worker.run_until_idle()
    assert await _advised(command, run_id) == f"pgqrs run approve {run_id}"
    await worker.run_until_idle()

    assert (await order.get_run(run_id, store)).output() == "parcel for ann"
    await worker.close()


async def test_a_wrong_answer_that_more_was_recorded_after_is_named_beside_the_restart(store, command, run_id):
    async def handler(ctx, params):
        await ctx.wait_for("amount")
        await ctx.step("note", lambda: 1)
        raise pgqrs.PermanentError("no")

    await command("run", "signal", run_id, "amount", "5")
    await _execute(store, handler)
    said = await command("run", "why", run_id)

    assert f"pgqrs run reset --from=wait_for:amount {run_id}" in said.out
    assert said.out.splitlines()[-1] == f"to get it going: pgqrs run restart {run_id}"


async def test_an_approval_beside_a_deadline_is_no_end_of_the_deadline(store, command, run_id):
    async def handler(ctx, params):
        return (await ctx.first(late=ctx.sleep(3600), answer=ctx.wait_for("approval"))).key

    await _execute(store, handler)
    await command("run", "approve", run_id)
    await _execute(store, handler)

    assert (await flow.get_run(run_id, store)).output() == "answer"


async def test_a_signal_and_a_person_can_be_answered(store, command, run_id):
    async def handler(ctx, params):
        first = await ctx.wait_for("approve")
        second = await ctx.pause("sign it")
        return [first, second]

    await _execute(store, handler)
    assert (await command("run", "approve", run_id, "--comment", "fine")).out == f"run {run_id} is approved\n"
    await _execute(store, handler)
    assert (await command("run", "reject", run_id)).out == f"run {run_id} is rejected\n"
    await _execute(store, handler)

    run = await flow.get_run(run_id, store)
    assert run.output() == [
        {"approved": True, "comment": "fine"},
        {"approved": False, "comment": None},
    ]
    refused = await command("run", "approve", run_id)
    assert (refused.code, "waits for nobody" in refused.err) == (5, True)


async def test_bulk_verbs_count_first_and_want_a_yes(store, command):
    await store.create_workflow("flow")
    ids = await flow.trigger_many([None] * 3).execute(store)

    planned = await command("run", "cancel", "--status", "pending", "--dry-run", "-o", "json")
    refused = await command("run", "cancel", "--status", "pending")
    nothing = await command("run", "cancel")

    assert (planned.json["matched"]["count"], planned.json["done"]) == (3, 0)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    assert (nothing.code, "say which runs" in nothing.err) == (2, True)
    assert {(await flow.get_run(each, store)).status for each in ids} == {"PENDING"}
    done = await command("run", "cancel", "--status", "pending", "--yes", "-o", "json")
    assert done.json["done"] == 3


async def test_ids_flow_from_one_command_to_the_next(store, command):
    await store.create_workflow("flow")
    await flow.trigger_many([None] * 2).execute(store)

    listed = await command("run", "list", "-o", "ids")
    done = await command("run", "cancel", "-", given=listed.out)

    assert done.out.count("is cancelled") == 2


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["run", "get", "999"], 4),
        (["run", "restart", "999"], 4),
        (["run", "list", "--status", "nonsense"], 2),
        (["run", "trigger", "nowhere"], 4),
        (["run", "trigger", "flow", "n:=x"], 2),
        (["run", "trigger", "flow", "--in", "soon"], 2),
        (["run", "get", "x"], 2),
        (["run", "list", "-o", "xml"], 2),
        (["run", "list", "--cursor", "x"], 2),
    ],
)
async def test_errors_have_codes(store, command, run_id, words, code):
    assert (await command(*words)).code == code


async def test_a_failed_run_is_7_and_a_late_one_6(store, command, live_store, run_id):
    late = await command("run", "wait", run_id, "--timeout", "10ms")

    async def failing(ctx, params):
        raise pgqrs.PermanentError("no")

    await _execute(store, failing)
    failed = await command("run", "result", run_id)
    assert (late.code, failed.code) == (6, 7)


@pytest.mark.backends("sqlite")
async def test_what_users_wrote_cannot_command_the_terminal(store, command, run_id):
    async def failing(ctx, params):
        raise pgqrs.PermanentError("\x1b]0;owned\x07 \u202eevil")

    await _execute(store, failing)

    said = await command("run", "list")

    assert "\x1b" not in said.out
    assert "\u202e" not in said.out
    assert r"\x1b]0;owned\x07 \u202eevil" in said.out


@pytest.mark.backends("sqlite")
async def test_options_stand_before_or_after_the_verb(command, run_id):
    before = await command("-o", "json", "run", "list")
    between = await command("run", "-o", "json", "list")
    after = await command("run", "list", "-o", "json")

    assert before.out == between.out == after.out


async def test_the_error_of_a_step_is_one_line_in_a_table_and_whole_in_json(store, command, run_id):
    def fails():
        raise ValueError("no such customer\n" + "x" * 500)

    async def handler(ctx, params):
        try:
            await ctx.step("charge", fails)
        except ValueError:
            return

    await _execute(store, handler)
    shown = (await command("run", "steps", run_id)).out.splitlines()
    [whole] = (await command("run", "steps", run_id, "-o", "json")).json["items"]

    assert len(shown) == 2
    assert shown[1].endswith("ValueError: no such customer...")
    assert "Traceback" in whole["error"]["traceback"]


async def test_what_why_advises_gets_a_parked_run_to_its_end_when_its_code_is_back(store, command, run_id):
    async def original(ctx, n):
        charged = await ctx.step("charge", lambda: n)
        await ctx.wait_for("approval")
        return charged

    async def changed(ctx, n):
        await ctx.step("check", lambda: n)
        return await original(ctx, n)

    await _execute(store, original)
    assert (await command("run", "approve", run_id)).code == 0
    await _execute(store, changed)
    parked = await flow.get_run(run_id, store)
    await _execute(store, original)
    advised = await _advised(command, run_id)
    await _execute(store, original)

    assert parked.waiting_for.startswith("parked: ")
    assert advised == f"pgqrs run resume {run_id}"
    assert (await flow.get_run(run_id, store)).output() == {"n": 1}


async def test_the_events_of_a_run_show_what_a_person_has_answered(store, command):
    await store.create_workflow("flow")
    run_id = await pgqrs.workflow("flow").trigger(None).execute(store)
    verbs = pgqrs.workflow("flow")
    await verbs.signal(run_id, store, "approval", {"approved": True, "comment": "looks fine"}, actor="ann")
    await verbs.signal(run_id, store, "approval", "x" * 10_000, actor="bob")
    await verbs.signal(run_id, store, "ping")

    said = (await command("run", "events", run_id)).out
    [*_, ann, bob, ping] = (await command("run", "events", run_id, "-o", "json")).json["items"]

    assert '"payload":{"approved":true,"comment":"looks fine"}' in "".join(said.split("\n")).replace(": ", ":")
    assert "ann" in said
    assert "xxx" not in said
    # As the API has them.
    assert [each["data"] for each in (ann, bob, ping)] == [{"name": "approval"}] * 2 + [{"name": "ping"}]
