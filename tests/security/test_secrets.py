"""A DSN's secrets appear nowhere: not in errors, traces, logs, reprs, settings or pages, however the DSN is written."""

import itertools
import logging
import traceback

import pytest

import pgqrs
from pgqrs.cli import app
from pgqrs.text.dsn import masked
from rig.command_line import invoke

# A password as people have them: with what means something in a URL, raw and escaped.
WORDS = ("S3cr3t", "S3cr3t!", "S3cr3t/x", "S3cr3t?x", "S3cr3t#x", "S3cr3t&x", "S3cr3t;x", "S3cr3t@x", "S3cr3t:x", "S3cr3t]",
         "[S3cr3t", "S3cr3t%zz", "S3cr3t x", "S3cr3t=x", "S3cr3t'\"", "x@S3cr3t", "x/S3cr3t", "x?S3cr3t", "x#S3cr3t", "x:S3cr3t",
         "1/S3cr3t", "1?S3cr3t", "1#@S3cr3t", "%2fS3cr3t", "%40S3cr3t", "%3fS3cr3t")  # fmt: skip
# Nothing listens on port 1: each fails at once, if it gets that far.
FORMS = (
    "postgresql://ann:{}@127.0.0.1:1/db", "postgres://ann:{}@127.0.0.1:1/db", "postgresql://{}@127.0.0.1:1/db",
    "postgresql://ann:{}@127.0.0.1:1,127.0.0.1:2/db", "postgresql://ann:{}@[::1]:1/db", "postgresql://ann:{}@%2Ftmp%2Fno:1/db",
    "postgresql://ann:{}", "postgresql://ann:{}/db", "postgresql://:{}@/db?host=/nowhere", "postgresql:ann:{}@127.0.0.1/db",
    "postgresql://127.0.0.1:1/db?password={}", "postgresql://127.0.0.1:1/db?user=ann&password={}&sslmode=disable",
    "postgresql://127.0.0.1:1/db?sslpassword={}", "postgresql://127.0.0.1:1/db?options={}", "postgresql://127.0.0.1:1/?password={}",
    "postgresql://127.0.0.1:1?password={}", "postgresql://127.0.0.1:1/db#password={}", "postgresql://127.0.0.1:1/db;password={}",
    "postgresql://127.0.0.1:1/db&password={}", "postgresql://127.0.0.1:1/db%3Fpassword={}", "postgresql://127.0.0.1:1/db password={}",
    "postgresql://127.0.0.1:1/db?sslmode=nonsense&password={}", "postgresql://127.0.0.1:port/db?password={}",
    "postgresql+psycopg://ann:{}@127.0.0.1/db", "postgres password={} host=a+b:5432", "host=127.0.0.1 password={} dbname=db",
    "sqlite:///x.db?key={}", "sqlite:///x.db?mode=ro&key={}", "sqlite:///x.db%3Fkey={}", "sqlite:///x.db#key={}", "sqlite:///x.db;key={}",
    "sqlite:///x.db&key={}", "sqlite://ann:{}@host/x.db", "sqlite://:{}@/x.db", "sqlite+pysqlcipher://:{}@/x.db?cipher=aes-256-cfb",
    "sqlite:x.db?key={}", "sqlite://:memory:?key={}", "sqlite:///:memory:?key={}", "sqlite://?key={}", "sqlite:?key={}", "x.db?key={}",
    "turso:///x.db?authToken={}", "turso:///x.db?tls=0&authToken={}", "turso:///x.db%3fauthToken={}", "turso:///x.db#authToken={}",
    "turso://ann:{}@db.turso.io/x.db", "turso://db.turso.io?authToken={}", "libsql://db.turso.io?authToken={}", "libsql://{}@db.turso.io",
    "mysql://ann:{}@host/db", "mysql://ann:{}", "redis://:{}@host", "{}", "{}://host", "://{}@host", "PGQRS_DSN=postgresql://ann:{}@h/d",
)  # fmt: skip
DSNS = [
    form.format(word)
    for form, word in itertools.product(FORMS, WORDS)
    # In a form without a host, what follows the @ is one, and a number with a slash is a port with its database.
    if not word.startswith(("x@", "1/")) or "@" in form or "=" in form or form == "{}"
]


def test_what_is_shown_of_a_dsn_holds_no_secret():
    assert [dsn for dsn in DSNS if "S3cr3t" in masked(dsn)] == []


def test_what_is_shown_of_a_dsn_tells_which_database_it_is():
    assert {dsn: masked(dsn) for dsn in TOLD} == TOLD


TOLD = {
    "postgresql://localhost/db": "postgresql://localhost/db",
    "postgresql://ann:pw@db.example.org:5433/shop?sslmode=require": "postgresql://***@db.example.org:5433/shop?***",
    "postgresql://ann:p&w;x@db/shop": "postgresql://***@db/shop",
    "postgresql://ann@h1:1,h2:2/shop": "postgresql://***@h1:1,h2:2/shop",
    "postgresql://[::1]:5432/shop": "postgresql://[::1]:5432/shop",
    "postgresql://ann@%2Fvar%2Frun/shop": "postgresql://***@%2Fvar%2Frun/shop",
    "postgresql:///shop?host=/tmp": "postgresql:///shop?***",
    "sqlite:///my files/grüße#1.db": "sqlite:///my files/grüße#1.db",
    "sqlite:////srv/app.db": "sqlite:////srv/app.db",
    "sqlite://:memory:": "sqlite://:memory:",
    "turso:///x.db?authToken=t": "turso:///x.db?***",
}


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


async def _shown_by(dsn):
    """All that a program shows of a store that it cannot connect to, or can."""
    shown = []
    try:
        config = pgqrs.Config(dsn, retry_seconds=0)
        shown += [repr(config), str(config), config.safe_dsn]
        async with pgqrs.connect_with(config) as store:
            shown += [repr(store), str(store)]
            await pgqrs.workflow("flow").get_run(1, store)
    except pgqrs.PgqrsError as error:
        shown += [str(error), repr(error), *traceback.format_exception(error)]
    return "\n".join(shown)


async def test_no_failure_shows_the_secret_of_its_dsn(caplog):
    caplog.set_level(logging.DEBUG)
    shown = {dsn: await _shown_by(dsn) for dsn in DSNS}

    assert [(dsn, each) for dsn, each in shown.items() if "S3cr3t" in each] == []
    assert "S3cr3t" not in caplog.text


@pytest.mark.parametrize("dsn", ["turso:///x?authToken=S3cr3t", "sqlite:///x?key=S3cr3t"])
async def test_options_of_a_file_are_refused_with_the_way_out(dsn):
    with pytest.raises(pgqrs.ConfigError, match=r"options .* are not known; use (sqlite|turso):///file.db") as caught:
        pgqrs.Config(dsn)

    assert "S3cr3t" not in str(caught.value)


async def test_a_file_has_no_user():
    with pytest.raises(pgqrs.ConfigError, match="a file has no user"):
        pgqrs.Config("sqlite://ann:S3cr3t@host/x.db")


@pytest.mark.parametrize("words", ["config show", "doctor", "schema verify", "run list -v", "promote {0} {0} --yes"])
async def test_no_command_shows_the_secret_of_its_dsn(words, monkeypatch):
    tree = app.tree()
    monkeypatch.setenv("PGQRS_RETRY_SECONDS", "0")
    said = {}
    for form in FORMS[::3]:
        dsn = form.format("S3cr3t")
        monkeypatch.setenv("PGQRS_DSN", dsn)
        said[dsn] = await invoke(tree, [word.format(dsn) for word in words.split()], monkeypatch)

    assert [(dsn, each) for dsn, each in said.items() if "S3cr3t" in each.out + each.err] == []


async def test_a_server_that_refuses_a_role_is_quoted_without_its_password(monkeypatch):
    """The words are the server's; what of them stands in the DSN is not shown."""
    import asyncpg

    async def refuse(*args, **kwargs):
        raise asyncpg.InvalidPasswordError('password authentication failed for user "ann", password S3cr3t x')

    monkeypatch.setattr(asyncpg, "connect", refuse)
    for dsn in ("postgresql://ann:S3cr3t%20x@127.0.0.1/db", "postgresql://127.0.0.1/db?user=ann&password=S3cr3t+x"):
        assert "S3cr3t" not in await _shown_by(dsn)
    many = "&".join(f"option{n}=S3cr3t{n}" for n in range(200))
    assert "S3cr3t" not in await _shown_by(f"postgresql://127.0.0.1/db?{many}")
