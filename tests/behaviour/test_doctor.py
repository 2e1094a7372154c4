"""The doctor: each thing that can be wrong is found, named, and gone when it is mended."""

import os
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest

import pgqrs
from conftest import DSN
from pgqrs import explanations
from pgqrs.api.doctor import file as doctor_file
from pgqrs.api.doctor import server as doctor_server
from pgqrs.db.upkeep.diagnostics import ConnectionSecurity, DeadRows, OpenTransaction, ServerSettings

flow = pgqrs.workflow("flow")


async def _nothing(ctx):
    return None


async def found(store, code, **options):
    """The levels of the findings with that code, and all that they say."""
    report = await pgqrs.admin(store).doctor(**options)
    mine = [each for each in report.findings if each.code == code]
    said = " ".join(f"{each.what} {each.why} {each.fix}" for each in mine)
    return {each.level for each in mine}, said


async def test_a_new_store_is_well(store):
    report = await pgqrs.admin(store).doctor(verify=True)

    bad = [each for each in report.findings if each.level == "bad"]
    # The tests' server does not wait for its disk, and says so.
    assert {each.code for each in bad} <= {"durability"}
    assert "invariants" in {each.code for each in report.findings}


async def test_every_code_is_explained(store):
    report = await pgqrs.admin(store).doctor(verify=True)

    assert {each.code for each in report.findings} <= set(explanations.CHECKS)


async def test_every_explained_check_is_made():
    texts = "".join(
        Path(module.__file__).read_text(encoding="utf-8")
        for module in (doctor_file, doctor_server, __import__("pgqrs.api.doctor", fromlist=["x"]))
    )

    assert [code for code in explanations.CHECKS if f'"{code}"' not in texts] == []


async def test_a_finding_that_is_not_well_says_what_to_do(store, clock):
    await flow_with_work(store, clock)
    report = await pgqrs.admin(store).doctor()

    for each in report.findings:
        assert each.level == "ok" or each.fix, each


async def flow_with_work(store, clock):
    await store.create_workflow("flow")
    await flow.trigger(None).execute(store)
    clock.advance(61)


async def test_work_that_nobody_takes_is_found(store, clock):
    await flow_with_work(store, clock)
    levels, said = await found(store, "unserved")
    assert (levels, "flow (1)" in said, "pgqrs worker run" in said) == ({"bad"}, True, True)

    await pgqrs.consumer("w", 0, "flow").handler(_nothing).create(store)

    assert (await found(store, "unserved"))[0] == {"ok"}


async def test_a_plain_queue_without_a_consumer_is_found(store, clock):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue(1)
    clock.advance(61)
    assert (await found(store, "unserved"))[0] == {"bad"}

    await store.consumer("tasks")

    assert (await found(store, "unserved"))[0] == {"ok"}


async def test_workers_that_vanished_are_found(store, clock, config):
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(_nothing).create(store)
    assert (await found(store, "workers"))[0] == {"ok"}

    clock.advance(3 * config.lease_seconds + 1)

    levels, said = await found(store, "workers")
    assert (levels, str(worker.worker_id) in said) == ({"warn"}, True)


async def test_the_fix_for_a_worker_that_vanished_signs_it_off(store, clock, config):
    await store.create_workflow("flow")
    worker = await pgqrs.consumer("w", 0, "flow").handler(_nothing).create(store)
    clock.advance(3 * config.lease_seconds + 1)
    assert f"pgqrs worker stop {worker.worker_id}" in (await found(store, "workers"))[1]

    await pgqrs.admin(store).stop_worker(worker.worker_id)

    assert (await found(store, "workers"))[0] == {"ok"}


async def test_the_fix_for_many_workers_that_vanished_signs_off_all_of_them(store, clock, config):
    await store.create_workflow("flow")
    workers = [await pgqrs.consumer(f"w{n}", 0, "flow").handler(_nothing).create(store) for n in range(3)]
    clock.advance(3 * config.lease_seconds + 1)
    ids = " ".join(str(worker.worker_id) for worker in workers)
    said = (await found(store, "workers"))[1]

    assert f"pgqrs worker stop {ids}" in said
    assert "3 workers disappeared without shutting down" in said


async def test_the_fix_for_a_consumer_that_vanished_is_retention(store, clock):
    await store.create_queue("tasks")
    await store.consumer("tasks")
    clock.advance(3600)
    assert 'pgqrs.retention(store).keep("workers", days=1)' in (await found(store, "workers"))[1]

    await pgqrs.retention(store).keep("workers", days=1)
    assert "retention removes silent workers after 1 d (an hour at least)" in (await found(store, "workers"))[1]
    clock.advance(24 * 3600)
    await pgqrs.retention(store).apply()

    assert (await found(store, "workers"))[0] == {"ok"}


async def test_workers_without_code_for_what_they_take_are_found(store):
    await store.create_workflow("billing.new")
    await pgqrs.workflow("billing.new").trigger(None).execute(store)
    await pgqrs.worker("w", prefixes=["billing."]).workflows({"billing.old": _nothing}).create(store)

    levels, said = await found(store, "handlers")

    assert (levels, "billing.new" in said) == ({"bad"}, True)


async def test_a_paused_queue_with_work_in_it_is_found(store):
    await store.create_workflow("flow")
    await pgqrs.admin(store).pause_queue("flow")
    assert (await found(store, "paused_queues"))[0] == {"ok"}

    await flow.trigger(None).execute(store)

    levels, said = await found(store, "paused_queues")
    assert (levels, "pgqrs queue resume flow" in said) == ({"warn"}, True)


async def test_dead_letters_are_found(store, clock):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue(1, max_attempts=1)
    await (await store.consumer("tasks")).dequeue(lease_seconds=10)
    assert (await found(store, "dead_letters"))[0] == {"ok"}

    clock.advance(11)

    levels, said = await found(store, "dead_letters")
    assert (levels, "tasks (1)" in said) == ({"warn"}, True)


async def test_an_outbox_that_nobody_empties_is_found(store, clock):
    async def handler(ctx):
        await ctx.emit("order.shipped", {"n": 1})

    await store.create_workflow("flow")
    await flow.trigger(None).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()
    assert (await found(store, "outbox"))[0] == {"ok"}

    clock.advance(601)

    levels, said = await found(store, "outbox")
    assert (levels, "no dispatcher" in said) == ({"bad"}, True)


async def test_schedules_that_nobody_looks_at_are_found(store, clock):
    await store.create_workflow("flow")
    await pgqrs.schedules(store).create("hourly", "flow", every=3600)
    clock.advance(3600)
    assert (await found(store, "schedules"))[0] == {"ok"}

    clock.advance(120)

    levels, said = await found(store, "schedules")
    assert (levels, "hourly" in said) == ({"bad"}, True)


async def test_a_store_that_grows_for_ever_is_found(store, monkeypatch):
    from pgqrs.api import doctor

    monkeypatch.setattr(doctor, "_MANY_RUNS", 1)
    await store.create_workflow("flow")
    await flow.trigger(None).execute(store)
    worker = await pgqrs.consumer("w", 0, "flow").handler(_nothing).create(store)
    await worker.run_until_idle()
    await worker.close()
    assert (await found(store, "retention"))[0] == {"warn"}

    await pgqrs.retention(store).keep_recommended()

    assert (await found(store, "retention"))[0] == {"ok"}


@pytest.mark.breaks("I4")
async def test_a_broken_invariant_is_found_when_asked(store):
    from pgqrs.db.queries import Query

    await store.create_workflow("flow")
    await flow.trigger(None).execute(store)
    await store.database.execute(Query("spoil", "update pgqrs_workflow_runs set output = '1'"))
    assert "invariants" not in {each.code for each in (await pgqrs.admin(store).doctor()).findings}

    levels, said = await found(store, "invariants", verify=True)

    assert (levels, "I4" in said, "pgqrs explain I4" in said) == ({"bad"}, True, True)


async def test_tables_of_the_former_layout_are_found(store, config):
    from pgqrs.db.queries import Query

    where = f'"{config.schema}".' if config.backend == "postgres" else ""
    await store.database.execute(Query("old", f"create table {where}old_pgqrs_workflows (workflow_id integer)"))

    levels, said = await found(store, "old_tables")

    assert (levels, "import_v1" in said) == ({"warn"}, True)


@pytest.mark.backends("postgres")
async def test_missing_tables_are_found(config, connect):
    store = await connect(install=False)

    report = await pgqrs.admin(store).doctor(verify=True)

    [finding] = report.findings
    assert (finding.code, finding.level, finding.fix) == ("schema", "bad", "pgqrs install")


# -- the file ------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite", "turso")
async def test_a_file_that_others_can_read_is_found(store, config):
    assert (await found(store, "file_permissions"))[0] == {"ok"}

    Path(config.path).chmod(0o644)

    levels, said = await found(store, "file_permissions")
    assert (levels, f"chmod 600 {Path(config.path).resolve()}" in said) == ({"warn"}, True)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("mounted", "level"),
    [("nfs4", "bad"), ("cifs", "bad"), ("tmpfs", "warn"), ("overlay", "warn"), ("ext4", "ok"), ("fuse.sshfs", "bad")],
)
async def test_a_file_where_it_does_not_last_is_found(store, config, monkeypatch, mounted, level):
    folder = Path(config.path).resolve().parent
    mounts = [(Path("/"), "ext4"), (folder, mounted), (Path("/elsewhere"), "nfs4")]
    monkeypatch.setattr(doctor_file, "_mounts", lambda: iter(mounts))

    assert (await found(store, "file_system"))[0] == {level}


@pytest.mark.backends("sqlite")
async def test_a_machine_that_does_not_tell_its_mounts_is_taken_for_well(store, monkeypatch):
    monkeypatch.setattr(doctor_file, "_mounts", lambda: iter(()))

    assert (await found(store, "file_system"))[0] == {"ok"}


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(("free", "level"), [(50 * 2**20, "bad"), (500 * 2**20, "warn"), (5 * 2**30, "ok")])
async def test_a_disk_that_is_nearly_full_is_found(store, monkeypatch, free, level):
    monkeypatch.setattr(doctor_file.shutil, "disk_usage", lambda _: type("Usage", (), {"free": free}))

    assert (await found(store, "disk_space"))[0] == {level}


async def test_a_database_in_memory_is_named():
    async with pgqrs.connect("sqlite://:memory:") as store:
        levels, said = await found(store, "durability")

        assert (levels, "in memory" in said) == ({"warn"}, True)


# -- the server ----------------------------------------------------------------------------------------------

WELL = ServerSettings(
    version="16.4",
    version_number=160004,
    fsync=True,
    waits_for_disk=True,
    full_page_writes=True,
    autovacuum=True,
    most_connections=97,
    connections=5,
    is_standby=False,
    clock=0.0,
)


@pytest.fixture
def server(monkeypatch):
    """The server says what the test wants."""
    said = {
        "server": WELL,
        "line": ConnectionSecurity(encrypted=False, address="127.0.0.1"),
        "dead_rows": [],
        "oldest_transactions": [],
    }

    def answering(name):
        async def answer(db):
            import time

            value = said[name]
            return value._replace(clock=time.time() + value.clock) if name == "server" else value

        return answer

    for name in said:
        monkeypatch.setattr(doctor_server.diagnostics, name, answering(name))
    return said


@pytest.mark.backends("postgres")
async def test_a_server_that_is_well_is_well(store, server):
    report = await pgqrs.admin(store).doctor()

    # Behind a pooler nobody hears hints, and it says so.
    assert report.level == ("warn" if store.database.pooled else "ok"), str(report)


@pytest.mark.backends("postgres")
@pytest.mark.parametrize(
    ("code", "level", "said"),
    [
        ("durability", "bad", {"server": WELL._replace(fsync=False)}),
        ("durability", "bad", {"server": WELL._replace(waits_for_disk=False)}),
        ("durability", "warn", {"server": WELL._replace(full_page_writes=False)}),
        ("database", "bad", {"server": WELL._replace(is_standby=True)}),
        ("database", "warn", {"server": WELL._replace(version="12.1", version_number=120001)}),
        ("autovacuum", "bad", {"server": WELL._replace(autovacuum=False)}),
        ("autovacuum", "bad", {"dead_rows": [DeadRows("pgqrs_messages", 1, 1, "{autovacuum_enabled=false}")]}),
        ("autovacuum", "warn", {"dead_rows": [DeadRows("pgqrs_messages", 10, 200_000, "")]}),
        ("autovacuum", "ok", {"dead_rows": [DeadRows("pgqrs_messages", 900_000, 200_000, "")]}),
        ("clock", "warn", {"server": WELL._replace(clock=30.0)}),
        ("clock", "warn", {"server": WELL._replace(clock=-30.0)}),
        ("clock", "ok", {"server": WELL._replace(clock=1.0)}),
        ("connections", "warn", {"server": WELL._replace(connections=95)}),
        ("encryption", "warn", {"line": ConnectionSecurity(False, "10.0.0.7")}),  # noqa: FBT003
        ("encryption", "ok", {"line": ConnectionSecurity(True, "10.0.0.7")}),  # noqa: FBT003
        ("encryption", "ok", {"line": ConnectionSecurity(False, "")}),  # noqa: FBT003
        ("transactions", "warn", {"oldest_transactions": [OpenTransaction("process 7", 400.0, "select 7")]}),
        ("transactions", "bad", {"oldest_transactions": [OpenTransaction("process 7", 4000.0, "select 7")]}),
        ("transactions", "ok", {"oldest_transactions": [OpenTransaction("process 7", 4.0, "select 7")]}),
    ],
)
async def test_what_is_wrong_with_a_server_is_found(store, server, code, level, said):
    server.update(said)

    assert (await found(store, code))[0] == {level}


@pytest.mark.backends("postgres")
async def test_a_real_server_is_asked_in_its_own_words(store):
    """As it stands in the tests: fsync off, no autovacuum trouble, nobody in a long transaction."""
    report = await pgqrs.admin(store).doctor()

    codes = {each.code for each in report.findings}
    assert {"database", "durability", "clock", "encryption", "autovacuum", "transactions", "connections"} <= codes
    assert "PostgreSQL" in next(each.what for each in report.findings if each.code == "database")


@pytest.mark.backends("postgres")
async def test_a_long_transaction_is_found_with_the_statement_that_ends_it(store, monkeypatch):
    monkeypatch.setattr(doctor_server, "_LONG_SECONDS", 0.0)
    connection = await asyncpg.connect(os.environ[DSN])
    await connection.execute("begin isolation level repeatable read; select 1")

    levels, said = await found(store, "transactions")

    await connection.close()
    assert (levels, "pg_terminate_backend" in said) == ({"warn"}, True)


@pytest.mark.backends("postgres")
async def test_hints_that_do_not_arrive_are_found(store, monkeypatch):
    behind_a_pooler = store.database.pooled
    assert (await found(store, "hints"))[0] == ({"warn"} if behind_a_pooler else {"ok"})

    # Whoever listens elsewhere hears nothing of what is said here: as behind a pooler.
    monkeypatch.setattr(doctor_server, "_HINT_SECONDS", 0.2)
    monkeypatch.setattr(asyncpg.Connection, "add_listener", _deaf)

    levels, said = await found(store, "hints")
    assert (levels, "PGQRS_LISTEN_DSN" in said) == ({"warn"}, True)


async def _deaf(self, channel, callback):
    del self, channel, callback


async def test_a_promoted_file_says_so(tmp_path):
    from pgqrs.db.drivers.sqlite.exclusive import frozen
    from pgqrs.db.upkeep import promotion_seal
    from pgqrs.db.upkeep.promotion import COPIED

    async with pgqrs.connect(f"sqlite:///{tmp_path / 'app.db'}") as store:
        async with frozen(store.database) as file:
            await promotion_seal.seal(
                file, promotion_seal.Seal("p", "postgresql://db/x", "public", datetime.now(UTC)), COPIED
            )
            await file.commit()

        report = await pgqrs.admin(store).doctor()

    assert report.level == "bad"
    assert "postgresql://db/x" in str(report)
