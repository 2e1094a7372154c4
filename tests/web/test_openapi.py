"""OpenAPI and the reference say what is there, all of it, and nothing else."""

import re
from pathlib import Path

import jsonschema
import msgspec
import pytest

import pgqrs
from pgqrs.web import openapi, reference
from pgqrs.web.application import endpoints
from pgqrs.web.routing import routes_of
from rig import http
from rig.http import api_routes, filled, named

ROOT = Path(__file__).parent.parent.parent
flow = pgqrs.workflow("flow")


@pytest.fixture(scope="module")
def document():
    return openapi.document(endpoints())


def test_every_route_is_described_and_every_description_is_a_route(document):
    described = {(method.upper(), path) for path, found in document["paths"].items() for method in found}

    assert described == {(each.method, each.path) for each in endpoints() if not each.page}


def test_the_table_is_all_that_is_served():
    served = {
        (method, route.path)
        for route in routes_of(endpoints(dashboard=False), None, None, None)
        for method in route.methods
    }

    assert served - {("HEAD", path) for _, path in served} == {(e.method, e.path) for e in endpoints(dashboard=False)}


def test_every_operation_has_a_name_of_its_own(document):
    ids = [operation["operationId"] for found in document["paths"].values() for operation in found.values()]

    assert len(ids) == len(set(ids))
    assert all(re.fullmatch(r"[a-z_]+", each) for each in ids)


def test_every_reference_leads_somewhere(document):
    found = set(re.findall(r"#/components/schemas/(\w+)", str(document)))

    assert found <= set(document["components"]["schemas"])
    assert {"Problem", "RunRow", "NewRun"} <= found


def test_every_schema_is_one(document):
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_each_body_is_described_with_its_own_fields(document):
    """Two shapes of one name would be described as one."""
    bodies = {(each.method, each.path): each.takes for each in endpoints(dashboard=False) if each.takes is not None}

    assert len(bodies) >= 20
    for (method, path), takes in bodies.items():
        content = document["paths"][path][method.lower()]["requestBody"]["content"]["application/json"]
        component = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
        assert list(component["properties"]) == list(takes.__struct_encode_fields__), (method, path)
        assert component["additionalProperties"] is False


def test_two_shapes_of_one_name_are_refused():
    """One of them would be described as the other."""
    one, other = msgspec.defstruct("Thing", [("a", int)]), msgspec.defstruct("Thing", [("b", int)])
    schemas = openapi.Schemas()
    schemas.of(one)

    with pytest.raises(ValueError, match="Thing"):
        schemas.of(other)


def test_each_route_says_which_scope_it_needs(document):
    for endpoint in endpoints(dashboard=False):
        security = document["paths"][endpoint.path][endpoint.method.lower()]["security"]
        assert security == ([] if endpoint.scope is None else [{"token": [endpoint.scope.value]}])


def test_the_reference_is_what_the_table_says():
    written = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")

    assert written == reference.page(), "stale: run `python -m pgqrs.web.reference > docs/reference/http.md`"
    for endpoint in endpoints(dashboard=False):
        assert f"`{endpoint.method} {endpoint.path}`" in written


async def test_answers_are_as_they_are_described(store, api, furnished, document, execute):
    async def steps(ctx, n):
        async def double():
            return 2

        return await ctx.step("double", double)

    async def fails(ctx, n):
        raise pgqrs.PermanentError("no")

    # Something of everything, so that lists are not empty.
    await execute(steps)
    await flow.trigger(1).execute(store)
    await execute(fails)
    await pgqrs.schedules(store).trigger("nightly")
    seen = 0
    for endpoint in api_routes():
        if endpoint.changes:
            continue
        answer = await api.get(filled(endpoint, **furnished))
        described = document["paths"][endpoint.path]["get"]["responses"]
        if answer.status_code != 200:
            assert endpoint.path == "/metrics", answer.text
            _validate(document, described["default"]["content"]["application/problem+json"]["schema"], answer.json())
            continue
        [(media, content)] = described["200"]["content"].items()
        assert answer.headers["content-type"].startswith(media), named(endpoint)
        if media == "application/json":
            _validate(document, content["schema"], answer.json())
            seen += 1

    assert seen > 20


@pytest.mark.backends("sqlite")
async def test_what_changes_something_answers_as_it_is_described(store, api, furnished, document):
    bodies = {
        "/api/v1/runs": {"workflow": "flow"},
        "/api/v1/bulk": {"verb": "cancel", "everything": True},
        "/api/v1/workflows": {"name": "other"},
        "/api/v1/queues": {"name": "others"},
        "/api/v1/schedules": {"name": "hourly", "workflow": "flow", "every_seconds": 3600},
        "/api/v1/runs/{run_id}/answer": {"approved": True},
    }
    # What takes others' ground away comes last.
    order = sorted(
        http.changing(), key=lambda each: (each.method == "DELETE", "/delete" in each.path, "/restore" in each.path)
    )
    done = 0
    for endpoint in order:
        if endpoint.page:
            continue
        body = bodies.get(endpoint.path)
        answer = await api.request(endpoint.method, filled(endpoint, **furnished), json=body)
        described = document["paths"][endpoint.path][endpoint.method.lower()]["responses"]
        found = described.get(str(answer.status_code))
        if found is None:
            assert answer.status_code == 409, (named(endpoint), answer.text)
            _validate(document, described["default"]["content"]["application/problem+json"]["schema"], answer.json())
        else:
            _validate(document, found["content"]["application/json"]["schema"], answer.json())
            done += 1

    assert done >= 20


def _validate(document, schema, instance):
    whole = {**schema, "components": document["components"]}
    jsonschema.Draft202012Validator(whole).validate(instance)
