"""What adds work counts against the caller's rate, whichever route it takes: a page has the limits of its API."""

import re

import pytest

import pgqrs
from pgqrs.web import RateLimit, Scope
from pgqrs.web.application import endpoints
from rig import http
from rig.http import ON_PURPOSE, filled, named

pytestmark = pytest.mark.backends("sqlite")

FORM = {"content-type": "application/x-www-form-urlencoded"}
flow = pgqrs.workflow("flow")
# Forms whose route in the API has another address; all others differ in the prefix only.
TWINS = {
    "/workflows/{}/trigger": "/runs",
    "/runs/{}/signal": "/runs/{}/signals/{}",
    "/runs/bulk": "/bulk",
}


def _address(path):
    return re.sub(r"\{[^}]*\}", "{}", path.removeprefix(http.API))


def forms():
    return [each for each in endpoints() if each.page and each.changes and each.scope is not None]


def twin_of(form):
    wanted = TWINS.get(_address(form.path), _address(form.path))
    [found] = [each for each in http.api_routes() if each.method == form.method and _address(each.path) == wanted]
    return found


@pytest.fixture
async def furnished(store):
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    await pgqrs.schedules(store).create("nightly", "flow", cron="30 2 * * *")
    return {"run_id": await flow.trigger(None).execute(store)}


@pytest.mark.parametrize("form", forms(), ids=named)
def test_a_form_has_the_scope_and_the_limits_of_its_api(form):
    twin = twin_of(form)

    assert (form.scope, form.limited) == (twin.scope, twin.limited)


def test_what_needs_trigger_or_signal_adds_work_and_is_limited():
    limited = {_address(each.path) for each in endpoints() if each.limited}

    assert limited == {_address(each.path) for each in endpoints() if each.scope in (Scope.TRIGGER, Scope.SIGNAL)}
    assert {"/runs", "/schedules/{}/trigger", "/workflows/{}/trigger", "/runs/{}/signal"} <= limited


@pytest.mark.parametrize("form", [each for each in forms() if each.scope in (Scope.TRIGGER, Scope.SIGNAL)], ids=named)
async def test_a_form_and_its_api_take_from_one_rate(store, furnished, form):
    """The finding: the form that triggers a schedule was taken as often as it was sent."""
    name, twin = "nightly" if "schedules" in form.path else "flow", twin_of(form)
    asked = [
        (filled(form, name=name, **furnished), {"content": b"name=go", "headers": ON_PURPOSE | FORM}),
        (filled(twin, **furnished), {"json": {"workflow": "flow"}} if twin.path.endswith("/runs") else {}),
    ]
    for order in asked, asked[::-1]:
        async with http.client(store, rate=RateLimit(0.001, burst=2)) as client:
            answers = [await client.post(path, **given) for path, given in (*order, order[0])]
            again = await client.post(order[1][0], **order[1][1])

            assert [each.status_code // 100 for each in answers[:2]] in ([2, 3], [3, 2]), answers[0].text
            assert (answers[2].status_code, again.status_code) == (429, 429)
            assert int(again.headers["retry-after"]) >= 1
