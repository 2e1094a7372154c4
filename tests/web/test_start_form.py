"""A new run from a form that the workflow's own annotations have made."""

from dataclasses import dataclass
from typing import Literal

import pytest

import pgqrs
from pgqrs.db.tables import workflows
from pgqrs.web.pages.start_form import fields_of
from rig import http
from rig.asgi import Browser


@dataclass
class Order:
    sku: str
    count: int
    express: bool = False
    price: float | None = None
    kind: Literal["new", "old"] = "new"
    tags: list[str] | None = None


async def order(ctx, params: Order):
    return None


async def several(ctx, name: str, times: int = 3):
    return None


async def untyped(ctx, params):
    return None


@pytest.fixture
async def served(store):
    flows = {"order": order, "several": several, "untyped": untyped}
    worker = await pgqrs.worker("w").workflows(flows).create(store)
    yield store
    await worker.close()


async def test_the_form_has_a_field_for_each_part_of_the_input(served):
    fields = fields_of(await workflows.input_schema(served.database, "order"))
    assert [(each.name, each.kind, each.required) for each in fields] == [
        ("sku", "string", True),
        ("count", "integer", True),
        ("express", "boolean", False),
        ("price", "any", False),
        ("kind", "choice", False),
        ("tags", "any", False),
    ]
    two = fields_of(await workflows.input_schema(served.database, "several"))
    assert [(each.name, each.kind, each.required) for each in two] == [
        ("name", "string", True),
        ("times", "integer", False),
    ]
    assert fields_of(await workflows.input_schema(served.database, "untyped")) == []


async def test_what_the_form_says_is_the_input(served):
    browser = Browser(http.opened(served))
    page = await browser.get("/workflows/order")
    given = {"field.sku": "A1", "field.count": "2", "field.express": "true", "field.tags": '["x"]', "key": "k"}
    started = await browser.submit(page, "/workflows/order/trigger", **given)
    [run] = await pgqrs.admin(served).runs("key:k")
    found = await pgqrs.workflow("order").get_run(run.run_id, served)

    assert "The run was started." in started.text
    assert found.input == {"sku": "A1", "count": 2, "express": True, "tags": ["x"]}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"field.sku": "A1", "field.count": "two"}, "count is no integer"),
        ({"field.sku": "A1"}, "count is missing"),
        ({"field.sku": "A1", "field.count": "1", "field.tags": "["}, "is no JSON"),
        ({"field.sku": "A1", "field.count": "1", "delay": "soon"}, "is no length of time"),
    ],
)
async def test_what_cannot_be_read_is_told_and_kept(served, given, told):
    browser = Browser(http.opened(served))
    answered = await browser.submit(await browser.get("/workflows/order"), "/workflows/order/trigger", **given)

    assert answered.status == 422
    assert told in answered.document.text
    assert "A1" in answered.document.attributes("value")
    assert await pgqrs.admin(served).runs("workflow:order") == []


@pytest.mark.parametrize(
    "text",
    ["null", "[]", "7", '"x"', '{"properties": 7}', '{"$ref": "#/$defs/gone"}', "{", '{"properties": {"a": 1}}'],
)
def test_a_schema_that_is_none_makes_no_form(text):
    assert fields_of(text) == []
