"""`pgqrs doctor` and `pgqrs explain`."""

import pytest

import pgqrs
from pgqrs.db.queries import Query


async def test_findings_are_printed_for_people_and_programs(store, command):
    said = await command("doctor")
    as_json = await command("doctor", "-o", "json")

    assert "the tables are whole" in said.out
    assert {"code": "schema", "level": "ok"}.items() <= as_json.json["findings"][0].items()
    assert as_json.json["level"] in ("ok", "warn", "bad")
    assert said.code == as_json.code == (8 if as_json.json["level"] == "bad" else 0)


@pytest.mark.backends("sqlite", "turso")
async def test_what_is_well_ends_with_0_and_what_is_bad_with_8(live_store, command):
    assert (await command("doctor", "--verify")).code == 0
    await live_store.create_workflow("flow")
    await pgqrs.workflow("flow").trigger(None).execute(live_store)
    long_ago = Query("past", "update pgqrs_messages set visible_after = visible_after - 120 * 1000000")
    await live_store.database.execute(long_ago)

    said = await command("doctor")

    assert said.code == 8
    assert "fix: pgqrs worker run APP" in said.out
    assert "unserved" in (await command("doctor", "-o", "ids")).out.split()


@pytest.mark.backends("sqlite")
async def test_a_database_that_is_not_there_is_a_finding(command, tmp_path):
    said = await command("doctor", "-d", f"sqlite:///{tmp_path / 'typo.db'}", "-o", "json")

    assert said.code == 8
    [finding] = said.json["findings"]
    assert (finding["code"], finding["level"], "pgqrs install" in finding["fix"]) == ("database", "bad", True)


@pytest.mark.backends("postgres")
async def test_a_server_that_does_not_answer_is_a_finding_without_its_password(command):
    said = await command("doctor", "-d", "postgresql://ann:S3cr3t@127.0.0.1:1/x")

    assert said.code == 8
    assert "S3cr3t" not in said.out + said.err


@pytest.mark.backends("sqlite")
async def test_text_of_users_cannot_command_the_terminal(store, command):
    await store.create_workflow("flow")
    schedule = await pgqrs.schedules(store).create("nightly", "flow", every=3600)
    await store.database.execute(
        Query("spoil", "update pgqrs_schedules set last_error = :text where schedule_id = :id"),
        text="\x1b]0;owned\x07",
        id=schedule.schedule_id,
    )

    said = await command("doctor")

    assert "\x1b" not in said.out
    assert "owned" in said.out


@pytest.mark.backends("sqlite")
async def test_a_code_is_explained(command):
    said = await command("explain", "WorkflowNotFound")
    listed = await command("explain", "-o", "json")

    assert said.out.splitlines()[0] == "workflow-not-found (error)"
    assert len(listed.json["items"]) > 80
    assert (await command("explain", "nonsense")).code == 4
