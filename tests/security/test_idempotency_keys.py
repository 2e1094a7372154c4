"""A key that is taken tells a caller without the scope `read` nothing of the run that has it, unless it is its own."""

import json
import re
from urllib.parse import urlencode

import pytest

import pgqrs
from pgqrs.web import Scope
from pgqrs.web.auth import tokens as kept
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")

RUNS = "/api/v1/runs"
flow = pgqrs.workflow("flow")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def tokens(file):
    names = {"producer": Scope.TRIGGER, "other": Scope.TRIGGER, "operator": Scope.OPERATE}
    return {name: kept.create(file, name, [scope]) for name, scope in names.items()}


def api(served, token, params, key="order-7"):
    return served.post(RUNS, {"workflow": "flow", "params": params, "idempotency_key": key}, **served.bearer(token))


def form(served, token, params, key="order-7"):
    body = urlencode({"input": json.dumps(params), "key": key}).encode()
    kind = {"content_type": "application/x-www-form-urlencoded"}
    return served.ask("POST", "/workflows/flow/trigger", body, **kind, **served.bearer(token))


def without_clock(page):
    """A page says when it was made."""
    return re.sub(rb"\d{4}-\d\d-\d\dT[\d:.]+Z", b"", page)


@pytest.mark.parametrize("send", [api, form])
@pytest.mark.parametrize("triggered_by", ["python", "other"])
async def test_a_guess_of_another_runs_input_is_answered_alike_right_or_wrong(
    config, store, file, tokens, send, triggered_by
):
    """The finding: the run's id for the right guess, a conflict for any other."""
    await store.create_workflow("flow")
    async with serving(config, "--tokens", file) as served:
        if triggered_by == "python":
            await flow.trigger({"pin": 4711}, idempotency_key="order-7").execute(store)
        else:
            assert (await api(served, tokens["other"], {"pin": 4711})).status == 201
        right = await send(served, tokens["producer"], {"pin": 4711})
        wrong = await send(served, tokens["producer"], {"pin": 1234})

        assert (right.status, without_clock(right.body)) == (wrong.status, without_clock(wrong.body))
        assert right.status == 409
        assert right.headers.keys() == wrong.headers.keys()
        assert "location" not in right.headers

    assert len(await pgqrs.admin(store).runs()) == 1


@pytest.mark.parametrize("send", [api, form])
async def test_a_caller_that_may_not_read_repeats_its_own_request(config, store, file, tokens, send):
    await store.create_workflow("flow")
    async with serving(config, "--tokens", file) as served:
        first = await send(served, tokens["producer"], {"n": 1}, "mine")
        again = await send(served, tokens["producer"], {"n": 1}, "mine")
        changed = await send(served, tokens["producer"], {"n": 2}, "mine")

        assert first.headers["location"] == again.headers["location"]
        assert (first.status, again.status, changed.status) == ((201, 200, 409) if send is api else (303, 303, 409))

    assert len(await pgqrs.admin(store).runs()) == 1


async def test_a_caller_that_may_read_finds_the_run_of_any_caller(config, store, file, tokens):
    await store.create_workflow("flow")
    run_id = await flow.trigger({"pin": 4711}, idempotency_key="order-7").execute(store)
    async with serving(config, "--tokens", file) as served:
        found = await api(served, tokens["operator"], {"pin": 4711})

        assert (found.status, found.json["run_id"]) == (200, run_id)


async def test_without_a_history_no_key_is_known_to_be_the_callers(config, store, file, tokens):
    await store.create_workflow("flow")
    async with serving(config, "--tokens", file, PGQRS_AUDIT="none") as served:
        answers = [await api(served, tokens["producer"], {"n": n}) for n in (1, 1, 2)]

        assert [each.status for each in answers] == [201, 409, 409]
        assert answers[1].body == answers[2].body
