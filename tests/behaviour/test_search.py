"""Finding runs, and doing something to all that are found."""

from datetime import timedelta

import pytest

import pgqrs
from pgqrs.api.operations import search as verbs
from pgqrs.db.views import search
from pgqrs.types import StepStatus
from rig.failures import Failures, failed_family, step
from rig.history import PastRun, write

# Runs that were made up: nobody executed them, and they have no messages.
pytestmark = pytest.mark.breaks("I1", "I4", "I8", "I12")


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.fixture
def admin(store):
    return pgqrs.admin(store)


@pytest.fixture
async def work(store):
    """Executes what is due with a handler."""

    async def run(handler):
        worker = await pgqrs.consumer("worker-1", 8080, "flow").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()

    return run


async def fail(ctx, params):
    raise pgqrs.PermanentError(f"customer {params} has no address")


async def succeed(ctx, params):
    return params


async def statuses(admin, **fields):
    return {run.run_id: str(run.status) for run in await admin.runs(limit=1_000, **fields)}


# -- lists -----------------------------------------------------------------------------------------------


async def test_a_run_that_was_triggered_and_failed_is_found_by_everything_it_has(store, flow, admin, work):
    run_id = await flow.trigger(7, attributes={"customer": "c42", "vip": True}, idempotency_key="order-7").execute(
        store
    )
    await flow.trigger(8).execute(store)
    await work(fail)
    [run] = [run for run in await admin.runs() if run.run_id == run_id]

    for text in (
        "attr:customer=c42",
        "attr:vip=true attr:customer=c42",
        "key:order-7",
        f'status:error error:{run.error_signature} text:"CUSTOMER 7"',
        f"worker:{run.worker_id} text:7",
    ):
        assert [each.run_id for each in await admin.runs(text)] == [run_id], text
    assert (run.workflow, run.status, run.idempotency_key) == ("flow", "ERROR", "order-7")
    assert run.attributes == {"customer": "c42", "vip": True}
    assert len(await admin.runs(f"error:{run.error_signature}")) == 2


async def test_pages_go_on_where_the_last_one_ended_while_runs_come_and_end(store, flow, admin, work):
    first = await flow.trigger_many(range(10)).execute(store)
    page = await admin.runs(limit=4)
    seen = [run.run_id for run in page]
    await flow.trigger_many(range(5)).execute(store)
    await work(succeed)
    while page.next_cursor is not None:
        page = await admin.runs(limit=4, cursor=page.next_cursor)
        seen += [run.run_id for run in page]

    assert seen == first[::-1]


async def test_a_page_that_holds_exactly_the_rest_is_the_last(store, flow, admin):
    await flow.trigger_many(range(4)).execute(store)

    pages = [await admin.runs(limit=4), await flow.runs(store, limit=4)]

    assert [(len(page), page.next_cursor) for page in pages] == [(4, None)] * 2


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "12", "AAAAAAAAAAAAAAAA", "é", 7, "A" * 100])
async def test_a_broken_cursor_is_refused(store, admin, cursor):
    with pytest.raises(pgqrs.ConfigError, match="cursor"):
        await admin.runs(cursor=cursor)


async def test_fields_change_the_filter_that_is_given(store, flow, admin, work):
    await flow.trigger(1).execute(store)
    await work(succeed)
    pending = await flow.trigger(2).execute(store)

    assert list(await statuses(admin, filter="workflow:fl*", status="pending")) == [pending]
    with pytest.raises(pgqrs.ConfigError, match="cannot be filtered by 'stauts'"):
        await admin.runs(stauts="error")


async def test_a_workflow_that_does_not_exist_is_named_but_a_pattern_may_find_nothing(store, flow, admin):
    with pytest.raises(pgqrs.WorkflowNotFound, match="did you mean 'flow'"):
        await admin.runs(workflow="flwo")
    assert await admin.runs(workflow="nothing.*") == []


async def test_counts_stop_at_their_cap(store, flow, admin, monkeypatch):
    monkeypatch.setattr(verbs, "MOST_COUNTED", 3)
    await flow.trigger_many(range(3)).execute(store)

    assert await admin.count_runs() == pgqrs.CappedCount(3, capped=False)
    await flow.trigger(4).execute(store)
    assert await admin.count_runs(workflow="fl*") == pgqrs.CappedCount(3, capped=True)
    assert str(await admin.count_runs()) == "3+"


async def test_times_that_are_relative_go_by_the_databases_clock(store, flow, admin, clock):
    early = await flow.trigger(1).execute(store)
    clock.advance(3600)
    late = await flow.trigger(2).execute(store)

    assert list(await statuses(admin, filter="since:30m")) == [late]
    assert list(await statuses(admin, filter="before:30m")) == [early]
    assert list(await statuses(admin, created_after=clock.now())) == [late]


async def test_a_run_that_was_deleted_is_found_only_when_asked_for(store, flow, admin, work):
    kept, gone = await flow.trigger_many([1, 2]).execute(store)
    await flow.delete(gone, store, reason="test")

    assert list(await statuses(admin)) == [kept]
    assert list(await statuses(admin, filter="deleted:yes")) == [gone]
    assert list(await statuses(admin, filter="deleted:any")) == [gone, kept]


async def test_the_runs_of_a_workflow_are_whole_and_filtered_alike(store, flow, admin, work):
    await store.create_workflow("other")
    await pgqrs.workflow("other").trigger(0).execute(store)
    ids = await flow.trigger_many([1, 2, 3], attributes={"a": 1}).execute(store)
    await work(succeed)

    page = await flow.runs(store, status="success", attributes={"a": 1}, limit=2)
    rest = await flow.runs(store, limit=2, cursor=page.next_cursor)

    assert [run.output() for run in [*page, *rest]] == [3, 2, 1]
    assert (len(page), rest.next_cursor) == (2, None)
    assert [event.event_type for event in await flow.events(ids[0], store)] == ["created", "succeeded"]
    assert (await flow.metrics(store)).success_rate == 100
    with pytest.raises(pgqrs.RunNotFound):
        await flow.events(1, store)


# -- failures --------------------------------------------------------------------------------------------


async def test_failures_that_are_the_same_are_one_group(store, flow, admin, work, clock):
    _, second = await flow.trigger_many([1, 2]).execute(store)
    await work(fail)
    clock.advance(60)
    third = await flow.trigger(3).execute(store)

    async def other(ctx, params):
        raise pgqrs.PermanentError("something else")

    await work(other)
    groups = await admin.failures(since=timedelta(hours=1))

    assert [(group.workflow, group.count, group.example_run_id) for group in groups] == [
        ("flow", 2, second),
        ("flow", 1, third),
    ]
    assert groups[0].last_error == "PermanentError: customer 2 has no address"
    assert groups[0].first_at == groups[0].last_at == clock.now() - timedelta(seconds=60)
    assert not groups.capped
    [newest] = await admin.failures(since=timedelta(seconds=30))
    assert newest.example_run_id == third
    assert await admin.failures(since=timedelta(hours=1), limit=1) == groups[:1]
    assert await admin.count_runs(error_signature=groups[0].error_signature) == pgqrs.CappedCount(2, capped=False)


async def test_runs_that_fail_because_of_a_child_are_one_group(store, flow, work, admin):
    """The finding: the child's number was part of the signature, and each of the runs a group of its own."""

    async def handler(ctx, params):
        if params is not None:
            raise pgqrs.PermanentError("no address")
        try:
            await (await ctx.spawn("flow", {"child": True})).result()
        except pgqrs.ExecutionFailed as error:
            raise pgqrs.PermanentError("not delivered") from error

    for _ in range(2):
        await flow.trigger(None).execute(store)
    await work(handler)
    groups = await admin.failures(since=timedelta(hours=1))

    assert sorted((group.last_error, group.count) for group in groups) == [
        ("PermanentError: no address", 2),
        ("PermanentError: not delivered", 2),
    ]


async def test_of_too_many_failures_the_newest_are_grouped(store, clock, admin, monkeypatch):
    monkeypatch.setattr(verbs, "MOST_FAILURES", 5)
    now = clock.now()
    await write(
        store,
        [
            PastRun(n, f"w{n % 2}", "ERROR", now, now, now, error_signature=f"E-{n % 2}", last_error=f"E: {n}")
            for n in range(1, 11)
        ],
    )

    groups = await admin.failures()

    assert [(group.workflow, group.count, group.last_error) for group in groups] == [
        ("w0", 3, "E: 10"),
        ("w1", 2, "E: 9"),
    ]
    assert groups.capped


# -- steps and events ------------------------------------------------------------------------------------


async def test_steps_and_events_of_a_run_are_listed_decoded(store, flow, admin, work):
    async def handler(ctx, params):
        return await ctx.step("double", lambda: {"n": params * 2})

    run_id = await flow.trigger(21).execute(store)
    await work(handler)
    [step] = await admin.steps(run_id)
    events = await admin.events(run_id)

    assert (step.step_id, step.status, step.output) == ("double", "SUCCESS", {"n": 42})
    assert [event.event_type for event in events] == ["created", "succeeded"]
    assert [event.run_id for event in events] == [run_id, run_id]
    assert await admin.events(run_id, limit=1) == events[:1]
    assert await admin.events(run_id, after=events[0].event_id) == events[1:]


async def test_steps_and_events_of_a_run_that_does_not_exist_are_an_error(store, admin):
    with pytest.raises(pgqrs.RunNotFound):
        await admin.steps(12345)
    with pytest.raises(pgqrs.RunNotFound):
        await admin.events(12345)


# -- bulk verbs ------------------------------------------------------------------------------------------


async def test_a_dry_run_says_what_would_be_done_and_does_nothing(store, flow, admin):
    ids = await flow.trigger_many(range(25)).execute(store)

    for verb in (admin.cancel_runs, admin.restart_runs, admin.delete_runs):
        result = await verb(workflow="flow", status="pending")

        assert (result.dry_run, result.matched.count, result.done) == (True, 25, 0)
        assert result.run_ids == tuple(ids[:-21:-1])
    assert set((await statuses(admin)).values()) == {"PENDING"}


async def test_cancel_takes_what_the_filter_finds_and_has_not_ended(store, flow, admin, work):
    done = await flow.trigger(1, attributes={"batch": "a"}).execute(store)
    await work(succeed)
    live = await flow.trigger_many([2, 3], attributes={"batch": "a"}).execute(store)
    other = await flow.trigger(4, attributes={"batch": "b"}).execute(store)

    result = await admin.cancel_runs("attr:batch=a", reason="wrong batch", actor="ann", dry_run=False)

    assert (result.done, result.skipped, result.failed) == (2, 0, 0)
    assert await statuses(admin) == {
        other: "PENDING", live[1]: "CANCELLED", live[0]: "CANCELLED", done: "SUCCESS",
    }  # fmt: skip
    assert [(e.event_type, e.actor) for e in await admin.events(live[0])] == [("created", None), ("cancelled", "ann")]


async def test_restart_takes_what_failed_and_it_runs_again(store, flow, admin, work):
    failed = await flow.trigger_many([1, 2]).execute(store)
    await work(fail)
    pending = await flow.trigger(3, delay=3600).execute(store)

    result = await admin.restart_runs(workflow="flow", dry_run=False)
    await work(succeed)

    assert (result.matched.count, result.done) == (2, 2)
    assert await statuses(admin) == {pending: "PENDING", failed[1]: "SUCCESS", failed[0]: "SUCCESS"}


async def test_restart_takes_what_was_cancelled_unless_a_status_is_named(store, flow, admin, work):
    cancelled, failed = await flow.trigger_many([1, 2]).execute(store)
    await flow.cancel(cancelled, store)
    await work(fail)

    assert (await admin.restart_runs(workflow="flow", status="error")).matched.count == 1
    result = await admin.restart_runs(workflow="flow", dry_run=False)

    assert (result.matched.count, result.done) == (2, 2)
    assert await statuses(admin) == {failed: "PENDING", cancelled: "PENDING"}


@pytest.mark.breaks("I4")
async def test_a_group_of_failures_is_restarted_and_each_run_heals(store, admin):
    failures = await Failures(store).begin()
    ids = [
        await failures.failed(step("caught", StepStatus.ERROR), step("charge", StepStatus.ERROR), culprits=["charge"])
        for _ in range(3)
    ]
    [group] = await admin.failures()

    result = await admin.restart_runs(error_signature=group.error_signature, actor="ann", dry_run=False)

    assert (group.count, result.done) == (3, 3)
    assert [set(await failures.steps(each)) for each in ids] == [{"caught"}] * 3
    events = [(await admin.events(each))[-1] for each in ids]
    assert {(each.event_type, each.actor) for each in events} == {("restarted", "ann")}
    assert await admin.failures() == []


@pytest.mark.breaks("I4")
async def test_failed_children_are_restarted_before_their_parents(store, admin):
    failures = await Failures(store).begin()
    parent, _ = await failed_family(failures, 3)

    result = await admin.restart_runs(workflow="flow", dry_run=False)

    assert result.done == 4
    assert set(await failures.steps(parent)) == {"spawn"}
    assert set((await statuses(admin)).values()) == {"PENDING"}


async def test_a_run_that_another_call_restarts_first_is_skipped(store, flow, admin, monkeypatch):
    [run_id] = await flow.trigger_many([1]).execute(store)
    await flow.cancel(run_id, store)
    found = search.run_ids

    async def then_restarted(*args, **options):
        listed = await found(*args, **options)
        if listed and options["limit"] == verbs.BULK_BATCH:
            await flow.restart(run_id, store)
        return listed

    monkeypatch.setattr(search, "run_ids", then_restarted)
    result = await admin.restart_runs(workflow="flow", dry_run=False)

    assert (result.done, result.skipped) == (0, 1)
    assert "was restarted already" in result.reasons[0].reason


async def test_delete_takes_what_has_ended(store, flow, admin, work):
    ended = await flow.trigger_many([1, 2]).execute(store)
    await work(succeed)
    live = await flow.trigger(3).execute(store)

    result = await admin.delete_runs(workflow="flow", reason="tidy", dry_run=False)

    assert result.done == 2
    assert list(await statuses(admin)) == [live]
    assert [run.delete_reason for run in await admin.runs(deleted=True)] == ["tidy", "tidy"]
    assert {run.run_id for run in await admin.runs(deleted=True)} == set(ended)


async def test_what_its_state_does_not_allow_is_skipped_with_the_reason(store, flow, admin, work):
    done = await flow.trigger(1).execute(store)
    await work(succeed)
    pending = await flow.trigger(2).execute(store)

    result = await admin.cancel_runs(status=["success", "pending"], dry_run=False)

    assert (result.done, result.skipped, result.failed) == (1, 1, 0)
    assert [(r.run_id, r.outcome) for r in result.reasons] == [(done, "skipped")]
    assert "has ended in SUCCESS" in result.reasons[0].reason
    assert (await statuses(admin))[pending] == "CANCELLED"


async def test_one_run_that_cannot_be_done_does_not_keep_the_others_from_it(store, flow, admin, monkeypatch):
    ids = await flow.trigger_many(range(3)).execute(store)
    cancel = verbs.transitions.cancel

    async def broken(db, run_id, **options):
        if run_id == ids[1]:
            raise pgqrs.PgqrsError("no luck")
        return await cancel(db, run_id, **options)

    monkeypatch.setattr(verbs.transitions, "cancel", broken)
    result = await admin.cancel_runs(workflow="flow", dry_run=False)

    assert (result.done, result.failed) == (2, 1)
    assert result.reasons == (pgqrs.BulkReason(ids[1], "failed", "no luck"),)


async def test_more_runs_than_one_batch_are_all_done(store, flow, admin, monkeypatch):
    monkeypatch.setattr(verbs, "BULK_BATCH", 4)
    await flow.trigger_many(range(11)).execute(store)

    result = await admin.cancel_runs(everything=True, dry_run=False)

    assert result.done == 11
    assert set((await statuses(admin)).values()) == {"CANCELLED"}


async def test_runs_that_come_after_the_call_began_are_not_touched(store, flow, admin, monkeypatch):
    await flow.trigger_many([1, 2]).execute(store)
    cancel, prepared = verbs.transitions.cancel, search.prepared
    late = []

    def and_one_more(call):
        async def calling(*args, **options):
            late.append(await flow.trigger(3).execute(store))
            return await call(*args, **options)

        return calling

    monkeypatch.setattr(verbs, "BULK_BATCH", 1)
    monkeypatch.setattr(verbs.transitions, "cancel", and_one_more(cancel))
    monkeypatch.setattr(search, "prepared", and_one_more(prepared))
    result = await admin.cancel_runs(workflow="flow", dry_run=False)

    assert (result.matched.count, result.done, len(late)) == (2, 2, 3)
    assert {(await statuses(admin))[run_id] for run_id in late} == {"PENDING"}


async def test_a_child_that_its_parent_took_with_it_is_done_and_not_an_error(store, flow, admin, work, monkeypatch):
    async def handler(ctx, n):
        return await ctx.wait_for("never") if n else await (await ctx.spawn("flow", 1)).result()

    parent = await flow.trigger(0).execute(store)
    await work(handler)
    [child] = await admin.runs(parent_run_id=parent)
    found = search.run_ids

    async def parent_first(*args, **options):
        return sorted(await found(*args, **options))

    # The other way round the child is cancelled by itself.
    monkeypatch.setattr(search, "run_ids", parent_first)
    monkeypatch.setattr(verbs, "BULK_BATCH", 2)
    result = await admin.cancel_runs(workflow="flow", dry_run=False)

    assert (result.done, result.skipped) == (2, 0)
    assert await statuses(admin) == {child.run_id: "CANCELLED", parent: "CANCELLED"}


@pytest.mark.parametrize("verb", ["cancel_runs", "restart_runs", "delete_runs"])
@pytest.mark.parametrize("empty", [None, "", "deleted:any", pgqrs.RunFilter()])
async def test_an_empty_filter_is_refused(store, admin, verb, empty):
    with pytest.raises(pgqrs.ConfigError, match="everything=True"):
        await getattr(admin, verb)(empty, dry_run=False)


async def test_a_lost_database_stops_a_bulk_verb(store, flow, admin, monkeypatch):
    await flow.trigger_many([1, 2]).execute(store)
    asked = []

    async def away(db, run_id, **options):
        asked.append(run_id)
        raise pgqrs.ConnectionFailed("away")

    monkeypatch.setattr(verbs.transitions, "cancel", away)

    with pytest.raises(pgqrs.ConnectionFailed):
        await admin.cancel_runs(workflow="flow", dry_run=False)
    assert len(asked) == 1


async def test_a_window_with_much_in_it_is_walked_and_finds_the_same(store, flow, admin, clock, work, monkeypatch):
    ids = await flow.trigger_many(range(5)).execute(store)
    await work(succeed)
    small = await statuses(admin, filter="completed_since:1h")
    monkeypatch.setattr(search, "SMALL_WINDOW", 2)

    assert await statuses(admin, filter="completed_since:1h") == small == dict.fromkeys(ids[::-1], "SUCCESS")
