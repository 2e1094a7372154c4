"""Arguments over HTTP and in the form of the dashboard: bound and checked as everywhere."""

from dataclasses import dataclass

import pytest

import pgqrs
from rig import http
from rig.asgi import Browser

RUNS = "/api/v1/runs"


@dataclass
class Parcel:
    sku: str
    count: int = 1


@pytest.fixture
async def got(store):
    """What the handlers got, once `work` has been called."""
    return []


@pytest.fixture
async def work(store, got):
    async def order(ctx, amount: int, currency: str = "EUR"):
        got.append((amount, currency))

    async def single(ctx, amount: int):
        got.append(amount)

    async def parcel(ctx, parcel: Parcel):
        got.append(parcel)

    worker = pgqrs.worker("w", prefixes=["t."]).workflows({"t.order": order, "t.single": single, "t.parcel": parcel})
    worker = await worker.create(store)
    yield worker.run_until_idle
    await worker.close()


async def test_arguments_over_http_are_bound_as_everywhere(store, work, got):
    async with http.client(store) as client:
        for name, params in [
            ("t.order", {"amount": 5}),
            ("t.order", {"amount": 5, "currency": "USD"}),
            ("t.order", 5),
            ("t.single", 7),
            ("t.single", {"amount": 7}),
            ("t.parcel", {"sku": "A1"}),
        ]:
            answer = await client.post(RUNS, json={"workflow": name, "params": params})
            assert answer.status_code == 201, answer.text
        shown = await client.get(f"{RUNS}/{answer.json()['run_id']}")
    await work()

    assert sorted(map(str, got)) == sorted(map(str, [(5, "EUR"), (5, "USD"), (5, "EUR"), 7, 7, Parcel("A1")]))
    assert shown.json()["input"] == {"sku": "A1"}


@pytest.mark.parametrize(
    ("name", "params", "detail"),
    [
        ("t.order", {"amount": "lots"}, "workflow 't.order': 'amount' must be an int, got 'lots'"),
        ("t.order", {"amuont": 5}, "no parameter 'amuont'; it takes amount, currency; did you mean 'amount'?"),
        ("t.order", {"currency": "EUR"}, "'amount' is missing"),
        ("t.single", "lots", "'amount' must be an int, got 'lots'"),
        ("t.parcel", {"count": 2}, "'parcel' must be a Parcel with 'sku', got {'count': 2}"),
        ("t.parcel", {"sku": 3}, "'parcel' $.sku: must be a str, got 3"),
    ],
)
async def test_what_does_not_fit_is_a_problem_that_names_it(store, work, name, params, detail):
    async with http.client(store) as client:
        run = await client.post(RUNS, json={"workflow": name, "params": params})
        schedule = await client.post(
            "/api/v1/schedules", json={"name": "daily", "workflow": name, "cron": "@daily", "params": params}
        )

    for answer in (run, schedule):
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-arguments")
        assert detail in f"{answer.json()['detail']}; {answer.json().get('hint')}"
    assert await pgqrs.admin(store).runs() == []


async def test_the_form_binds_and_checks_as_everywhere(store, work, got):
    browser = Browser(http.opened(store))
    for name, given in [
        ("t.order", {"field.amount": "5"}),
        ("t.order", {"field.amount": "5", "field.currency": "USD"}),
        ("t.single", {"field.amount": "7"}),
        ("t.parcel", {"field.sku": "A1", "field.count": "2"}),
    ]:
        page = await browser.get(f"/workflows/{name}")
        started = await browser.submit(page, f"/workflows/{name}/trigger", **given)
        assert "The run was started." in started.text
    await work()

    assert sorted(map(str, got)) == sorted(map(str, [(5, "EUR"), (5, "USD"), 7, Parcel("A1", 2)]))


async def test_a_form_whose_json_does_not_fit_is_shown_again(store):
    await store.create_workflow("t.many")

    async def many(ctx, first, second: list[int]): ...

    worker = await pgqrs.consumer("w", 0, "t.many").handler(many).create(store)
    browser = Browser(http.opened(store))
    page = await browser.get("/workflows/t.many")
    given = {"field.first": "1", "field.second": '["x"]'}
    answer = await browser.submit(page, "/workflows/t.many/trigger", **given)
    await worker.close()

    assert answer.status == 422
    assert "'second' $[0]: must be an int, got 'x'" in answer.document.text
    assert await pgqrs.admin(store).runs() == []


async def test_the_page_of_a_run_shows_its_arguments_without_our_mark(store, work):
    run_id = await pgqrs.workflow("t.order").trigger({"amount": 5}).execute(store)
    page = await Browser(http.opened(store, read_only=True)).get(f"/runs/{run_id}")

    assert "$args" not in page.text
    assert '"amount": 5' in page.document.text or '"amount":5' in page.document.text
