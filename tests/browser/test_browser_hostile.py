"""Sixty hostile texts in every column that holds text, in a real browser: nothing of them runs."""

from __future__ import annotations

from urllib.parse import quote

import pytest

import pgqrs
from browser.conftest import Served
from rig.hostile import CORPUS, plant

PAGES = (
    "/",
    "/runs?q=deleted:any",
    "/inbox",
    "/failures",
    "/workflows",
    "/queues",
    "/workers",
    "/schedules",
    "/outbox",
    "/system",
    *(f"/runs/{number}?step={quote(text, safe='')}" for number, text in enumerate(CORPUS, 1) if number % 6 == 1),
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    config = pgqrs.Config(f"sqlite:///{tmp_path_factory.mktemp('hostile') / 'app.db'}")
    with Served(config, read_only=False) as served:
        served.do(plant(served.store))
        yield served


def test_no_hostile_text_runs(browse, planted):
    """One context, and a watch for the function that each of them would call."""
    browser = browse(planted.url)
    ran = []
    browser.page.expose_function("pwned", lambda: ran.append(browser.page.url))
    for path in PAGES:
        page = browser.open(path)
        page.wait_for_selector("html[data-ready]")
        # What waits for the reader's pointer or focus gets it.
        page.evaluate(
            "document.querySelectorAll('main *').forEach((each) => {"
            " for (const kind of ['mouseover', 'focus', 'click']) if (kind !== 'click' || !each.closest('a, button, input'))"
            " each.dispatchEvent(new Event(kind)); })"
        )
        assert page.locator("main script, main iframe, main object, main embed, main style, main img").count() == 0
        assert page.evaluate("[...document.links].every((each) => each.origin === location.origin)")

    assert ran == []
    browser.check()
