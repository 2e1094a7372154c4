"""Forms that strangers may send are short: bodies are held in memory, and a stranger has many connections."""

import asyncio

import pytest

from pgqrs.web import request_body
from pgqrs.web.application import endpoints
from pgqrs.web.server import exchange
from rig import http
from rig.http import ON_PURPOSE

pytestmark = pytest.mark.backends("sqlite")

OPEN_FORMS = [each.path for each in endpoints() if each.changes and each.scope is None]
FORM = "Content-Type: application/x-www-form-urlencoded\r\nX-Pgqrs-Request: 1\r\n"
# As the largest value of a run, which callers with a token may send.
SAID_BYTES = 2 * 2**20
MOST = request_body.MOST_OPEN_BYTES


def test_there_are_two_of_them():
    assert sorted(OPEN_FORMS) == ["/login", "/logout"]


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("path", OPEN_FORMS)
async def test_a_stranger_keeps_no_large_body_in_memory(store, monkeypatch, path, is_chunked):
    """The finding: 240 strangers who held back the last bytes of a form took the server from 55 to 553 MB."""
    monkeypatch.setattr(exchange, "UNREAD_SECONDS", 0.1)
    begun = b"token=" + b"x" * MOST
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {SAID_BYTES}"
    body = b"%x\r\n%b\r\n" % (len(begun), begun) if is_chunked else begun
    async with http.server(store) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{FORM}{length}\r\n\r\n".encode() + body)
        # The rest of the body is never sent.
        async with asyncio.timeout(30):
            answer = await reader.read()
        writer.close()

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_form_with_a_token_and_a_long_address_is_read(store):
    body = b"token=wrong&back=/" + b"x" * (MOST - 1_000)
    headers = ON_PURPOSE | {"content-type": request_body.FORM}
    async with http.client(store, tokens=http.StartToken(http.TOKEN)) as client:
        answer = await client.post("/login", content=body, headers=headers)

    assert answer.status_code == 401
