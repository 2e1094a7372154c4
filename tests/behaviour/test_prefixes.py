"""Workers by type prefix (seed 004): dotted names, one statement over many queues, workflows that come later."""

import asyncio

import pytest

import pgqrs


async def handler(ctx, params):
    return f"{ctx.workflow}: {params}"


async def work(store, *, prefixes=None, handlers=("billing.invoice.v1",), **options):
    worker = (
        await pgqrs.worker("w", prefixes=prefixes, **options)
        .workflows(dict.fromkeys(handlers, handler))
        .create(store)
    )
    await worker.run_until_idle()
    await worker.close()


async def triggered(store, *names):
    for name in names:
        await store.create_workflow(name)
    return [await pgqrs.workflow(name).trigger(name).execute(store) for name in names]


async def statuses(store, names, ids):
    return [
        str((await pgqrs.workflow(name).get_run(run_id, store)).status)
        for name, run_id in zip(names, ids, strict=True)
    ]


async def test_a_worker_serves_the_workflows_with_its_prefixes_and_no_others(store):
    names = ["billing.invoice.v1", "billing.refund.v1", "media.thumbnail.v1", "email.send.v1"]
    ids = await triggered(store, *names)

    await work(store, prefixes=["billing.", "email."], handlers=names)

    assert await statuses(store, names, ids) == ["SUCCESS", "SUCCESS", "PENDING", "SUCCESS"]


async def test_prefixes_come_from_the_environment(store, monkeypatch):
    names = ["billing.invoice.v1", "media.thumbnail.v1", "email.send.v1"]
    ids = await triggered(store, *names)

    monkeypatch.setenv("WORKER_TYPE_PREFIXES", "media., email.")
    await work(store, handlers=names)

    assert await statuses(store, names, ids) == ["PENDING", "SUCCESS", "SUCCESS"]


@pytest.mark.parametrize("given", ["an empty list", "an empty variable"])
async def test_the_default_prefix_is_default(store, monkeypatch, given):
    names = ["default.cleanup.v1", "media.thumbnail.v1"]
    ids = await triggered(store, *names)

    if given == "an empty variable":
        monkeypatch.setenv("WORKER_TYPE_PREFIXES", "")
    await work(store, prefixes=[] if given == "an empty list" else None, handlers=names)

    assert await statuses(store, names, ids) == ["SUCCESS", "PENDING"]


@pytest.mark.parametrize(("prefix", "other"), [("a_b.", "axb.job"), ("a_", "ab"), ("x-1.", "x-12.job")])
async def test_wildcards_in_a_prefix_mean_themselves(store, prefix, other):
    names = [f"{prefix}job", other]
    ids = await triggered(store, *names)

    await work(store, prefixes=[prefix], handlers=names)

    assert await statuses(store, names, ids) == ["SUCCESS", "PENDING"]
    untouched = await pgqrs.workflow(other).get_run(ids[1], store)
    assert (untouched.attempt, untouched.started_at, untouched.last_error) == (0, None, None)


@pytest.mark.parametrize("prefix", ["", "100%", "a b", "x" * 300])
async def test_a_prefix_that_no_name_can_have_is_refused(prefix):
    with pytest.raises(pgqrs.ConfigError, match="prefix"):
        pgqrs.worker("w", prefixes=[prefix])
    with pytest.raises(pgqrs.ConfigError, match="list"):
        pgqrs.worker("w", prefixes="billing.")


async def test_a_workflow_that_comes_later_is_picked_up_without_a_restart(live_store, connect):
    names = ["billing.one", "billing.two"]
    worker = (
        await pgqrs.worker("w", prefixes=["billing."])
        .workflows({names[0]: handler, names[1]: handler})
        .create(live_store)
    )
    polling = asyncio.create_task(worker.poll_forever())
    elsewhere = live_store if live_store.config.backend == "turso" else await connect(clock=pgqrs.DatabaseClock())
    await elsewhere.create_workflow("billing.new")
    await worker.add_workflows({"billing.new": handler})

    result = await pgqrs.workflow("billing.new").trigger(1).wait().timeout(30).execute(elsewhere)
    worker.stop()
    await polling

    assert result == "billing.new: 1"


async def test_priority_counts_across_the_queues_of_a_prefix(store):
    order = []

    async def note(ctx, params):
        order.append(params)

    names = [f"p.{i}" for i in range(5)]
    for i, name in enumerate(names):
        await store.create_workflow(name)
        await pgqrs.workflow(name).trigger(i, priority=i).execute(store)
    worker = (
        await pgqrs.worker("w", prefixes=["p."], concurrency=1).workflows(dict.fromkeys(names, note)).create(store)
    )
    await worker.run_until_idle()
    await worker.close()

    assert order == [4, 3, 2, 1, 0]


# -- no handler ------------------------------------------------------------------------------------------


@pytest.mark.row("B8.11")
async def test_a_run_without_a_handler_waits_for_one_and_then_fails(store, clock):
    [run_id] = await triggered(store, "billing.unknown")
    flow = pgqrs.workflow("billing.unknown")
    seen = []
    for _ in range(12):
        await work(store, prefixes=["billing."])
        run = await flow.get_run(run_id, store)
        seen.append(str(run.status))
        if run.status == "ERROR":
            break
        assert run.last_error == "no_handler_registered"
        clock.advance(10)

    assert seen == ["PENDING"] * 6 + ["ERROR"]
    assert (run.last_error, run.attempt, run.error["type"]) == ("no_handler_registered", 1, "NoHandler")


async def test_the_delay_grows_while_there_is_no_handler(store, clock):
    await triggered(store, "billing.unknown")
    waits = []
    for _ in range(5):
        await work(store, prefixes=["billing."])
        due = await pgqrs.db.tables.messages.next_due(store.database, await queue_ids(store))
        waits.append(round(due))
        clock.advance(due)

    assert waits == [1, 1, 2, 4, 8]


async def queue_ids(store):
    return [each.queue_id for each in await pgqrs.db.tables.queues.list_all(store.database)]


async def test_a_handler_that_comes_in_time_finds_the_run(store, clock):
    [run_id] = await triggered(store, "billing.late")
    await work(store, prefixes=["billing."])
    clock.advance(2)

    await work(store, prefixes=["billing."], handlers=["billing.late"])

    run = await pgqrs.workflow("billing.late").get_run(run_id, store)
    assert (run.status, run.last_error, run.attempt) == ("SUCCESS", None, 1)


async def test_without_grace_it_fails_at_once(connect, config, clock):
    config = config.with_changes(no_handler_grace_seconds=0)
    await connect()
    async with pgqrs.connect_with(config, clock=clock) as store:
        [run_id] = await triggered(store, "billing.unknown")
        await work(store, prefixes=["billing."])
        run = await pgqrs.workflow("billing.unknown").get_run(run_id, store)

    assert (run.status, run.last_error) == ("ERROR", "no_handler_registered")


async def test_a_live_worker_is_one_that_serves_the_prefix(store, caplog):
    await triggered(store, "billing.x", "media.x")
    worker = await pgqrs.worker("w", prefixes=["billing."]).workflows({"billing.x": handler}).create(store)

    await pgqrs.workflow("billing.x").trigger(require_worker=True).execute(store)
    with pytest.raises(pgqrs.NoActiveWorker):
        await pgqrs.workflow("media.x").trigger(require_worker=True).execute(store)
    await worker.close()


# -- lease seconds and concurrency per workflow ------------------------------------------------------------


@pytest.mark.row("B8.6")
async def test_a_workflow_has_its_own_lease_and_concurrency(store, clock):
    running, most = 0, 0

    @pgqrs.workflow(name="limits.slow", concurrency=2, lease_seconds=120)
    async def slow(ctx, params):
        nonlocal running, most
        running += 1
        most = max(most, running)
        leases.append(await lease_of(store, ctx.run_id))
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1

    @pgqrs.workflow(name="limits.fast")
    async def fast(ctx, params):
        leases.append(await lease_of(store, ctx.run_id))

    leases = []
    worker = (
        await pgqrs.worker("w", concurrency=10).workflows({"limits.slow": slow, "limits.fast": fast}).create(store)
    )
    # Of several priorities: the limit is of the workflow, not of each.
    for priority in (1, 2):
        await slow.trigger_many(range(4), priority=priority).execute(store)
    await fast.trigger_many(range(8)).execute(store)
    await worker.run_until_idle()
    await worker.close()

    assert most == 2
    assert sorted(leases) == [30.0] * 8 + [120.0] * 8


async def lease_of(store, run_id):
    from pgqrs.db.queries import Query

    query = Query("lease", "select {seconds visible_after since {now}} from pgqrs_messages where run_id = :run_id")
    return (await store.database.fetch(query, run_id=run_id))[0][0]


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"lease_seconds": 0.5}, {"nonsense": 1}])
def test_options_that_cannot_be_are_refused(options):
    with pytest.raises(pgqrs.ConfigError):
        pgqrs.workflow(name="x", **options)


async def test_a_worker_whose_code_has_none_of_its_prefixes_is_refused(store):
    with pytest.raises(pgqrs.ConfigError, match="zzz"):
        await pgqrs.worker("w", prefixes=["zzz."]).workflows({"a.x": handler}).create(store)


async def test_each_workflow_gets_its_own_handler(store):
    async def one(ctx, params):
        return "one"

    async def other(ctx, params):
        return "other"

    names = ["p.one", "p.other"]
    ids = await triggered(store, *names)
    worker = (
        await pgqrs.worker("w", prefixes=["p."]).workflows(dict(zip(names, (one, other), strict=True))).create(store)
    )
    await worker.run_until_idle()
    await worker.close()

    assert [(await pgqrs.workflow(n).get_run(i, store)).output() for n, i in zip(names, ids, strict=True)] == [
        "one",
        "other",
    ]
