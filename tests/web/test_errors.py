"""Errors: whatever goes wrong, a client learns an id and no more of our insides."""

import asyncio
import logging
import sqlite3

import pytest

import pgqrs
from pgqrs import faults
from pgqrs.db.database import IntegrityViolation
from pgqrs.web import routing
from pgqrs.web.problems import Problem, problem_of
from rig import http

SECRET = "S3cr3t"
DSN = f"postgresql://ann:{SECRET}@db.internal:5432/jobs"
SQL = "select run_id from pgqrs_workflow_runs where status = 'x'"
INSIDES = (
    SECRET,
    "db.internal",
    "pgqrs_workflow_runs",
    "Traceback",
    "File ",
    ".py",
    "/srv/jobs",
    "asyncpg",
    "sqlite3",
)

ERRORS = [
    RuntimeError(f"{SQL} failed"),
    ValueError(DSN),
    KeyError(SECRET),
    TypeError(SQL),
    AttributeError(f"{SECRET} has no attribute"),
    ZeroDivisionError(SECRET),
    OSError(5, "Input/output error", "/srv/jobs/app.db"),
    PermissionError(13, "denied", f"/srv/jobs/{SECRET}"),
    RecursionError(SECRET),
    MemoryError(SECRET),
    UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, "bad"),
    TimeoutError(DSN),
    sqlite3.OperationalError(f"near {SQL}"),
    IntegrityViolation(f"UNIQUE constraint failed: pgqrs_workflow_runs.{SECRET}"),
    pgqrs.PgqrsError(f"{DSN} {SQL}"),
    pgqrs.ConnectionFailed(f"cannot use {DSN}: asyncpg.TooManyConnections"),
    pgqrs.ConnectionFailed(f"SQLite could not use '/srv/jobs/app.db': {SQL}", ambiguous=True),
    pgqrs.SchemaNotInstalled(f"relation pgqrs_workflow_runs does not exist; {DSN}"),
    pgqrs.SchemaMismatch(f"{DSN} is older", found=1, expected=2),
    pgqrs.LeaseLost(f"{SECRET} /srv/jobs"),
    pgqrs.StepFailed("s", kind="asyncpg.Error", message=SECRET),
    pgqrs.NonDeterminism(f"{SECRET}.py"),
]


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_tells_nothing_of_our_insides(store, monkeypatch, caplog, error):
    async def fails(asked):
        raise error

    endpoint = routing.Endpoint("GET", "/fails", fails, None, "It fails")
    monkeypatch.setattr("pgqrs.web.application.endpoints", lambda **_: [endpoint])
    async with http.client(store) as client:
        with caplog.at_level(logging.ERROR, "pgqrs.web"):
            answer = await client.get("/fails")

    told = answer.json()
    assert answer.status_code in (500, 503)
    assert not [each for each in INSIDES if each in answer.text], answer.text
    if not isinstance(error, TimeoutError):
        # Whoever has the log finds it there.
        assert told["error_id"] in caplog.text
        assert caplog.records[-1].exc_info[1] is error


async def test_a_broken_statement_tells_nothing_of_itself(store, furnished):
    def break_it():
        raise RuntimeError("get_run cannot be sent")

    async with http.client(store) as client:
        with faults.injected(faults.at("sql", "get_run", break_it)):
            answer = await client.get(f"/api/v1/runs/{furnished['run_id']}")

    assert answer.status_code == 500
    assert answer.json()["error_id"]
    assert "get_run" not in answer.text


async def test_a_database_that_is_gone_is_a_503_that_says_when_to_come_back(store):
    await store.close()
    async with http.client(store) as client:
        answer = await client.get("/api/v1/runs")

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert store.config.path not in answer.text if store.config.backend != "postgres" else True


def test_half_a_character_in_a_problem_is_told_as_its_escape():
    response = Problem(422, "bad-request", "not \ud800").response()

    assert b"\\ud800" in response.body


def test_what_is_no_error_of_ours_keeps_its_own_words():
    assert problem_of(Problem(418, "teapot", "short and stout")).detail == "short and stout"


@pytest.mark.backends("sqlite")
async def test_a_handler_that_takes_too_long_is_given_up(store, monkeypatch):
    ended = asyncio.Event()

    async def waits(asked):
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    endpoint = routing.Endpoint("GET", "/waits", waits, None, "It waits", seconds=0.01)
    monkeypatch.setattr("pgqrs.web.application.endpoints", lambda **_: [endpoint])
    async with http.client(store) as client:
        answer = await client.get("/waits")

    assert (answer.status_code, answer.json()["code"]) == (503, "too-slow")
    assert ended.is_set()
