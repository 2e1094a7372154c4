"""Sessions of browsers: nothing on the disk can be made into one, and each comes to an end on the server."""

import errno
import hmac
import json
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from urllib.parse import urlencode

import pytest

from pgqrs.web import Scope, Tokens
from pgqrs.web.auth import tokens as kept
from pgqrs.web.auth.private_file import replace_private
from pgqrs.web.auth.sessions import MOST_SESSIONS, RETRY_SECONDS, SESSION_SECONDS, SharedSessions
from rig import http
from rig.asgi import Browser
from rig.html import parsed
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")

STATS = "/api/v1/stats"
FORM = {"content_type": "application/x-www-form-urlencoded"}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "tokens"


@pytest.fixture
def token(file):
    return kept.create(file, "ann", [Scope.ADMIN])


async def log_in(served, token):
    """As a browser does it; gives its cookies."""
    shown = await served.get("/login")
    [form] = parsed(shown.body.decode()).forms
    body = urlencode({**form.fields, "token": token}).encode()
    origin = f"http://127.0.0.1:{served.port}"
    done = await served.ask("POST", "/login", body, cookie=jar(shown.cookies), origin=origin, **FORM)
    assert done.status == 303, done.body
    return {**shown.cookies, **done.cookies}


async def log_out(served, cookies):
    shown = await served.get("/", cookie=jar(cookies))
    [form] = [each for each in parsed(shown.body.decode()).forms if each.action == "/logout"]
    origin = f"http://127.0.0.1:{served.port}"
    return await served.ask(
        "POST", "/logout", urlencode(form.fields).encode(), cookie=jar(cookies), origin=origin, **FORM
    )


def jar(cookies):
    return "; ".join(f"{name}={value}" for name, value in cookies.items())


async def test_reading_the_files_makes_nobody_an_admin(config, store, file, token):
    """The finding: cookies were signed with the stored hash, so the file made sessions of 30 years."""
    async with serving(config, "--tokens", file) as served:
        cookies = await log_in(served, token)
        assert (await served.get(STATS, cookie=jar(cookies))).status == 200
        [line] = file.read_text().splitlines()
        stored = json.loads(line)["hash"]
        until = int(time.time()) + 30 * 365 * 86_400
        signed = hmac.new(bytes.fromhex(stored), f"session.ann.{until}".encode(), sha256).hexdigest()
        assert (await served.get(STATS, cookie=f"pgqrs_session=ann.{until}.{signed}")).status == 401

        sessions = file.with_name("tokens.sessions")
        known = json.loads(sessions.read_text())
        assert sessions.stat().st_mode & 0o777 == 0o600
        assert cookies["pgqrs_session"] not in file.read_text() + sessions.read_text()
        for each in (stored, *known, *(each["token"] for each in known.values())):
            assert (await served.get(STATS, cookie=f"pgqrs_session={each}")).status == 401
            assert (await served.get(STATS, **served.bearer(each))).status == 401


async def test_logging_out_ends_the_session_on_every_server(config, store, file, token):
    async with serving(config, "--tokens", file) as one, serving(config, "--tokens", file) as other:
        cookies, kept_on = await log_in(one, token), await log_in(other, token)
        # What one has begun, the other knows.
        assert (await other.get(STATS, cookie=jar(cookies))).status == 200

        assert (await log_out(one, cookies)).status == 303

        for served in (one, other):
            assert (await served.get(STATS, cookie=jar(cookies))).status == 401
            assert (await served.get(STATS, cookie=jar(kept_on))).status == 200
    async with serving(config, "--tokens", file) as again:
        assert (await again.get(STATS, cookie=jar(cookies))).status == 401
        assert (await again.get(STATS, cookie=jar(kept_on))).status == 200
    assert "log-in by ann" in one.said
    assert "log-out by ann" in one.said


async def test_a_form_of_one_server_is_taken_by_another(config, store, file, token):
    await store.create_workflow("flow")
    async with serving(config, "--tokens", file) as one, serving(config, "--tokens", file) as other:
        cookies = await log_in(one, token)
        shown = await one.get("/workflows/flow/confirm/pause", cookie=jar(cookies))
        [form] = [each for each in parsed(shown.body.decode()).forms if each.action.endswith("/pause")]
        origin = f"http://127.0.0.1:{other.port}"
        done = await other.ask(
            "POST", form.action, urlencode(form.fields).encode(), cookie=jar(cookies), origin=origin, **FORM
        )

        assert done.status == 303, done.body


def test_a_session_ends_after_its_time_whatever_the_browser_keeps(file, token):
    now = 1_000_000_000.0
    tokens = Tokens(file, now=lambda: now)
    _, cookie = tokens.begin(token)

    now += SESSION_SECONDS - 1
    assert tokens.of_session(cookie).name == "ann"
    now += 1
    assert tokens.of_session(cookie) is None
    tokens.begin(token)
    # What has ended is forgotten.
    assert len(json.loads(file.with_name("tokens.sessions").read_text())) == 1


def test_a_session_ends_with_its_token_and_not_with_its_name(file, token):
    tokens = Tokens(file)
    _, cookie = tokens.begin(token)
    kept.revoke(file, "ann")
    assert tokens.of_session(cookie) is None
    kept.create(file, "ann", [Scope.ADMIN])
    assert tokens.of_session(cookie) is None


def test_one_token_cannot_fill_the_disk_with_sessions(file, token):
    tokens = Tokens(file)
    cookies = [tokens.begin(token)[1] for _ in range(MOST_SESSIONS + 5)]

    assert len(json.loads(file.with_name("tokens.sessions").read_text())) == MOST_SESSIONS
    assert [tokens.of_session(each) is None for each in cookies] == [True] * 5 + [False] * MOST_SESSIONS


def test_where_nothing_can_be_written_sessions_are_kept_in_memory_and_that_is_said(file, token, monkeypatch, caplog):
    def refuse(*_args, **_options):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr("pgqrs.web.auth.sessions.replace_private", refuse)
    tokens = Tokens(file)
    _, cookie = tokens.begin(token)

    assert tokens.of_session(cookie).name == "ann"
    assert "1 log-ins and 0 log-outs are known to this process alone" in caplog.text
    tokens.sessions.end(cookie)
    assert tokens.of_session(cookie) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS])
def test_after_a_write_that_failed_the_log_outs_of_other_processes_are_seen(file, token, monkeypatch, number):
    """The finding: from then on the file was not read any more."""
    one, other = Tokens(file), Tokens(file)
    cookies = [other.begin(token)[1] for _ in range(2)]
    assert one.of_session(cookies[0]).name == "ann"
    with monkeypatch.context() as failing:
        failing.setattr("pgqrs.web.auth.sessions.replace_private", _failing(number))
        _, mine = one.begin(token)
        other_sees = other.of_session(mine)

    assert other.end(cookies[0])
    assert [one.of_session(each) is None for each in (*cookies, mine)] == [True, False, False]
    # The next write takes along what could not be written.
    assert one.end(cookies[1])
    assert [other_sees, other.of_session(mine).name, other.of_session(cookies[1])] == [None, "ann", None]


def _failing(number):
    def fail(*_args, **_options):
        raise OSError(number, os.strerror(number))

    return fail


async def test_a_log_out_that_cannot_be_written_says_so_and_is_written_later(store, file, token, monkeypatch, caplog):
    now = time.time()
    served, other = Tokens(file, now=lambda: now), Tokens(file)
    browser = Browser(http.opened(store, tokens=served))
    await browser.submit(await browser.get("/login"), "/login", token=token)
    cookie = browser.cookies["pgqrs_session"]
    with monkeypatch.context() as failing:
        failing.setattr("pgqrs.web.auth.sessions.replace_private", _failing(errno.ENOSPC))
        [form] = [each for each in (await browser.get("/")).document.forms if each.action == "/logout"]
        done = await browser.post("/logout", form.fields)

    assert (done.status, "other servers" in done.text, "token revoke" in done.text) == (503, True, True)
    assert "Max-Age=0" in done.headers["set-cookie"]
    assert str(file) not in done.text
    assert f"{file}.sessions cannot be written: [Errno 28]" in caplog.text
    assert (served.of_session(cookie), other.of_session(cookie).name) == (None, "ann")
    written = threading.Event()

    def write(*given):
        replace_private(*given)
        written.set()

    monkeypatch.setattr("pgqrs.web.auth.sessions.replace_private", write)
    now += RETRY_SECONDS
    # Any request with a cookie makes it try again.
    assert served.of_session("x" * 43) is None
    assert written.wait(30)
    assert (served.of_session(cookie), other.of_session(cookie)) == (None, None)


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "disk full"])
async def test_the_audit_log_names_the_session_that_ends_and_who_had_it(
    store, file, token, monkeypatch, caplog, is_written
):
    """The finding: without room on the disk there was no line, and with another's token the line named its caller."""
    caplog.set_level(logging.INFO, "pgqrs.audit")
    bob = kept.create(file, "bob", [Scope.READ])
    served = Tokens(file)
    _, cookie = served.begin(token)
    if not is_written:
        monkeypatch.setattr("pgqrs.web.auth.sessions.replace_private", _failing(errno.ENOSPC))
    headers = {"cookie": f"pgqrs_session={cookie}", "authorization": f"Bearer {bob}"}
    async with http.client(store, tokens=served, headers=headers) as client:
        done = await client.post("/logout")

    [line] = [each.getMessage() for each in caplog.records if each.name == "pgqrs.audit"]
    ending = "" if is_written else ": other servers do not know yet"
    assert (done.status_code, line) == (303 if is_written else 503, f"log-out by ann from 127.0.0.1{ending}")


async def test_a_stranger_who_logs_out_is_told_nothing_of_the_file(store, file, token):
    """The finding: the path of a file of sessions that was unusable was in the answer."""
    browser = Browser(http.opened(store, tokens=file))
    shown = await browser.get("/login")
    file.with_name("tokens.sessions").write_text("x")
    browser.cookies["pgqrs_session"] = "x" * 43
    for action in ("/logout", "/login"):
        done = await browser.post(action, {**shown.document.forms[0].fields, "token": token})

        assert (done.status, str(file.parent) in done.text) == (503, False)


def test_sessions_that_are_begun_and_ended_by_threads_are_all_kept(file, token):
    one, other = Tokens(file), Tokens(file)
    cookies: list[str] = []
    with ThreadPoolExecutor(8) as threads:
        cookies += threads.map(lambda n: (one, other)[n % 2].begin(token)[1], range(40))
        list(threads.map(lambda n: (one, other)[n % 3 % 2].end(cookies[n]), range(20)))

    for tokens in (one, other):
        assert [tokens.of_session(each) is None for each in cookies] == [True] * 20 + [False] * 20


@pytest.mark.parametrize("text", ["x", "[]", '{"a": 1}', '{"a": {"name": "x"}}', "null", '{"a": {"until": "x"}}'])
def test_a_broken_file_of_sessions_is_named(tmp_path, text):
    path = tmp_path / "sessions"
    path.write_text(text)
    path.chmod(0o600)

    with pytest.raises(Exception, match="remove it, and log in again"):
        SharedSessions(path)
