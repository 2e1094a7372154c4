"""Queues, workflows, workers, schedules, outbox and the store as a whole, from the command line."""

import pytest

import pgqrs

flow = pgqrs.workflow("flow")


async def _nothing(ctx):
    return None


async def test_a_queue_from_making_it_to_removing_it(store, command):
    assert (await command("queue", "create", "tasks")).code == 0
    sent = await command("queue", "send", "tasks", "n:=1", "-o", "ids")
    assert int(sent.out) > 0
    assert (await command("queue", "get", "tasks", "-o", "json")).json["ready"] == 1
    await command("queue", "pause", "tasks")
    [listed] = (await command("queue", "list", "-o", "json")).json["items"]
    assert (listed["queue"], listed["paused"], listed["ready"]) == ("tasks", True, 1)
    await command("queue", "resume", "tasks")
    assert (await command("queue", "purge", "tasks")).code == 2
    assert (await command("queue", "purge", "tasks", "--yes")).out == "1 message(s) deleted\n"
    assert (await command("queue", "delete", "tasks", "-y")).code == 0
    assert (await command("queue", "get", "tasks")).code == 4


async def test_dead_letters_are_shown_and_replayed(store, command, clock):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue({"n": 1}, max_attempts=1)
    consumer = await store.consumer("tasks")
    await consumer.dequeue(lease_seconds=10)
    clock.advance(11)

    # The command line asks the database for its time: by that clock the lease runs on.
    shown = await pgqrs.admin(store).dead_letters("tasks")
    replayed = await command("queue", "replay", "tasks", shown[0].id)

    assert replayed.code == 0


async def test_workflows_are_listed_and_paused_by_name(store, command):
    await command("workflow", "create", "flow")
    await flow.trigger(None).execute(store)

    [listed] = (await command("workflow", "list", "-o", "json")).json["items"]
    assert (listed["workflow"], listed["pending"]) == ("flow", 1)
    await command("workflow", "pause", "flow")
    assert (await command("workflow", "get", "flow", "-o", "json")).json["queue"]["paused"] is True
    await command("workflow", "resume", "flow")
    assert (await command("workflow", "pause", "nowhere")).code == 4


async def test_workers_are_listed_and_what_they_hold_is_released(store, command):
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w1", 0, "flow").handler(_nothing).create(store)

    [listed] = (await command("worker", "list", "-o", "json")).json["items"]

    assert (listed["name"], listed["info"]["handlers"]) == ("w1", ["flow"])
    assert "0 message(s)" in (await command("worker", "release", worker.worker_id)).out


async def test_several_workers_are_stopped_and_released_at_once(store, command):
    await store.create_workflow("flow")
    workers = [await pgqrs.consumer(f"w{n}", 0, "flow").handler(_nothing).create(store) for n in range(2)]
    ids = [worker.worker_id for worker in workers]

    released, stopped = await command("worker", "release", *ids), await command("worker", "stop", *ids)

    assert all(f"worker {each} are free" in released.out for each in ids)
    assert all(f"worker {each} is told to stop" in stopped.out for each in ids)


async def test_a_worker_runs_the_code_that_is_named(store, command, tmp_path, monkeypatch):
    (tmp_path / "shop.py").write_text(
        "import pgqrs\n\n@pgqrs.workflow\nasync def order(ctx, n: int) -> int:\n    return n + 1\n"
    )
    monkeypatch.chdir(tmp_path)
    await store.create_workflow("order")
    triggered = await command("run", "trigger", "order", "1", "-o", "ids")

    ran = await command("worker", "run", "shop.py", "--drain")

    assert ran.code == 0
    assert (await command("run", "result", int(triggered.out))).out == "2\n"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("app", "hint"),
    [
        ("nowhere", "there is no module 'nowhere'"),
        ("nowhere.py", "there is no file 'nowhere.py'"),
        ("json", "has no workflows"),
        ("json:nothing", "has no 'nothing'"),
    ],
)
async def test_code_that_is_not_there_is_named(command, app, hint):
    said = await command("worker", "run", app)

    assert said.code == 2
    assert hint in said.err


async def test_schedules_from_the_command_line(store, command):
    await store.create_workflow("flow")

    made = await command("schedule", "create", "nightly", "flow", "--cron", "30 2 * * *", "-o", "json")
    assert made.json["cron"] == "30 2 * * *"
    assert len((await command("schedule", "next", "nightly", "-n", 3, "-o", "json")).json["items"]) == 3
    await command("schedule", "pause", "nightly")
    [listed] = (await command("schedule", "list", "-o", "json")).json["items"]
    assert listed["paused_at"] is not None
    await command("schedule", "resume", "nightly")
    run_id = int((await command("schedule", "trigger", "nightly", "-o", "ids")).out)
    assert (await flow.get_run(run_id, store)).status == "PENDING"
    assert (await command("schedule", "delete", "nightly", "--yes")).code == 0
    assert (await command("schedule", "get", "nightly")).code == 4


async def test_failures_stats_and_outbox_can_be_asked_for(store, command):
    await store.create_workflow("flow")

    assert (await command("failures", "-o", "json")).json == {"items": []}
    assert (await command("stats", "-o", "json")).json["schema_version"] > 0
    assert (await command("outbox", "list", "-o", "json")).json == {"items": []}
    assert (await command("outbox", "replay")).out == "0 event(s) start anew\n"


@pytest.mark.backends("sqlite")
async def test_settings_say_where_they_come_from(command, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.pgqrs]\nlease_seconds = 45.0\nmax_attempts = 7\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGQRS_MAX_ATTEMPTS", "9")

    shown = (await command("config", "show", "-o", "json", "--schema", "tenant")).json["items"]

    found = {each["setting"]: (each["value"], each["source"]) for each in shown}
    assert found["lease_seconds"] == (45.0, str(tmp_path / "pyproject.toml"))
    assert found["max_attempts"] == (9, "PGQRS_MAX_ATTEMPTS")
    assert found["schema"] == ("tenant", "flag")
    assert found["pool_size"][1] == "default"


@pytest.mark.backends("postgres")
async def test_a_password_is_never_shown(command, monkeypatch):
    monkeypatch.setenv("PGQRS_DSN", "postgresql://ann:S3cr3t@127.0.0.1:1/x")

    shown = await command("config", "show")
    failed = await command("run", "list")

    assert failed.code == 9
    assert "S3cr3t" not in shown.out + failed.out + failed.err


@pytest.mark.backends("sqlite")
async def test_a_setting_that_does_not_exist_is_named(command, tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.pgqrs]\nlease_second = 45.0\n")
    monkeypatch.chdir(tmp_path)

    said = await command("run", "list")

    assert (said.code, "lease_second" in said.err) == (2, True)
