"""A tenant with SQL: `pgqrs_trigger` refuses what the Python API refuses, and runs nothing but its own code."""

import json
import random
import re
from datetime import datetime

import asyncpg
import pytest

import pgqrs
from pgqrs.api.trigger import new_runs

pytestmark = pytest.mark.backends("postgres")

_NUMBERS = (
    *(0, 1, 3, 5, -1, -5, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63, 10**30, 1.0, 0.5, 1e3, 1e99, 1e300, -0.5),
    *(True, False, None, "5", "-5", "x", "", "1e400", "NaN", "Infinity", "0x10", "1_000", [], {}, [1]),
)
_TIMES = (
    *(
        "2031-01-01T00:00:00+00:00",
        "1970-01-01T00:00:00+00:00",
        "2970-12-31T23:59:59+00:00",
        "2971-01-01T00:00:00+00:00",
    ),
    *("1969-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00", "9999-12-31T23:59:59+00:00", "infinity", "-infinity"),
    *("0044-03-15 12:00 BC", "294276-12-31", "10000-01-01", "4713-01-01 BC", "", "x", None, 5),
)
_KEYS = (
    "k",
    "",
    "x" * 500,
    "x" * 501,
    "a\nb",
    "a\u00a0b",
    "\u202ek",
    "schön",
    "\ufeff",
    "\ue000",
    "\u2028",
    None,
    "a b",
    "\x7f",
)
_ATTRIBUTES = (
    None,
    {},
    {"a": 1},
    {"a": {"b": []}},
    [],
    5,
    "x",
    True,
    {"a": "x" * 300},
    {"a\u202e": "b"},
    {"big": "y" * 3000},
)
_OTHERS = {"audit": ("none", "normal", "full", "x", None), "nonsense": (1, None), "Priority": (1,)}


@pytest.fixture
async def sql(store, flow, config):
    connection = await asyncpg.connect(config.dsn, statement_cache_size=0)

    async def trigger(params, options) -> int:
        text = f'select "{config.schema}".pgqrs_trigger($1, $2::text::json, $3::text::json)'
        return await connection.fetchval(
            text, "flow", params, options if isinstance(options, str) else json.dumps(options)
        )

    trigger.connection = connection
    yield trigger
    await connection.close()


@pytest.fixture
async def flow(store):
    await store.create_workflow("flow")
    return pgqrs.workflow("flow")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"run_at": "0044-03-15 12:00:00 BC"}, "run_at must lie between the years 1970 and 2970"),
        ({"run_at": "infinity"}, "run_at must lie between the years 1970 and 2970, not infinity"),
        ({"run_at": "-infinity"}, "run_at must lie between"),
        ({"run_at": "294276-12-31"}, "run_at must lie between"),
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1 to 2,147,483,647, not 0"),
        ({"max_attempts": -5}, "max_attempts must be a whole number from 1"),
        ({"max_attempts": 2.5}, "max_attempts must be a whole number"),
        ({"priority": "high"}, "priority must be a whole number from -2,147,483,648"),
        ({"delay": -1}, "delay must be seconds from 0 to 100 years, not -1"),
        ({"delay": "Infinity"}, "delay must be seconds"),
        ({"delay": 1e12}, "delay must be seconds"),
        ({"delay": 5, "run_at": "2031-01-01"}, "either delay or run_at"),
        ({"attributes": [1]}, "attributes must be an object"),
        ({"idempotency_key": ""}, "idempotency key '' is not allowed"),
        ({"idempotency_key": "a\nb"}, "is not allowed"),
        ({"retries": 3}, "does not know the option 'retries'"),
        ("[]", "options must be an object"),
        ("5", "options must be an object"),
        ({"audit": "loud"}, "audit must be one of none, normal, full"),
    ],
)
async def test_what_the_api_refuses_is_refused_in_sql_with_its_cause(store, flow, sql, options, told):
    with pytest.raises(asyncpg.InvalidParameterValueError, match=re.escape(told)):
        await sql('{"n": 1}', options)

    assert await flow.runs(store) == []


async def test_a_payload_above_the_limit_is_refused_in_sql(store, flow, sql):
    large = json.dumps("x" * 2_097_152)

    with pytest.raises(
        asyncpg.InvalidParameterValueError, match="the payload takes 2097154 bytes, the limit is 2097152"
    ):
        await sql(large, {})
    with pytest.raises(asyncpg.InvalidParameterValueError, match="the payload takes"):
        await sql("{}", {"attributes": {"big": "x" * 2_097_152}})

    assert await sql(large, {"max_payload_bytes": 3_000_000}) > 0


@pytest.mark.parametrize("text", ['"\\u0000"', '{"a": "\\ud800"}', '{"a\\u0000": 1}'])
async def test_text_that_no_worker_could_read_is_refused_in_sql(store, flow, sql, text):
    with pytest.raises((asyncpg.UntranslatableCharacterError, asyncpg.InvalidTextRepresentationError)):
        await sql(text, {})
    with pytest.raises((asyncpg.UntranslatableCharacterError, asyncpg.InvalidTextRepresentationError)):
        await sql("{}", f'{{"attributes": {{"a": {text}}}}}')

    assert await flow.runs(store) == []


async def test_generated_options_are_refused_in_sql_if_they_are_in_python(store, flow, sql):
    """The oracle is the API: whatever it refuses, the function must."""
    chance = random.Random(26)
    found = await store.workflow("flow")
    pools = {
        "priority": _NUMBERS, "max_attempts": _NUMBERS, "delay": _NUMBERS, "run_at": _TIMES, "idempotency_key": _KEYS,
        "attributes": _ATTRIBUTES, **_OTHERS,
    }  # fmt: skip
    accepted = refused = 0
    for n in range(600):
        options = {
            name: chance.choice(pools[name]) for name in chance.sample(list(pools), k=chance.choice((1, 1, 2)))
        }
        is_fine = _python_takes(store.config, found, options)
        if options.get("idempotency_key") and is_fine:
            options["idempotency_key"] = f"{options['idempotency_key'][:400]}{n}"
        try:
            await sql(json.dumps({"n": n}), options)
        except asyncpg.PostgresError:
            refused += 1
        else:
            accepted += 1
            assert is_fine, f"{options} was accepted in SQL"
    assert accepted > 100
    assert refused > 100


def _python_takes(config, found, options) -> bool:
    given = {name: value for name, value in options.items() if value is not None}
    if given.pop("audit", "none") not in ("none", "normal", "full") or any(
        name not in ("idempotency_key", *_TAKEN) for name in options if name != "audit"
    ):
        return False
    for name in ("priority", "max_attempts", "delay"):
        if isinstance(given.get(name), str) and re.fullmatch(r"-?\d+", given[name]):
            # A number in quotes is a number in SQL.
            given[name] = int(given[name])
    try:
        if "run_at" in given:
            given["run_at"] = datetime.fromisoformat(given["run_at"])
        keys = [given.pop("idempotency_key")] if "idempotency_key" in given else []
        new_runs(config, found, [{"n": 1}], keys, **given)
    except (pgqrs.PgqrsError, ValueError, TypeError):
        return False
    return True


_TAKEN = ("priority", "max_attempts", "delay", "run_at", "attributes")


async def test_a_planted_function_does_not_run_in_the_trigger(store, flow, sql, config):
    evil = f"evil_{config.schema}"
    connection = sql.connection
    await connection.execute(f"""
        create schema "{evil}";
        create table "{evil}".stolen (what text);
        create function "{evil}".statement_timestamp() returns timestamptz language plpgsql as $$
            begin insert into "{evil}".stolen values ('clock'); return pg_catalog.statement_timestamp(); end $$;
        create function "{evil}".length(text) returns integer language plpgsql as $$
            begin insert into "{evil}".stolen values ('length'); return 1; end $$;
        create function "{evil}".quote_literal(text) returns text language plpgsql as $$
            begin insert into "{evil}".stolen values ('quote'); return 'x'; end $$;
        create function "{evil}".same(text, text) returns boolean language plpgsql as $$
            begin insert into "{evil}".stolen values ('operator'); return pg_catalog.texteq($1, $2); end $$;
        create operator "{evil}".= (leftarg = text, rightarg = text, function = "{evil}".same);
    """)
    try:
        await connection.execute(f'set search_path to "{evil}", pg_catalog')

        await sql('{"n": 1}', {"attributes": {"customer": "c42"}, "idempotency_key": "k"})

        assert await connection.fetch(f'select what from "{evil}".stolen') == []
    finally:
        await connection.execute(f'reset search_path; drop schema "{evil}" cascade')
