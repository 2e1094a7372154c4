"""Every page in a real browser: nothing goes wrong on it, nothing comes from elsewhere, and everybody can use it."""

from __future__ import annotations

from importlib import resources

import pytest

import pgqrs
from browser.conftest import Served
from pgqrs.web.auth.start_token import StartToken

PAGES = {
    "overview": "/",
    "runs": "/runs",
    "runs-failed": "/runs?q=status:error",
    "bulk": "/runs/bulk?which=all&verb=cancel&q=status:paused",
    "run-success": "{success}",
    "run-failed": "{failed}?step=charge",
    "run-waiting": "{waiting}",
    "confirm": "{waiting}/confirm/cancel",
    "inbox": "/inbox",
    "failures": "/failures",
    "workflows": "/workflows",
    "workflow": "/workflows/billing.order",
    "queues": "/queues",
    "queue": "/queues/thumbnails",
    "workers": "/workers",
    "schedules": "/schedules",
    "schedule": "/schedules/backup",
    "outbox": "/outbox",
    "system": "/system",
    "login": "/login",
    "problem": "/runs/999999",
}


@pytest.fixture(scope="module")
def places(served):
    """The addresses of pages, with runs of each kind."""

    async def found():
        admin = pgqrs.admin(served.store)
        wanted = {
            "success": "status:success workflow:billing.order",
            "failed": "status:error workflow:billing.order",
            "waiting": "status:paused workflow:billing.refund",
        }
        return {name: f"/runs/{(await admin.runs(query, limit=1))[0].run_id}" for name, query in wanted.items()}

    known = served.do(found())
    return {name: path.format(**known) for name, path in PAGES.items()}


@pytest.fixture(scope="module")
def axe():
    return resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def serious(page):
    """What keeps somebody from using the page, as axe sees it."""
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (each["id"], each["impact"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


@pytest.fixture(scope="module")
def door(filled):
    """A server that asks for a token: the others know everyone by the application around them."""
    with Served(filled, tokens=StartToken()) as served:
        yield served


@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_with_nothing_wrong_and_everybody_can_use_it(browse, places, axe, door, name):
    """In light and in dark, and on a phone."""
    # Without transitions: half way between two themes nothing has the contrast of either.
    browser = browse(door.url if name == "login" else None, color_scheme="light", reduced_motion="reduce")
    page = browser.open(places[name])
    page.wait_for_selector("html[data-ready]")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    # Evaluated by the browser's debugger: the page's policy does not allow it, and need not.
    page.evaluate(axe)
    found = {"light": serious(page)}
    page.emulate_media(color_scheme="dark")
    found["dark"] = serious(page)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.set_viewport_size({"width": 360, "height": 740})

    assert found == {"light": [], "dark": []}
    assert light != dark
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.title().endswith("pgqrs")
    if name != "problem":
        browser.check()


def test_the_first_visit_is_small(browse):
    browser = browse()
    sizes = {}

    def finished(request):
        told = request.sizes()
        sizes[request.url] = told["responseBodySize"] + told["responseHeadersSize"]

    browser.page.on("requestfinished", finished)
    browser.open("/")
    browser.page.wait_for_load_state("load")
    browser.page.wait_for_selector("html[data-ready]")
    total = sum(sizes.values())
    print(f"first visit: {total:,} bytes in {len(sizes)} answers: {sizes}")

    assert len(sizes) >= 3
    assert total < 40_000
