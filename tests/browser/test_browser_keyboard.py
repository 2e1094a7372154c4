"""With the keyboard alone, without JavaScript, and while things happen."""

from __future__ import annotations

import time

import pytest

import pgqrs
from browser.conftest import Served
from pgqrs.types import RunStatus


@pytest.fixture
def failed(served):
    """A run that has failed, found by its attribute."""

    async def made():
        from browser.filling import FLOWS

        run_id = await (
            pgqrs.workflow("ops.backup")
            .trigger({"broken": 1}, max_attempts=1, attributes={"case": f"k{time.monotonic_ns()}"})
            .execute(served.store)
        )
        worker = await pgqrs.worker("tester").workflows(FLOWS).create(served.store)
        await worker.run_until_idle()
        await worker.close()
        return run_id

    return served.do(made())


def status_of(served, run_id):
    return served.do(pgqrs.workflow("ops.backup").get_run(run_id, served.store)).status


def test_a_failed_run_is_found_and_restarted_with_the_keyboard_alone(browse, served, failed):
    assert status_of(served, failed) is RunStatus.ERROR
    browser = browse()
    page = browser.open("/")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("/")
    page.keyboard.type("status:error workflow:ops.backup")
    page.keyboard.press("Enter")
    page.wait_for_url("**/runs?q=status*")
    page.wait_for_selector("html[data-ready]")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == str(failed)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/runs/{failed}")
    page.wait_for_selector("html[data-ready]")
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent.trim()") == "Restart":
            break
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    # The button that confirms has the focus.
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=status].done")

    assert status_of(served, failed) is RunStatus.PENDING
    browser.check()


def test_keys_go_to_pages_and_tell_themselves(browse):
    page = browse().open("/")
    page.wait_for_selector("html[data-ready]")
    for key, path in {
        "r": "/runs",
        "i": "/inbox",
        "f": "/failures",
        "w": "/workflows",
        "q": "/queues",
        "o": "/",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**{path}")
        page.wait_for_selector("html[data-ready]")
    page.keyboard.press("?")
    assert "find runs" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


def test_a_dialog_gives_the_focus_back_and_does_nothing_when_dismissed(browse, served, failed):
    page = browse().open(f"/runs/{failed}")
    page.wait_for_selector("html[data-ready]")
    button = page.get_by_role("button", name="Restart", exact=True)
    button.click()
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")

    assert page.get_by_role("dialog").count() == 0
    assert page.evaluate("document.activeElement.textContent.trim()") == "Restart"
    assert status_of(served, failed) is RunStatus.ERROR


def test_the_theme_is_kept(browse):
    page = browse(color_scheme="light").open("/")
    page.wait_for_selector("html[data-ready]")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()

    assert dark != light
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark


def test_the_same_work_is_done_with_javascript_off(browse, served, failed):
    browser = browse(java_script_enabled=False)
    page = browser.open("/")
    page.get_by_role("searchbox").fill("status:error workflow:ops.backup")
    page.get_by_role("searchbox").press("Enter")
    page.get_by_role("link", name=str(failed), exact=True).click()
    page.get_by_role("button", name="Restart", exact=True).click()
    page.get_by_role("heading", name=f"Restart run {failed} of ops.backup?").wait_for()
    page.locator("form.stack button").click()
    page.wait_for_selector("[role=status].done")

    assert status_of(served, failed) is RunStatus.PENDING
    browser.check()


def test_runs_are_cancelled_together_with_javascript_off(browse, served):
    async def started():
        flow = pgqrs.workflow("mail.newsletter")
        return [await flow.trigger(attributes={"off": "js"}).execute(served.store) for _ in range(2)]

    ids = served.do(started())
    page = browse(java_script_enabled=False).open("/runs?q=attr:off=js")
    for run_id in ids:
        page.get_by_role("checkbox", name=f"Choose run {run_id}").check()
    page.locator("button[value=cancel]").click()
    page.locator("form.stack button").click()
    page.get_by_role("heading", name="Cancel: 2 of 2 done").wait_for()


def test_what_happens_is_on_screen_without_a_reload(browse, served):
    async def started():
        return await pgqrs.workflow("mail.newsletter").trigger(None).execute(served.store)

    run_id = served.do(started())
    page = browse().open(f"/runs/{run_id}")
    page.wait_for_selector("html[data-ready]")
    page.wait_for_selector("html[data-stream=open]", state="attached")
    page.evaluate("window.stillHere = true")
    began = time.perf_counter()
    served.do(pgqrs.workflow("mail.newsletter").cancel(run_id, served.store, reason="seen at once"))
    page.locator("h1 .status", has_text="Cancelled").wait_for()
    # Printed, not checked: pages follow the more seldom, the longer the server takes to make them.
    print(f"a change was on screen after {(time.perf_counter() - began) * 1000:.0f} ms")

    assert page.evaluate("window.stillHere")
    assert page.locator("html").get_attribute("data-stream") == "open"


def test_a_page_that_follows_keeps_what_its_reader_does(browse, served):
    """Focus, half of a form, what was opened and a selection, while the rest of the page changes."""

    async def started():
        from browser.filling import FLOWS

        run_id = await pgqrs.workflow("billing.refund").trigger({"order": 5}).execute(served.store)
        worker = await pgqrs.worker("tester").workflows(FLOWS).create(served.store)
        await worker.run_until_idle()
        await worker.close()
        return run_id

    run_id = served.do(started())
    page = browse().open("/inbox")
    page.wait_for_selector("html[data-ready]")
    card = page.locator(".card", has_text=f"Run {run_id} ")
    card.locator("summary").click()
    card.get_by_placeholder("Comment").fill("half a sent")
    card.get_by_placeholder("Comment").focus()
    other = served.do(started())
    page.locator(".card", has_text=f"Run {other} ").wait_for()

    assert card.get_by_placeholder("Comment").input_value() == "half a sent"
    assert page.evaluate("document.activeElement.name") == "comment"
    assert card.locator("details").get_attribute("open") is not None


def test_a_server_that_only_shows_has_no_buttons(browse, filled):
    with Served(filled, read_only=True) as served:
        page = browse(served.url).open("/runs?q=status:error")
        page.locator("[data-open]").first.click()
        page.get_by_role("heading", level=1).wait_for()

        assert "read only" in page.locator("header").inner_text()
        assert page.locator("main [data-dialog], main form button, main input[type=checkbox]").count() == 0


def test_logging_in_with_a_token_and_out_again(browse, filled, tmp_path):
    from pgqrs.web.auth import tokens
    from pgqrs.web.auth.access import Scope

    token = tokens.create(tmp_path / "tokens", "ann", [Scope.OPERATE])
    with Served(filled, tokens=tmp_path / "tokens") as served:
        browser = browse(served.url)
        page = browser.open("/runs?q=status:error")
        page.get_by_label("Token").fill("pgqrs_wrong")
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("alert").wait_for()
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/runs?q=status*")
        cookies = {each["name"]: each for each in page.context.cookies()}
        page.get_by_role("button", name="log out").click()
        page.get_by_label("Token").wait_for()

        assert {(each["httpOnly"], each["sameSite"]) for each in cookies.values()} == {(True, "Strict")}
        assert set(cookies) == {"pgqrs_session", "pgqrs_forms"}
        assert [each["name"] for each in page.context.cookies()] == ["pgqrs_forms"]
        page.goto(served.url + "/runs")
        assert "/login" in page.url
        # A copy of the cookie is worth nothing any more.
        page.context.add_cookies([cookies["pgqrs_session"]])
        page.goto(served.url + "/runs")
        assert "/login" in page.url


def test_the_printed_address_opens_the_dashboard(browse, filled, tmp_path):
    from pgqrs.web.auth.start_token import StartToken

    start = StartToken()
    with Served(filled, tokens=start, read_only=False) as served:
        page = browse(served.url).open(f"/runs?q=status:error&token={start.token}")

        assert page.url == f"{served.url}/runs?q=status%3Aerror"
        page.locator("[data-open]").first.click()
        page.get_by_role("heading", level=1).wait_for()

        # As the demo opens it: from a file, whose link a browser takes for another site's.
        link = tmp_path / "dashboard.html"
        there = f"{served.url}/?token={start.token}"
        link.write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={there}">')
        other = browse(served.url).page
        other.goto(link.as_uri())
        other.wait_for_url(f"{served.url}/")
        other.get_by_role("heading", level=1).wait_for()
        assert "/login" not in other.url
