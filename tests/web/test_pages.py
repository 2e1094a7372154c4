"""Pages without a browser: what they say, what they offer, and what their forms do; on every backend."""

import pytest

import pgqrs
from pgqrs.api.operations.run_actions import allowed_actions
from pgqrs.db.runs import claims
from pgqrs.db.tables import workers, workflows
from pgqrs.db.tables.messages import Source
from pgqrs.types import RunStatus
from pgqrs.web import pages
from pgqrs.web.auth.access import Caller, Scope
from rig import http
from rig.asgi import Browser
from rig.failures import Failures, failed_family

flow = pgqrs.workflow("flow")


@pytest.fixture
def browser(store):
    return Browser(http.opened(store))


@pytest.fixture
async def furnished(store):
    """Something under each of the names that stand in the addresses of pages."""
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *")
    run_id = await flow.trigger({"n": 1}, attributes={"customer": "c1"}).execute(store)
    worker = await pgqrs.consumer("w1", 0, "flow").handler(_waits).create(store)
    yield {"run_id": run_id, "worker_id": worker.worker_id}
    await worker.close()


async def _waits(ctx, params):
    await ctx.step("first", lambda: {"big": "x" * 10_000})
    return await ctx.wait_for("approve")


@pytest.fixture
def execute(store):
    async def work(handler=_waits):
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()

    return work


def _addresses(furnished):
    """Every page that there is, from the table of routes."""
    known = {"name": "nightly", **furnished}
    for endpoint in pages.ENDPOINTS:
        if endpoint.method == "GET":
            path = endpoint.path.replace(":int", "")
            names = {"/queues": "tasks", "/workflows": "flow"}
            own = next((name for start, name in names.items() if path.startswith(start)), "nightly")
            yield path.format(**{**known, "name": own})


def _query(path):
    return {"/runs/bulk": "?verb=cancel&which=all&q=status:error", "/runs/1/download": "?what=run"}.get(path, "")


async def test_every_page_is_there(browser, furnished):
    for path in _addresses(furnished):
        answered = await browser.get(path + _query(path))

        # It is mounted: users log in to the application around it.
        assert (path, answered.status) == (path, 403 if path == "/login" else 200)


async def test_pages_of_an_empty_database(browser):
    for path in ("/", "/runs", "/inbox", "/failures", "/workflows", "/queues", "/workers", "/schedules", "/outbox"):
        answered = await browser.get(path)

        assert answered.status == 200
        assert "main" in answered.document.tags
    assert "Nothing is here yet." in (await browser.get("/")).text


async def test_a_page_needs_nothing_inline_and_nothing_from_elsewhere(browser, furnished):
    """What the content security policy would refuse is not there in the first place."""
    for path in _addresses(furnished):
        if not path.endswith("/download"):
            document = (await browser.get(path + _query(path))).document

            assert [given for tag, given in document.elements if tag == "script"] == [
                {"src": given["src"]} for tag, given in document.elements if tag == "script"
            ]
            assert "style" not in document.tags
            assert not document.attributes("style")
            addresses = document.attributes("src") + document.attributes("href") + document.attributes("action")
            assert [each for each in addresses if not each.startswith(("/", "#"))] == []


@pytest.mark.parametrize("status", RunStatus)
async def test_the_buttons_of_a_run_are_what_may_be_done(browser, store, furnished, execute, status):
    run_id = await _in_status(store, execute, furnished["run_id"], status)
    document = (await browser.get(f"/runs/{run_id}")).document
    offered = {href.rpartition("/")[2] for href in document.attributes("href") if f"/runs/{run_id}/confirm/" in href}

    assert offered == set(allowed_actions(status))


async def _in_status(store, execute, run_id, status):
    async def ends(ctx, params):
        if status is RunStatus.ERROR:
            raise pgqrs.PermanentError("no")

    if status is RunStatus.PAUSED:
        await execute()
    elif status is RunStatus.CANCELLED:
        await flow.cancel(run_id, store)
    elif status in (RunStatus.SUCCESS, RunStatus.ERROR):
        await execute(ends)
    elif status is RunStatus.RUNNING:
        queue_id = (await workflows.get(store.database, "flow")).queue_id
        worker_id = await workers.register(store.database, queue_id=queue_id, name="x", port=0, info={"pid": 1})
        await claims.claim(store.database, [Source(queue_id, 30)], worker_id=worker_id, batch=1)
    return run_id


async def test_cancelling_asks_first_and_tells_who_did_it(browser, store, furnished):
    run_id = furnished["run_id"]
    asked = await browser.get(f"/runs/{run_id}/confirm/cancel")
    assert f"Cancel run {run_id} of flow?" in asked.text
    assert (await flow.get_run(run_id, store)).status is RunStatus.PENDING

    done = await browser.submit(asked, f"/runs/{run_id}/cancel", reason="enough")
    run = await flow.get_run(run_id, store)
    events = await pgqrs.admin(store).events(run_id)

    assert "The run was cancelled." in done.text
    assert (run.status, run.last_error) == (RunStatus.CANCELLED, "enough")
    assert events[-1].actor == "local"


@pytest.mark.breaks("I4")
async def test_failed_children_are_retried_from_the_page_of_their_parent(browser, store):
    parent, children = await failed_family(await Failures(store).begin(), 2)
    page = await browser.get(f"/runs/{parent}")
    assert "Retry failed children" in page.text
    asked = await browser.get(f"/runs/{parent}/confirm/retry-children")
    assert f"Retry the failed children of run {parent} of flow?" in asked.text
    assert f"Failed or cancelled children: {children[0]}, {children[1]}." in asked.text

    done = await browser.submit(asked, f"/runs/{parent}/retry-children")

    assert "The failed children were restarted; the run waits for them." in done.text
    assert {(await flow.get_run(each, store)).status for each in (parent, *children)} == {RunStatus.PENDING}
    assert "Retry failed children" not in (await browser.get(f"/runs/{parent}")).text


async def test_an_answer_reaches_the_run(browser, store, furnished, execute):
    run_id = furnished["run_id"]
    await execute()
    inbox = await browser.get("/inbox")
    await browser.submit(inbox, f"/runs/{run_id}/answer", decision="approve", comment="fine")
    await execute()
    run = await flow.get_run(run_id, store)

    assert run.output() == {"approved": True, "comment": "fine"}


async def test_an_answer_that_comes_too_late_does_nothing(browser, store, furnished, execute):
    run_id = furnished["run_id"]
    await execute()
    inbox = await browser.get("/inbox")
    await flow.cancel(run_id, store)
    await flow.restart(run_id, store)
    await flow.reset(run_id, store)
    late = await browser.submit(inbox, f"/runs/{run_id}/answer", decision="approve")

    assert late.status == 409


async def test_nothing_changes_where_pages_only_show(store, furnished):
    browser = Browser(http.opened(store, read_only=True))
    page = await browser.get(f"/runs/{furnished['run_id']}")

    assert page.status == 200
    assert not [href for href in page.document.attributes("href") if "/confirm/" in href]
    for endpoint in pages.ENDPOINTS:
        if endpoint.changes and endpoint.scope is not None:
            path = endpoint.path.replace(":int", "").format(name="flow", **furnished)
            assert (await browser.post(path, {})).status == 403


async def test_a_form_of_somebody_else_does_nothing(browser, store, furnished):
    run_id = furnished["run_id"]
    for endpoint in pages.ENDPOINTS:
        if endpoint.changes:
            path = endpoint.path.replace(":int", "").format(name="flow", **furnished)
            assert (await browser.post(path, {"form_token": "guessed"})).status == 403
    token = (await browser.get(f"/runs/{run_id}/confirm/cancel")).document.forms[-1].fields["form_token"]
    foreign = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    assert (await browser.post(f"/runs/{run_id}/cancel", {"form_token": token}, **foreign)).status == 403
    assert (await flow.get_run(run_id, store)).status is RunStatus.PENDING


async def test_whoever_may_only_read_sees_no_buttons(store, furnished):
    async def reader(request):
        return Caller("reader", frozenset({Scope.READ}))

    browser = Browser(http.opened(store, authorize=reader))
    page = await browser.get(f"/runs/{furnished['run_id']}")

    assert page.status == 200
    assert not [href for href in page.document.attributes("href") if "/confirm/" in href]
    assert (await browser.get(f"/runs/{furnished['run_id']}/confirm/cancel")).text.count("<button class=") == 0


async def test_a_filter_that_cannot_be_read_is_told_beside_it(browser, furnished):
    answered = await browser.get("/runs?q=stauts:error")

    assert answered.status == 200
    assert "did you mean status:?" in answered.document.text
    assert (await browser.get("/runs?q=workflow:flwo")).document.text.count("did you mean 'flow'") == 1


async def test_a_number_leads_to_its_run(browser, furnished):
    answered = await browser.get("/runs?q=%231")

    assert (answered.status, answered.headers["location"]) == (303, "/runs/1")


async def test_pages_of_runs_lead_on_without_repeating_any(browser, store):
    await store.create_workflow("flow")
    ids = await flow.trigger_many([None] * 120).execute(store)
    seen: list[int] = []
    address = "/runs"
    while address:
        document = (await browser.get(address)).document
        seen += [int(name) for name in document.links if name.isdecimal()]
        address = document.links.get("Older", "")

    assert seen == sorted(ids, reverse=True)


async def test_a_large_value_is_cut_and_can_be_downloaded_whole(browser, store, furnished, execute):
    run_id = furnished["run_id"]
    await execute()
    page = await browser.get(f"/runs/{run_id}?step=first")
    [link] = [each for each in page.document.attributes("href") if "what=output&step=first" in each]
    file = await browser.get(link)

    assert (
        "the first 4\N{NARROW NO-BREAK SPACE}000 of 10\N{NARROW NO-BREAK SPACE}010 characters" in page.document.text
    )
    assert file.headers["content-type"] == "application/octet-stream"
    assert file.headers["content-disposition"] == f'attachment; filename="run-{run_id}-step-output.json"'
    assert len(file.content) == 10_010


async def test_a_new_run_gets_its_input(browser, store, furnished):
    page = await browser.get("/workflows/flow")
    started = await browser.submit(page, "/workflows/flow/trigger", input='{"n": [1, 2.5, null]}', key="k1")
    [run] = await pgqrs.admin(store).runs("key:k1")

    assert "The run was started." in started.text
    assert (await flow.get_run(run.run_id, store)).input == {"n": [1, 2.5, None]}
    assert (await pgqrs.admin(store).events(run.run_id))[0].actor == "local"


@pytest.mark.parametrize(
    "back", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:x", "x\r\nset-cookie: a=b"]
)
async def test_a_form_leads_back_to_pages_of_ours_only(browser, furnished, back):
    run_id = furnished["run_id"]
    asked = await browser.get(f"/runs/{run_id}/confirm/pause")
    [form] = [each for each in asked.document.forms if each.action.endswith("/pause")]
    answered = await browser.post(form.action, {**form.fields, "back": back})

    assert answered.headers["location"] == f"/runs/{run_id}?done=run.pause"


async def test_pages_work_under_a_prefix(store, furnished):
    browser = Browser(http.opened(store), root="/pgqrs")
    run_id = furnished["run_id"]
    page = await browser.get(f"/pgqrs/runs/{run_id}")
    links = page.document.attributes("href") + page.document.attributes("src") + page.document.attributes("action")
    done = await browser.submit(await browser.get(f"/pgqrs/runs/{run_id}/confirm/cancel"), "/cancel")

    assert page.status == 200
    assert [each for each in links if not each.startswith(("/pgqrs/", "#"))] == []
    assert "The run was cancelled." in done.text


async def test_problems_are_pages(browser, furnished):
    for path, status in {
        "/runs/999999": 404,
        f"/runs/{2**70}": 404,
        "/workflows/nobody": 404,
        "/queues/nobody": 404,
        "/schedules/nobody": 404,
        "/runs?cursor=nonsense": 200,
        "/failures?since=yesterday": 422,
        "/runs/1?steps_after=x": 422,
        "/runs/1?events_after=x": 422,
        "/runs/bulk?verb=explode&which=all": 422,
        "/runs/bulk?verb=cancel": 422,
        "/runs?q=a&q=b": 422,
    }.items():
        answered = await browser.get(path)

        assert (path, answered.status, answered.headers["content-type"]) == (path, status, "text/html; charset=utf-8")


async def test_the_doctor_is_asked_only_when_somebody_asks(browser, furnished):
    plain = await browser.get("/system")
    examined = await browser.get(plain.document.links["Examine"])

    assert "What the doctor finds" not in plain.text
    assert "the tables are whole" in examined.document.text


async def test_an_address_that_is_none_is_told_to_browsers_on_a_page(browser):
    page = await browser.get("/nowhere", accept="text/html,*/*")
    program = await browser.get("/nowhere", accept="*/*")

    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert (program.status, program.headers["content-type"]) == (404, "application/problem+json")


async def test_secrets_are_not_among_the_settings():
    from pgqrs.web.pages.system import settings_of

    config = pgqrs.Config("postgresql://ann:S3cr3t@db/app", listen_dsn="postgresql://ann:S3cr3t@db/app")

    assert "S3cr3t" not in str(settings_of(config))
