"""What may be done to a run: what is offered is what is not refused."""

import pytest

import pgqrs
from pgqrs.api.operations.run_actions import _ALLOWED, _WHEN_DELETED, ACTIONS, act, allowed_actions
from pgqrs.types import RunStatus

flow = pgqrs.workflow("flow")


@pytest.fixture
async def run_in(store):
    """Makes a run that is in a status."""
    await store.create_workflow("flow")

    async def make(status):
        run_id = await flow.trigger(None).execute(store)
        match status:
            case RunStatus.PAUSED:
                await flow.pause(run_id, store)
            case RunStatus.CANCELLED:
                await flow.cancel(run_id, store)
            case RunStatus.SUCCESS | RunStatus.ERROR:
                await _execute(store, fails=status is RunStatus.ERROR)
            case RunStatus.RUNNING:
                await _execute(store, fails=True, for_good=False)
        run = await flow.get_run(run_id, store)
        assert run.status is status
        return run_id

    return make


async def _execute(store, *, fails, for_good=True):
    async def handler(ctx):
        if fails:
            raise pgqrs.PermanentError("no") if for_good else OSError("not now")

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()


@pytest.mark.parametrize("status", [*RunStatus, "deleted"])
async def test_an_action_is_refused_exactly_when_it_is_not_on_the_list(store, run_in, status):
    done = []
    for action in ACTIONS:
        run_id = await run_in(RunStatus.PENDING if status == "deleted" else status)
        if status == "deleted":
            await flow.delete(run_id, store)
        try:
            await act(store, run_id, action, **({"name": "go"} if action == "signal" else {}))
        except pgqrs.InvalidTransition:
            continue
        done.append(action)
        # Out of the way of those to come.
        await flow.delete(run_id, store)

    assert set(done) == set(_WHEN_DELETED if status == "deleted" else _ALLOWED[status])


def test_what_is_offered_may_be_done():
    for status in RunStatus:
        assert set(allowed_actions(status)) <= set(_ALLOWED[status])
    assert allowed_actions(RunStatus.ERROR, deleted=True) == ("restore",)


async def test_an_action_that_is_none_is_named(store, run_in):
    run_id = await run_in(RunStatus.PENDING)
    with pytest.raises(pgqrs.ConfigError, match="no action 'explode'; there are resume"):
        await act(store, run_id, "explode")
