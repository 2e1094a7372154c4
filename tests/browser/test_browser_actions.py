"""Everything that can be done, done by clicking, and seen in the database."""

from __future__ import annotations

import re

import pytest

import pgqrs
from pgqrs.types import RunStatus


@pytest.fixture
def start(served):
    """A run, as far as a worker of the test's takes it."""

    def begin(workflow, params=None, **options):
        return served.do(pgqrs.workflow(workflow).trigger(params, **options).execute(served.store))

    return begin


@pytest.fixture
def status(served):
    async def asked(run_id):
        return (await pgqrs.admin(served.store).runs(deleted=None, limit=500)), run_id

    def read(run_id):
        found, wanted = served.do(asked(run_id))
        return next(run for run in found if run.run_id == wanted)

    return read


@pytest.fixture
def execute(served):
    """Works until nothing is due."""

    async def work():
        from browser.filling import FLOWS

        worker = await pgqrs.worker("tester", concurrency=10).workflows(FLOWS).create(served.store)
        await worker.run_until_idle()
        await worker.close()

    return lambda: served.do(work())


@pytest.fixture
def queue(served):
    """A queue of the test's own, with dead letters and live ones."""

    async def made():
        await served.store.create_queue("act.files")
        producer = await served.store.producer("act.files")
        await producer.enqueue_many([{"n": 1}, {"n": 2}], max_attempts=1)

    served.do(made())
    return "act.files"


def confirm(page, button, **fields):
    """Clicks the button, fills in the dialog, and confirms; then the next page is there."""
    page.get_by_role("button", name=button, exact=True).first.click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    for name, value in fields.items():
        dialog.locator(f"[name={name}]").fill(value)
    dialog.locator("form button").click()
    page.wait_for_selector("[role=status].done")


def test_a_run_is_paused_resumed_cancelled_and_restarted(browse, start, status):
    run_id = start("mail.newsletter", {"issue": 1})
    browser = browse()
    page = browser.open(f"/runs/{run_id}")

    confirm(page, "Pause", reason="not now")
    assert status(run_id).status is RunStatus.PAUSED

    confirm(page, "Resume")
    assert status(run_id).status is RunStatus.PENDING

    confirm(page, "Cancel", reason="no longer wanted")
    found = status(run_id)
    assert (found.status, found.last_error) == (RunStatus.CANCELLED, "no longer wanted")

    confirm(page, "Restart")
    assert status(run_id).status is RunStatus.PENDING

    page.locator(".menu summary").click()
    confirm(page, "Delete", reason="a test")
    assert status(run_id).delete_reason == "a test"

    page.locator(".menu summary").click()
    confirm(page, "Restore")
    assert status(run_id).deleted_at is None
    browser.check()


def test_whoever_acts_stands_in_the_history(browse, served, start):
    run_id = start("mail.newsletter")
    page = browse().open(f"/runs/{run_id}")
    confirm(page, "Cancel", reason="because")
    events = served.do(pgqrs.admin(served.store).events(run_id))

    assert [(each.event_type, each.actor) for each in events][-1] == ("cancelled", "local")


def test_a_failed_run_is_reset_from_a_step(browse, served, execute, start, status):
    run_id = start("billing.order", {"order": 4, "customer": "c"}, max_attempts=1)
    execute()
    assert status(run_id).status is RunStatus.ERROR

    page = browse().open(f"/runs/{run_id}")
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Reset", exact=True).click()
    page.get_by_role("dialog").locator("select").select_option("charge")
    page.get_by_role("dialog").locator("form button").click()
    page.wait_for_selector("[role=status].done")
    steps = served.do(pgqrs.admin(served.store).steps(run_id))

    assert status(run_id).status is RunStatus.PENDING
    assert [step.step_id for step in steps] == ["reserve"]


def test_a_waiting_run_is_approved_with_a_comment(browse, served, execute, start, status):
    run_id = start("billing.refund", {"order": 77})
    execute()
    browser = browse()
    page = browser.open("/inbox")
    card = page.locator(".card", has_text=f"Run {run_id} ")
    card.get_by_placeholder("Comment").fill("looks right")
    card.get_by_role("button", name="Approve").click()
    page.wait_for_selector("[role=status].done")
    execute()
    run = served.do(pgqrs.workflow("billing.refund").get_run(run_id, served.store))

    assert run.output() == {"approved": True, "comment": "looks right"}
    browser.check()


def test_a_waiting_run_is_rejected_on_its_own_page(browse, served, execute, start):
    run_id = start("billing.refund", {"order": 78})
    execute()
    page = browse().open(f"/runs/{run_id}")
    page.get_by_role("button", name="Reject").click()
    page.wait_for_selector("[role=status].done")
    execute()
    run = served.do(pgqrs.workflow("billing.refund").get_run(run_id, served.store))

    assert run.output()["approved"] is False


def test_a_run_that_waits_for_a_person_is_given_data(browse, served, execute, start):
    run_id = start("ops.report", {"week": 1})
    execute()
    page = browse().open(f"/runs/{run_id}")
    page.locator(".answer summary").click()
    page.locator(".answer [name=data]").fill('{"right": true}')
    page.get_by_role("button", name="Send data").click()
    page.wait_for_selector("[role=status].done")
    execute()
    steps = served.do(pgqrs.admin(served.store).steps(run_id))

    assert next(step.output for step in steps if step.step_id == "pause") == {"right": True}


def test_a_signal_is_sent_and_broken_json_is_told(browse, served, execute, start):
    run_id = start("billing.refund", {"order": 79})
    execute()
    page = browse().open(f"/runs/{run_id}")
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Send a signal").click()
    dialog = page.get_by_role("dialog")
    dialog.locator("[name=name]").fill("approve")
    dialog.locator("[name=payload]").fill("{no json")
    dialog.locator("form button").click()
    page.get_by_role("alert").wait_for()
    assert "no JSON" in page.get_by_role("alert").inner_text()
    # What was given is still there.
    assert page.locator("[name=name]").input_value() == "approve"

    page.locator("[name=payload]").fill('{"approved": "by signal"}')
    page.locator("form.stack button").click()
    page.wait_for_selector("[role=status].done")
    execute()
    run = served.do(pgqrs.workflow("billing.refund").get_run(run_id, served.store))

    assert run.output() == {"approved": "by signal"}


def test_runs_that_are_ticked_are_cancelled_together(browse, start, status):
    ids = [start("mail.newsletter", attributes={"batch": "ticked"}) for _ in range(3)]
    browser = browse()
    page = browser.open("/runs?q=attr:batch=ticked")
    for run_id in ids[:2]:
        page.get_by_role("checkbox", name=f"Choose run {run_id}").check()
    page.get_by_role("button", name=re.compile("^Cancel")).click()
    dialog = page.get_by_role("dialog")
    assert "Cancel 2 runs?" in dialog.inner_text()
    dialog.locator("[name=reason]").fill("in one go")
    dialog.locator("form button").click()
    page.get_by_role("heading", name="Cancel: 2 of 2 done").wait_for()

    assert [status(run_id).status for run_id in ids] == [RunStatus.CANCELLED, RunStatus.CANCELLED, RunStatus.PENDING]
    browser.check()


def test_all_runs_of_a_filter_are_cancelled_after_a_dry_run(browse, start, status):
    ids = [start("mail.newsletter", attributes={"batch": "all"}) for _ in range(3)]
    page = browse().open("/runs?q=attr:batch=all")
    page.get_by_label("Take").select_option("all")
    page.get_by_role("button", name=re.compile("^Cancel")).click()
    dialog = page.get_by_role("dialog")
    assert "Cancel 3 runs?" in dialog.inner_text()
    assert {status(run_id).status for run_id in ids} == {RunStatus.PENDING}
    dialog.locator("form button").click()
    page.get_by_role("heading", name="Cancel: 3 of 3 done").wait_for()

    assert {status(run_id).status for run_id in ids} == {RunStatus.CANCELLED}


def test_a_group_of_failures_is_retried(browse, served, execute, start, status):
    ids = [start("ops.backup", {"broken": 7}, max_attempts=1) for _ in range(2)]
    execute()
    assert {status(run_id).status for run_id in ids} == {RunStatus.ERROR}

    page = browse().open("/failures")
    row = page.locator("tr", has_text="ops.backup").first
    row.get_by_role("button", name="Retry all").click()
    page.get_by_role("dialog").locator("form button").click()
    page.get_by_role("heading", name=re.compile("^Restart: ")).wait_for()

    assert {status(run_id).status for run_id in ids} == {RunStatus.PENDING}
    execute()


def test_a_workflow_is_paused_and_resumed(browse, served):
    page = browse().open("/workflows/mail.reminder")

    async def paused():
        return (await pgqrs.admin(served.store).queue_metrics("mail.reminder")).paused

    confirm(page, "Pause")
    assert served.do(paused()) is True
    confirm(page, "Resume")
    assert served.do(paused()) is False


def test_a_new_run_is_started_and_broken_input_is_told(browse, served, status):
    page = browse().open("/workflows/mail.newsletter")
    page.locator("[name=input]").fill("not json")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("alert").wait_for()
    assert page.locator("[name=input]").input_value() == "not json"

    page.locator("[name=input]").fill('{"issue": 99}')
    page.locator("[name=key]").fill("issue-99")
    page.get_by_role("button", name="Start").click()
    page.wait_for_selector("[role=status].done")
    run_id = int(re.search(r"/runs/(\d+)", page.url).group(1))
    run = served.do(pgqrs.workflow("mail.newsletter").get_run(run_id, served.store))

    assert (run.input, run.idempotency_key) == ({"issue": 99}, "issue-99")


def test_a_queue_is_paused_resumed_replayed_and_purged(browse, served, queue):
    admin = pgqrs.admin(served.store)

    async def die():
        consumer = await served.store.consumer(queue)
        for message in await consumer.dequeue(2, lease_seconds=1):
            del message
        # Nobody archives them, and their leases run out.
        import asyncio

        while (await admin.queue_metrics(queue)).dead < 2:
            await asyncio.sleep(0.05)

    served.do(die())
    browser = browse()
    page = browser.open(f"/queues/{queue}")
    confirm(page, "Pause")
    assert served.do(admin.queue_metrics(queue)).paused is True
    confirm(page, "Resume")
    assert served.do(admin.queue_metrics(queue)).paused is False

    confirm(page, "Replay dead letters")
    found = served.do(admin.queue_metrics(queue))
    assert (found.dead, found.ready) == (0, 2)

    confirm(page, "Purge")
    assert served.do(admin.queue_metrics(queue)).ready == 0
    browser.check()


def test_a_schedule_is_paused_resumed_and_triggered(browse, served):
    schedules = pgqrs.schedules(served.store)
    page = browse().open("/schedules/newsletter")
    confirm(page, "Pause")
    assert served.do(schedules.get("newsletter")).is_paused is True
    confirm(page, "Resume")
    assert served.do(schedules.get("newsletter")).is_paused is False

    async def newest():
        return (await pgqrs.admin(served.store).runs(workflow="mail.newsletter", limit=1))[0].run_id

    before = served.do(newest())
    confirm(page, "Trigger now")
    assert served.do(newest()) > before


def test_what_a_silent_worker_holds_is_released(browse, served):
    admin = pgqrs.admin(served.store)
    [resizer] = [each for each in served.do(admin.workers()) if each.name == "resizer"]
    assert resizer.leased == 1

    async def silence():
        from pgqrs.db.database import Kind
        from pgqrs.db.queries import Query

        text = "update pgqrs_workers set heartbeat_at = heartbeat_at - 3600000000 where worker_id = :worker_id"

        async def work(unit):
            await unit.execute(Query("silence", text), worker_id=resizer.worker_id)

        await served.store.database.perform(work, kind=Kind.UNIT, idempotent=True)

    served.do(silence())
    page = browse().open("/workers")
    row = page.locator("tr", has_text="resizer")
    row.get_by_role("button", name="Release").click()
    page.get_by_role("dialog").locator("form button").click()
    page.wait_for_selector("[role=status].done")
    [resizer] = [each for each in served.do(admin.workers()) if each.name == "resizer"]

    assert resizer.leased == 0
