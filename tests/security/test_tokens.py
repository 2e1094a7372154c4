"""The file of tokens: who may read it, who changes it at the same time, and what strangers learn of it."""

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import pgqrs
from pgqrs.web import Scope, Tokens
from pgqrs.web.auth import tokens as kept
from rig.http import client
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o602, 0o620, 0o666, 0o644, 0o660, 0o610])
def test_a_file_that_others_may_touch_is_refused_with_the_way_out(file, mode):
    """The finding: a world-readable file was accepted."""
    kept.create(file, "ann", [Scope.ADMIN])
    file.chmod(mode)

    with pytest.raises(pgqrs.ConfigError, match=r"chmod 600 .*tokens"):
        Tokens(file)
    with pytest.raises(pgqrs.ConfigError, match="chmod 600"):
        kept.create(file, "bob", [Scope.READ])


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_for_its_owner_alone_is_taken(file, mode):
    token = kept.create(file, "ann", [Scope.READ])
    file.chmod(mode)

    assert Tokens(file).check(token).name == "ann"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_refused(file):
    kept.create(file, "ann", [Scope.READ])
    os.chown(file, 12345, -1)

    with pytest.raises(pgqrs.ConfigError, match="belongs to another user"):
        Tokens(file)


async def test_a_served_file_is_refused_too(config, store, file):
    kept.create(file, "ann", [Scope.ADMIN])
    file.chmod(0o644)

    with pytest.raises(AssertionError, match="chmod 600"):
        async with serving(config, "--tokens", file):
            pass


def _owned_by_another(file):
    os.chown(file, 12345, -1)


HARMS = [lambda file: file.chmod(0o666), lambda file: file.chmod(0o640), _owned_by_another]


@pytest.mark.parametrize("name", ["tokens", "tokens.sessions"])
@pytest.mark.parametrize("harm", HARMS, ids=["all", "group", "owner"])
async def test_a_file_that_others_may_touch_is_noticed_while_it_is_served(config, store, file, harm, name):
    """The finding: `chmod 666` leaves the text and its time as they are, so that nothing was noticed."""
    if harm is _owned_by_another and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    token = kept.create(file, "ann", [Scope.ADMIN])
    _, cookie = Tokens(file).begin(token)
    touched = file.with_name(name)
    async with serving(config, "--tokens", file) as served:
        known = {"cookie": f"pgqrs_session={cookie}"}
        assert (await served.get("/api/v1/stats", **known)).status == 200
        harm(touched)

        for headers in (known, *([served.bearer(token)] if name == "tokens" else [])):
            answered = await served.get("/api/v1/stats", **headers)
            assert (answered.status, answered.json["detail"]) == (503, "tokens cannot be checked now")
            assert str(file.parent).encode() not in answered.body
        touched.chmod(0o600)
        os.chown(touched, os.geteuid(), -1)
        assert (await served.get("/api/v1/stats", **known)).status == 200
        assert (await served.get("/api/v1/stats", **served.bearer(token))).status == 200
    assert "all callers are refused" in served.said
    assert f"{touched} " in served.said


# A process that makes and revokes tokens as fast as it can.
CHURN = """
import sys
from pathlib import Path
from pgqrs.web import Scope
from pgqrs.web.auth import tokens
file, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(count):
    tokens.create(file, f"{name}{number}", [Scope.READ])
    if number % 3 == 0:
        tokens.revoke(file, f"{name}{number}")
"""


async def test_processes_that_change_the_file_at_the_same_time_lose_nothing(file):
    """The finding: 79 of 120 new tokens were lost, and a revoked one came back in 13 of 20 rounds."""
    names, count = "abcdef", 20
    processes = await asyncio.gather(
        *(asyncio.create_subprocess_exec(sys.executable, "-c", CHURN, file, name, str(count)) for name in names)
    )
    assert await asyncio.gather(*(each.wait() for each in processes)) == [0] * len(names)

    expected = {f"{name}{number}" for name in names for number in range(count) if number % 3}
    assert {each.name for each in kept.read(file)} == expected
    assert file.stat().st_mode & 0o777 == 0o600
    # Nothing is left beside it but the lock.
    assert {each.name for each in file.parent.iterdir()} == {"tokens", ".tokens.lock"}


def test_a_token_expires(file):
    now = 1_000_000_000.0
    tokens = Tokens(file, now=lambda: now)
    token = kept.create(file, "ann", [Scope.READ], expires=timedelta(days=90))
    [known] = kept.read(file)
    assert tokens.check(token).name == "ann"
    _, cookie = tokens.begin(token)

    now = known.expires_at.timestamp() - 1
    assert (tokens.check(token).name, kept.read(file)) == ("ann", [known])
    now += 1
    assert tokens.check(token) is None
    assert (tokens.begin(token), tokens.of_session(cookie)) == (None, None)


def test_more_scopes_do_not_change_the_token(file):
    tokens = Tokens(file)
    token = kept.create(file, "shop", [Scope.TRIGGER])

    assert kept.grant(file, "shop", [Scope.SIGNAL, Scope.TRIGGER]) == (Scope.TRIGGER, Scope.SIGNAL)
    assert tokens.check(token).scopes == {Scope.TRIGGER, Scope.SIGNAL}
    with pytest.raises(pgqrs.ConfigError, match="there are: shop"):
        kept.grant(file, "nobody", [Scope.READ])


def _lines():
    good = '{"name": "a", "scopes": ["read"], "hash": "%s", "created_at": "x"%s}'
    yield from ("x", "[]", "3", "null", '{"name": 1}', good % ("ab", ""), good % ("0" * 64, ', "expires_at": "soon"'))
    yield from (good % ("0" * 64, ', "expires_at": 5'), good % ("0" * 64, ', "expires_at": "2030-01-01T00:00:00"'))


@pytest.mark.parametrize("line", list(_lines()))
async def test_a_broken_file_lets_nobody_in_and_tells_strangers_nothing(store, file, line, caplog):
    """The finding: strangers were told the path of the file, and what is wrong with it."""
    token = kept.create(file, "ann", [Scope.ADMIN])
    async with client(store, tokens=file, headers={}) as api:
        known = {"authorization": f"Bearer {token}"}
        assert (await api.get("/api/v1/stats", headers=known)).status_code == 200
        file.write_text(line + "\n")

        for headers in ({}, known, {"authorization": "Bearer x"}, {"cookie": "pgqrs_session=x"}):
            answered = await api.get("/api/v1/stats", headers=headers)

            assert answered.status_code == 503, headers
            assert "tokens" not in answered.text.replace("tokens cannot be checked now", "")
            assert "line 1" not in answered.text
            assert len(line) < 5 or line not in answered.text
        assert (await api.get("/healthz", headers=known)).status_code == 200
    assert str(file) in caplog.text


@pytest.mark.parametrize("harm", ["readable", "folder", "binary"])
async def test_a_file_that_becomes_unusable_lets_nobody_in(store, file, harm, caplog):
    token = kept.create(file, "ann", [Scope.ADMIN])
    async with client(store, tokens=file, headers={"authorization": f"Bearer {token}"}) as api:
        assert (await api.get("/api/v1/stats")).status_code == 200
        if harm == "readable":
            os.utime(file, (1, 1))
            file.chmod(0o644)
        elif harm == "folder":
            file.unlink()
            file.mkdir()
        else:
            file.write_bytes(b"\xff\xfe\x00")

        answered = await api.get("/api/v1/stats")

        assert (answered.status_code, str(file) in answered.text, str(file) in caplog.text) == (503, False, True)
        if harm != "folder":
            file.unlink()
        else:
            file.rmdir()
        assert (await api.get("/api/v1/stats")).status_code == 401


@pytest.mark.parametrize("is_absolute", [True, False], ids=["absolute", "relative"])
async def test_a_stranger_is_told_the_name_of_the_file_and_not_its_folder(store, tmp_path, monkeypatch, is_absolute):
    """The finding: a path that was given from the current folder on was told to strangers as it was."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3cret").mkdir()
    path = Path("s3cret/keys")
    kept.create(path, "ann", [Scope.READ])
    async with client(store, tokens=path.absolute() if is_absolute else path, headers={}) as http:
        answers = [await http.get(where, follow_redirects=True) for where in ("/", "/api/v1/runs", "/login", "/x")]

    assert "keys" in answers[1].json()["hint"]
    assert not any("s3cret" in each.text for each in answers)


@pytest.fixture
def patience():
    """A test that would wait forever fails after a minute."""

    def give_up(_number, _frame):
        raise TimeoutError("it waits for the writer of a pipe")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("name", ["tokens", "tokens.sessions"])
def test_a_pipe_in_place_of_a_file_is_refused_without_waiting_for_its_writer(file, name, patience):
    """The finding: a pipe that another user had made beside the tokens kept the server from starting."""
    kept.create(file, "ann", [Scope.READ])
    pipe = file.with_name(name)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe, 0o600)

    with pytest.raises(pgqrs.ConfigError, match=f"{name} must be a file"):
        Tokens(file)
