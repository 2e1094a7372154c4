"""SQL texts: where they live, how they are rendered, and which are written twice."""

import ast
import re
from pathlib import Path

import pytest

import pgqrs
from pgqrs.db.dialect import Dialect
from pgqrs.db.queries import TABLES, compile_statement
from pgqrs.db.readable import IDS, INTEGERS, JSON, NUMBERS, TEXTS, is_time

SOURCE = Path(pgqrs.__file__).parent
POSTGRES, SQLITE = Dialect("postgres", "tenant_a"), Dialect("sqlite")

# Texts that PostgreSQL has for itself. A new one needs a measurement; the list is here so that its growth is seen.
OVERRIDES: dict[str, set[str]] = {
    "0001_initial.postgres.sql": set(),  # the SQL function
    "0002_durable_intent.postgres.sql": set(),  # the same, with more options
    "0003_lighter_steps.postgres.sql": set(),  # drops what only PostgreSQL pays for
    "0004_checked_trigger.postgres.sql": set(),  # the SQL function, which refuses what the API refuses
    "unreadable_rows.postgres.sql": {
        *("wrong_time", "wrong_id", "wrong_integer", "wrong_number", "wrong_text", "wrong_json", "wrong_parent"),
        "instead_time",
    },  # types that the server keeps to
    "history.postgres.sql": {"lock_migrations", "history_exists", "schema_exists", "columns", "indexes"},
    "claims.postgres.sql": {"start_runs", "claim_runs"},
    "settlement.postgres.sql": {
        "settle",
        "settle_steps",
        "_held_and_recorded",
        "_who_was_lost",
    },  # the statements of settlement.sql in one
    "messages.postgres.sql": {
        "lease_messages",
        "lease_limited_messages",
        "_picked",
        "_allowed",
        "_taken",
        "_lease",
        "archive_messages",
        "delete_messages",
        "renew_leases",  # passes over locked rows
        "settle_and_lease",  # archives and leases in one round trip
        "settle_and_lease_in_bands",
        "_settled",
        "_not_settled",
        "_turned",
    },
    "invariants.postgres.sql": {"unfinished_indexes", "amcheck", "btrees", "check_btree"},  # its catalogue
    "metrics.postgres.sql": {"database_bytes"},
    "throughput.postgres.sql": {
        "ended_per_bucket",
        "durations_sampled",
    },  # lateral: else it walks all that ever ended
    "triggers.postgres.sql": {"trigger_runs"},  # the statements of a trigger in one
    "outbox.postgres.sql": {"notify"},  # there is nothing like it elsewhere
    "queues.postgres.sql": {"lock_queue"},
    "diagnostics.postgres.sql": {  # what only a server can be asked
        "server",
        "line",
        "dead_rows",
        "oldest_transaction",
        "oldest_prepared",
        "tables_named",
    },
    "promotion.postgres.sql": {  # only PostgreSQL is promoted to
        "column_types",
        "lock_table",
        "has_rows",
        "look_back",
        "next_copied",
        "end_look",
        "set_last_id",
        "analyze_table",
    },
}


def test_the_texts_that_postgresql_has_for_itself_are_known():
    found = {
        file.name: set(re.findall(r"^-- name: (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))
        for file in SOURCE.rglob("*.postgres.sql")
    }
    print(found)

    assert found == OVERRIDES


def test_sql_lives_in_sql_files():
    """No statement in a Python file, but for the few that have no values and no table: pragmas, begin, commit."""
    verbs = re.compile(
        r"\b(select .+ from|insert into|update \w+ set|delete from|create table|drop )\b", re.IGNORECASE
    )
    offenders = [
        f"{file.relative_to(SOURCE)}: {node.value[:60]!r}"
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and verbs.search(node.value)
        # The row source of {rows} is part of the dialect.
        if file.name != "dialect.py"
    ]

    assert offenders == []


def test_names_are_ordered_by_their_bytes():
    """A server's collation would give lists, and the pages of lists, another order than the other databases."""
    text = re.compile(r"\b(name|step_id|workflow|hostname|what|status|target_status|key)\b")
    offenders = [
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for file in SOURCE.rglob("*.sql")
        for line in file.read_text(encoding="utf-8").splitlines()
        if line.strip().startswith("order by") and text.search(re.sub(r"\{by [^}]*\}|case .* end", "", line))
        # SQLite's own catalogue.
        if (file.name, line) != ("diagnostics.sql", "order by name;")
    ]

    assert offenders == []


def test_every_query_compiles_for_every_dialect():
    from pgqrs.db import migrations
    from pgqrs.db.runs import claims, history, settlement, transitions, triggers
    from pgqrs.db.tables import messages, outbox, queues, runs, schedules, workers, workflows
    from pgqrs.db.upkeep import retention
    from pgqrs.db.views import changes, metrics, run_details, search, throughput

    tables = (messages, outbox, queues, runs, schedules, workers, workflows)
    for module in (
        *tables,
        changes,
        claims,
        run_details,
        history,
        transitions,
        metrics,
        migrations,
        throughput,
        retention,
        search,
        settlement,
        triggers,
    ):
        for query in module._SQL.values():
            for dialect in (POSTGRES, SQLITE):
                statement = query.compiled(dialect, "numbered" if dialect.is_postgres else "named")

                assert not re.search(r"\{[a-z]", statement.sql)
                assert "--" not in statement.sql


def test_tables_are_qualified_with_their_schema():
    statement = compile_statement("x", "select a from pgqrs_queues where name = 'pgqrs_queues'", POSTGRES, "numbered")

    assert statement.sql == "select a from \"tenant_a\".pgqrs_queues where name = 'pgqrs_queues'"


def test_a_parameter_that_stands_twice_is_sent_once():
    statement = compile_statement("x", "select :a::int, :b, :a, ':c'", POSTGRES, "numbered")

    assert statement.sql == "select $1::int, $2, $1, ':c'"
    assert statement.arguments({"a": 1, "b": 2}) == [1, 2]


@pytest.mark.parametrize(
    ("style", "sql"),
    [("pyformat", "a %% %(b)s %(b)s"), ("format", "a %% %s %s"), ("qmark", "a % ? ?"), ("named", "a % :b :b")],
)
def test_each_style_of_placeholder_is_known(style, sql):
    assert compile_statement("x", "a % :b :b", SQLITE, style).sql == sql


def test_tokens_may_stand_inside_tokens():
    statement = compile_statement("x", "{seconds {now} since t}", SQLITE, "named")

    assert statement.sql.endswith("- t) / 1000000.0, 1e12), -1e12)")


def test_an_unknown_token_is_refused():
    with pytest.raises(ValueError, match="nonsense"):
        compile_statement("x", "{nonsense}", SQLITE, "named")


def test_time_columns_are_told_by_their_names():
    """The drivers decode by name, so the names must be right."""
    text = "".join(f.read_text(encoding="utf-8") for f in (SOURCE / "db/migrations").glob("0*_*[a-z].sql"))
    columns = re.findall(r"^ +(\w+) (\S+)", text, re.MULTILINE)

    assert {name for name, kind in columns if kind.rstrip(",") == "{time}"} == {
        name for name, kind in columns if is_time(name)
    }


def test_every_column_has_one_known_type():
    """Rows of SQLite are made to fit by it: a column that is missing here comes as it is."""
    text = "".join(f.read_text(encoding="utf-8") for f in (SOURCE / "db/migrations").glob("0*_*[a-z].sql"))
    tables = re.findall(r"create table \w+ \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    columns = set(re.findall(r"^ {4}(\w+) (\S+?),?(?: |$)", "\n".join(tables), re.MULTILINE))
    columns |= set(re.findall(r"add column (\w+) (\S+?);", text))
    kinds = {
        "{id}": IDS,
        "{ref}": IDS,
        "integer": INTEGERS,
        "double": NUMBERS,
        "text": TEXTS,
        "{json}": JSON,
    }
    found = {name: kinds[kind] for name, kind in columns if kind in kinds}

    assert {name for name, known in found.items() if name not in known} == set()
    assert {name for name, kind in columns if kind not in kinds and not is_time(name)} <= {"primary", "what"}
    assert set(found) == IDS | INTEGERS | NUMBERS | TEXTS | JSON


def test_the_known_tables_are_those_of_the_migrations():
    text = "".join(f.read_text(encoding="utf-8") for f in (SOURCE / "db/migrations").glob("*.sql"))

    assert set(re.findall(r"create table (?:if not exists )?(\w+)", text)) == set(TABLES)
