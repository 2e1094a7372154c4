"""The command line: what it says, and with which code it ends."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pgqrs.db import migrations


def pgqrs_command(*arguments, cwd=None, **environment):
    command = [sys.executable, "-m", "pgqrs.cli", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, check=False)


def test_install_says_where_it_installed(config):
    done = pgqrs_command("install", PGQRS_DSN=config.dsn, PGQRS_SCHEMA=config.schema)

    assert done.returncode == 0, done.stderr
    assert f"schema {config.schema}: the tables are at version {migrations.latest_version()}" in done.stdout
    for verb, said in (("verify", "the tables are whole"), ("version", str(migrations.latest_version()))):
        checked = pgqrs_command("schema", verb, "--dsn", config.dsn, "--schema", config.schema)
        assert (checked.returncode, checked.stdout.strip()) == (0, said)


@pytest.mark.parametrize("verb", ["verify", "version"])
def test_looking_at_a_file_that_is_not_there_does_not_make_it(tmp_path, verb):
    done = pgqrs_command("schema", verb, "--dsn", f"sqlite:///{tmp_path / 'typo.db'}")

    assert done.returncode == 9
    assert "there is no file" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("slashes", ["///", "////"])
def test_a_file_in_a_folder_that_is_not_there_is_made_by_the_command_that_is_named(tmp_path, slashes):
    """The finding: it named `pgqrs install`, which then asked for the folder."""
    file = Path("no such/dir/x.db") if slashes == "///" else tmp_path / "no such/dir/x.db"
    given = {"PGQRS_DSN": f"sqlite:///{file}", "cwd": tmp_path}
    missing = pgqrs_command("run", "list", **given)
    named = re.search(r"make both with `mkdir -p -- (.*) && pgqrs install`", missing.stderr)
    [folder] = shlex.split(named.group(1))
    (tmp_path / folder).mkdir(parents=True)
    installed = pgqrs_command("install", **given)
    listed = pgqrs_command("run", "list", **given)

    assert missing.returncode == 9
    assert ("four slashes begin an absolute path" in missing.stderr) == (slashes == "///")
    assert (installed.returncode, listed.returncode) == (0, 0), (installed, listed)


@pytest.mark.backends("postgres")
def test_a_missing_database_is_made_by_the_command_that_is_named(config):
    dsn = re.sub(r"/[^/?]*(?=$|\?)", "/no_such_shop", config.dsn)
    done = pgqrs_command("install", PGQRS_DSN=dsn)

    assert done.returncode == 9
    assert "create it on that server with `createdb no_such_shop`, or correct the DSN" in done.stderr
    assert "config show" not in done.stderr


@pytest.mark.backends("postgres")
def test_a_missing_schema_has_a_code_of_its_own(config):
    done = pgqrs_command("schema", "verify", PGQRS_DSN=config.dsn, PGQRS_SCHEMA=config.schema)

    assert done.returncode == 8
    assert f"pgqrs install --schema={config.schema}" in done.stderr


def test_bad_usage_is_2():
    assert pgqrs_command("schema", "nonsense").returncode == 2
    assert pgqrs_command("install", "--dsn", "mysql://x").returncode == 2


def test_the_sql_can_be_printed_without_a_database():
    done = pgqrs_command("schema", "sql", "--dsn", "postgresql://nowhere/db", "--schema", "tenant_a")

    assert done.returncode == 0
    assert 'create table "tenant_a".pgqrs_messages' in done.stdout
