"""Seed 000, section 4.6: worker, trigger and status check, as three parts of a program that share only the database."""

import asyncio
import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

import pgqrs
from pgqrs import connect, consumer, workflow
from pgqrs.db.queries import Query

# -- what the example takes for granted ------------------------------------------------------------------

calls: list[str] = []


async def _list_objects(bucket, prefix):
    calls.append("list_objects")
    return [f"{bucket}/{prefix}/{n}" for n in range(3)]


def download_all(files):
    calls.append("download_all")
    return [f"/tmp/{file}" for file in files]


def _create(files):
    calls.append("create")
    if "fails" in files[0]:
        raise pgqrs.PermanentError("disk full")
    return "/tmp/archive.zip"


s3 = SimpleNamespace(list_objects=_list_objects)
zip = SimpleNamespace(create=_create)  # noqa: A001 - the seed's name


# -- the example, as written -----------------------------------------------------------------------------


@dataclass
class ZipParams:
    bucket: str
    prefix: str


@dataclass
class ZipResult:
    archive_path: str
    file_count: int


# Workflow handler
async def zip_files_handler(ctx, params: ZipParams) -> ZipResult:
    # Step 1: List files
    files = await ctx.step("list_files", lambda: s3.list_objects(params.bucket, params.prefix))

    # Step 2: Download
    local_files = await ctx.step("download_files", lambda: download_all(files))

    # Step 3: Create archive
    archive_path = await ctx.step("create_archive", lambda: zip.create(local_files))

    return ZipResult(archive_path=archive_path, file_count=len(files))


# Worker registration
async def worker_main():
    store = await connect("postgresql://localhost/mydb")

    # Setup (idempotent)  # noqa: ERA001 - prose
    await store.create_workflow("zip_files")

    # Register worker with handler
    worker = await consumer("worker-1", 8080, "zip_files") \
        .handler(zip_files_handler) \
        .create(store)  # fmt: skip

    # Poll forever
    await worker.poll_forever()


# Trigger (non-blocking)  # noqa: ERA001 - prose
async def handle_upload(bucket: str, prefix: str) -> int:
    store = await connect("postgresql://localhost/mydb")

    run_id = await workflow("zip_files") \
        .trigger(ZipParams(bucket=bucket, prefix=prefix)) \
        .execute(store)  # fmt: skip

    print(f"Started run: {run_id}")
    return run_id


# Check status
async def check_status(run_id: int):
    store = await connect("postgresql://localhost/mydb")

    run = await workflow("zip_files") \
        .get_run(run_id, store)  # fmt: skip

    if run.status == "SUCCESS":
        result = run.output()  # Automatically deserialized
        print(f"Done: {result.archive_path}")
    elif run.status == "ERROR":
        print(f"Failed: {run.error}")
    else:
        print("Still running...")


# -- what it promises ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_calls_yet():
    calls.clear()


@pytest.fixture
async def workflow_exists(mydb):
    await mydb.create_workflow("zip_files")


async def work_until_ended(run_id, store):
    """`worker_main` as it stands polls for ever: it is ended from outside, once the run is."""
    working = asyncio.create_task(worker_main())
    run = await workflow("zip_files").get_run(run_id, store)
    try:
        await run.result(timeout=30)
    except pgqrs.ExecutionFailed:
        pass
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return await run.refresh()


async def test_a_triggered_run_waits_for_a_worker(mydb, workflow_exists, capsys):
    run_id = await handle_upload("photos", "2024")
    await check_status(run_id)

    assert capsys.readouterr().out.splitlines() == [f"Started run: {run_id}", "Still running..."]
    assert isinstance(run_id, int)


async def test_the_worker_executes_it_step_by_step(mydb, workflow_exists):
    run = await work_until_ended(await handle_upload("photos", "2024"), mydb)

    assert (run.status, run.output(ZipResult)) == ("SUCCESS", ZipResult("/tmp/archive.zip", 3))
    assert calls == ["list_objects", "download_all", "create"]
    assert [(s.step_id, s.status) for s in await run.steps()] == [
        ("list_files", "SUCCESS"),
        ("download_files", "SUCCESS"),
        ("create_archive", "SUCCESS"),
    ]


async def test_the_output_is_deserialized_automatically(mydb, workflow_exists, capsys):
    run = await work_until_ended(await handle_upload("photos", "2024"), mydb)
    await check_status(run.run_id)

    assert capsys.readouterr().out.splitlines()[-1] == "Done: /tmp/archive.zip"


async def test_a_failed_run_shows_its_error(mydb, workflow_exists, capsys):
    run = await work_until_ended(await handle_upload("fails", "2024"), mydb)
    await check_status(run.run_id)

    assert run.status == "ERROR"
    assert "disk full" in capsys.readouterr().out.splitlines()[-1]


async def test_the_message_holds_nothing_but_the_runs_id(mydb, workflow_exists):
    run_id = await handle_upload("photos", "2024")

    [[payload]] = await mydb.database.fetch(Query("payload", "select {text payload} from pgqrs_messages"))

    assert json.loads(payload) == {"run_id": run_id}


async def test_a_trigger_for_a_workflow_nobody_created_is_refused(mydb):
    with pytest.raises(pgqrs.WorkflowNotFound, match="create_workflow"):
        await handle_upload("photos", "2024")


async def test_a_trigger_with_no_worker_is_accepted_and_warned_of(mydb, workflow_exists, caplog):
    await handle_upload("photos", "2024")

    assert "no live worker for workflow 'zip_files'" in caplog.text
