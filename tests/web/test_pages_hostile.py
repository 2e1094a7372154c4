"""Sixty hostile texts in every column that holds text: on every page they are text, and nothing else."""

from urllib.parse import quote

import pytest

from rig import http
from rig.asgi import Browser
from rig.hostile import CORPUS, plant

# What is drawn does not depend on the database. Rows that were written past the library break all that can be broken.
pytestmark = [
    pytest.mark.backends("sqlite"),
    pytest.mark.breaks(
        "I1",
        "I2",
        "I3",
        "I4",
        "I5",
        "I6",
        "I7",
        "I8",
        "I9",
        "I10",
        "I11",
        "I12",
        "I13",
        "I14",
        "I15",
        "I16",
        "I17",
        "I18",
    ),
]

TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "link",
    "script",
    "body",
    "a",
    "header",
    "svg",
    "path",
    "circle",
    "rect",
    "text",
    "line",
    "polyline",
    "g",
    "form",
    "input",
    "button",
    "nav",
    "ul",
    "li",
    "main",
    "p",
    "bdi",
    "div",
    "h1",
    "h2",
    "h3",
    "h4",
    "section",
    "span",
    "strong",
    "i",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "time",
    "dl",
    "dt",
    "dd",
    "code",
    "details",
    "summary",
    "label",
    "select",
    "option",
    "textarea",
    "pre",
    "aside",
    "ol",
    "progress",
}


@pytest.fixture
async def browser(store):
    await plant(store)
    return Browser(http.opened(store))


def check(document):
    """No element, no attribute and no address that is not ours."""
    assert document.tags <= TAGS
    assert [
        name for _, given in document.elements for name in given if name.startswith("on") or name == "style"
    ] == []
    scripts = [given for tag, given in document.elements if tag == "script"]
    assert len(scripts) == 1
    assert scripts[0]["src"].startswith("/static/app.js")
    addresses = [
        value for _, given in document.elements for name, value in given.items() if name in ("href", "src", "action")
    ]
    assert [each for each in addresses if not each.startswith(("/", "#")) or each.startswith("//")] == []


# Which texts each page shows: those whose rows are on its first page.
@pytest.mark.parametrize(
    ("path", "least"),
    [
        ("/", 3),
        ("/runs?q=deleted:any", 50),
        ("/inbox", 9),
        ("/failures", 10),
        ("/workflows", 60),
        ("/queues", 60),
        ("/workers", 60),
        ("/schedules", 60),
        ("/outbox", 60),
        ("/system", 60),
        ("/runs/bulk?verb=delete&which=all&q=", 0),
    ],
)
async def test_lists_hold_them_as_text(browser, path, least):
    answered = await browser.get(path)
    document = answered.document
    shown = [text for text in CORPUS if " ".join(text.split()) in " ".join(document.values.split())]

    assert answered.status == 200
    check(document)
    assert len(shown) >= least, set(CORPUS) - set(shown)


async def test_a_run_holds_them_as_text(browser):
    for number, text in enumerate(CORPUS, 1):
        step = quote(f"wait_for:{text}" if number % 2 == 0 else text, safe="")
        for path in (f"/runs/{number}?step={step}", f"/runs/{number}/confirm/reset"):
            answered = await browser.get(path)

            assert answered.status == 200, path
            check(answered.document)
            assert " ".join(text.split()) in " ".join(answered.document.values.split()), path


async def test_a_name_in_an_address_comes_back_as_text(browser):
    """The library refuses such names: what is told about that is text, too."""
    for text in CORPUS:
        for noun in ("workflows", "queues", "schedules"):
            answered = await browser.get(f"/{noun}/{quote(text, safe='')}")

            assert answered.status in (200, 307, 404, 422), text
            if answered.headers["content-type"].startswith("text/html"):
                check(answered.document)


async def test_what_is_asked_for_comes_back_as_text(browser, store, token_file):
    stranger = Browser(http.opened(store, tokens=token_file))
    for text in CORPUS:
        asked = quote(text, safe="")
        for path in (
            f"/runs?q={asked}",
            f"/failures?since={asked}",
            f"/login?back={asked}",
            f"/runs/1/confirm/pause?back={asked}",
            f"/runs?cursor={asked}",
        ):
            answered = await (stranger if path.startswith("/login") else browser).get(path)

            assert answered.status in (200, 303, 422), path
            if answered.status != 303:
                check(answered.document)


async def test_forms_come_back_as_text(browser):
    asked = await browser.get("/runs/2/confirm/signal")
    for text in CORPUS:
        [form] = [each for each in asked.document.forms if each.action.endswith("/signal")]
        answered = await browser.post(form.action, {**form.fields, "name": text, "payload": text})

        check(answered.document)
        assert answered.status in (422, 409)
