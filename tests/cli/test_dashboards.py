"""The dashboard beside `pgqrs dev` and `pgqrs demo`: the address that they print lets you in, and no other does."""

import re
import signal
import socket
import stat
import threading
import urllib.error
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

from pgqrs.cli.demo.stage import Stage
from pgqrs.cli.subprocesses import Dashboard
from rig.terminal import Program

ADDRESS = r"dashboard  (http://127\.0\.0\.1:\d+/\?token=[\w-]{43,})"
APP = """
import pgqrs


@pgqrs.workflow(name="flow")
async def flow(ctx):
    return 1
"""


@pytest.fixture(params=["dev", "demo"])
def program(request, tmp_path):
    (tmp_path / "app.py").write_text(APP)
    words = ["dev", "app.py"] if request.param == "dev" else ["demo"]
    with Program(*words, cwd=tmp_path, TMPDIR=str(tmp_path), PGQRS_TOKENS="") as program:
        yield program
        program.signal(signal.SIGINT)
        program.end()


def status(url):
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    try:
        with opener.open(url, timeout=30) as answered:
            return answered.status, answered.url
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.url


def test_the_printed_address_lets_you_in_and_the_bare_one_does_not(program):
    address = program.until(ADDRESS).group(1)
    parts = urlsplit(address)
    root = f"http://{parts.netloc}"

    assert status(address) == (200, f"{root}/")
    assert status(f"{root}/api/v1/runs")[0] == 401
    # To the page that asks for a token.
    assert status(f"{root}/")[1].startswith(f"{root}/login")
    assert status(f"{root}/?token=guess") == (200, f"{root}/login")
    # Printed once, and only there.
    assert program.text.count(parts.query) == 1


@pytest.mark.backends("sqlite")
async def test_another_process_on_the_port_is_not_taken_for_the_dashboard(config, store, monkeypatch):
    """A local user who waits there would be sent the token by the operator's browser."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def answer():
            while True:
                try:
                    with taken.accept()[0] as client:
                        asked.append(client)
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        port = taken.getsockname()[1]
        # As if it had been free a moment ago.
        monkeypatch.setattr("pgqrs.cli.subprocesses._free_port", lambda _wanted: port)
        found = await Dashboard.start(config, port, output=None)
        taken.shutdown(socket.SHUT_RDWR)

    assert found == "did not start; `pgqrs serve` says why"
    assert asked == []


def test_a_browser_is_led_to_the_demo_by_a_file_and_not_by_an_argument(tmp_path):
    """`ps` shows the arguments of a browser to every user."""
    stage = Stage(tmp_path, kept=False)
    stage.dashboard = SimpleNamespace(url="http://127.0.0.1:7890/?token=s3cret&x=1")
    link = stage.link_to_dashboard()
    file = Path(urlsplit(link).path)

    assert (link.startswith("file://"), "s3cret" in link) == (True, False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert re.search(r'content="0; url=http://127.0.0.1:7890/\?token=s3cret&amp;x=1"', file.read_text())
