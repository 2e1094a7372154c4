"""Settings: an argument wins over the environment, the environment over the default; secrets stay secret."""

import pytest

import pgqrs
from pgqrs.text.dsn import masked


def test_the_default_is_a_sqlite_file_here():
    assert pgqrs.Config().dsn == "sqlite:///pgqrs.db"
    assert pgqrs.Config().path == "pgqrs.db"


def test_the_environment_overrules_the_default_and_an_argument_overrules_both(monkeypatch):
    monkeypatch.setenv("PGQRS_LEASE_SECONDS", "7.5")
    monkeypatch.setenv("PGQRS_REQUIRE_WORKERS", "yes")
    monkeypatch.setenv("PGQRS_DSN", "sqlite:///other.db")

    assert pgqrs.Config().lease_seconds == 7.5
    assert pgqrs.Config().require_workers is True
    assert pgqrs.Config().dsn == "sqlite:///other.db"
    assert pgqrs.Config(lease_seconds=30.0).lease_seconds == 30.0


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PGQRS_LEASE_SECONDS", "soon"),
        ("PGQRS_LEASE_SECONDS", "nan"),
        ("PGQRS_POOL_SIZE", "1_000"),
        ("PGQRS_POOL_SIZE", "1.5"),
        ("PGQRS_REQUIRE_WORKERS", "maybe"),
    ],
)
def test_a_bad_variable_is_named(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)

    with pytest.raises(pgqrs.ConfigError, match=variable):
        pgqrs.Config()


@pytest.mark.parametrize(
    "settings",
    [
        {"lease_seconds": 0.5},
        {"lease_seconds": float("nan")},
        {"lease_seconds": True},
        {"pool_size": 0},
        {"max_attempts": 0},
        {"max_payload_bytes": -1},
        {"poll_interval_seconds": 0},
        {"retry_seconds": float("inf")},
    ],
)
def test_a_bad_setting_is_named(settings):
    with pytest.raises(pgqrs.ConfigError, match=f"Config.{next(iter(settings))}"):
        pgqrs.Config(**settings)


@pytest.mark.parametrize("dsn", ["", "mysql://x", "pgqrs.db", "sqlite://", "sqlite:///", "://", "sqlite:///a\0b"])
def test_a_dsn_that_names_no_database_is_refused(dsn):
    with pytest.raises(pgqrs.ConfigError, match="DSN"):
        pgqrs.Config(dsn)


def test_a_schema_is_a_file_of_its_own_beside_the_first():
    assert pgqrs.Config("sqlite:////data/app.db", schema="tenant_a").path == "/data/app.tenant_a.db"
    assert pgqrs.Config("turso:///app.db", schema="tenant_a").path == "app.tenant_a.db"
    assert pgqrs.Config("sqlite://:memory:", schema="tenant_a").path == ":memory:"


def test_a_config_cannot_be_changed():
    with pytest.raises(AttributeError):
        pgqrs.Config().lease_seconds = 5


SECRET = "S3cr3t%?^]"


@pytest.mark.parametrize(
    "dsn",
    [
        f"postgresql://user:{SECRET}@localhost/db",
        f"postgresql://localhost/db?password={SECRET}",
        f"postgresql://localhost/db?password=abc@{SECRET}",
        f"postgresql://user:{SECRET}@[::1/db",
        f"postgresql://user:p@ss@{SECRET}@localhost/db",
        f"postgresql:user:{SECRET}@localhost/db",
        f"mysql://user:{SECRET}@localhost",
        f"{SECRET}",
    ],
)
async def test_a_password_is_never_shown(dsn):
    shown = [masked(dsn)]
    try:
        shown.append(repr(pgqrs.Config(dsn)))
        await pgqrs.connect(dsn)
    except pgqrs.PgqrsError as error:
        shown += [str(error), repr(error)]

    assert len(shown) > 1
    assert not [text for text in shown if SECRET in text or "S3cr3t" in text], shown


@pytest.mark.parametrize(
    ("dsn", "hint"),
    [
        ("tasks.db", r"^the DSN 'tasks\.db' names a file and no database; did you mean sqlite:///tasks\.db\?$"),
        ("postgresql+asyncpg://localhost/db", "postgresql://"),
        (5, "a DSN is text"),
        (
            "sqlite:/x.db",
            "one slash .*; use sqlite:///file.db for the first, sqlite:////folder/file.db for the second$",
        ),
        ("sqlite:///x.db?mode=ro", "options .* are not known; use sqlite:///file.db"),
    ],
)
def test_a_common_mistake_in_a_dsn_is_met_with_the_right_one(dsn, hint):
    with pytest.raises(pgqrs.ConfigError, match=hint):
        pgqrs.Config(dsn)


def test_an_unknown_setting_is_met_with_the_nearest():
    with pytest.raises(pgqrs.ConfigError, match=r"'lease'.*'lease_seconds'"):
        pgqrs.connect("sqlite://:memory:", lease=3)


def test_a_store_that_was_not_awaited_says_so():
    with pytest.raises(AttributeError, match="not connected yet"):
        pgqrs.connect("sqlite://:memory:").create_queue("tasks")


def test_no_schema_is_the_default_schema(monkeypatch):
    assert pgqrs.Config("sqlite://:memory:", schema=None).schema == "public"
    monkeypatch.setenv("PGQRS_SCHEMA", "tenant_a")
    assert pgqrs.Config("sqlite://:memory:", schema=None).schema == "tenant_a"
