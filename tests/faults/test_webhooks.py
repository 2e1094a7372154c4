"""Webhooks on a real socket: what is sent, and receivers that fail in every way, each bounded in time and memory."""

import asyncio
import contextlib
import gc
import json
import logging
import os
import shutil
import socket
import ssl
import subprocess
import time
from types import SimpleNamespace

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured
from cloudevents.core.formats.json import JSONFormat

import pgqrs
from pgqrs.engine.outbox.publishers import pinned
from rig.outbox import an_event, emit, new_runs
from rig.receiver import receiving

SECRET = "a secret of enough bytes"
HOST = "127.0.0.1"


@pytest.fixture
async def receiver():
    async with receiving() as one:
        yield one


@pytest.fixture
async def other():
    async with receiving() as one:
        yield one


def publisher_to(receiver, path="/hook?key=S3CR3T", **options):
    given = {"allow_http": True, "allow_hosts": [HOST], "ports": [receiver.port], "timeout": 5} | options
    return pgqrs.HttpPublisher(f"http://{HOST}:{receiver.port}{path}", **given)


@pytest.fixture
def exchanges(monkeypatch):
    """Every connection that is made, to see how much was read from it."""
    made = []
    begin = pinned._Stream.__init__

    def remembering(self, *args):
        begin(self, *args)
        made.append(self)

    monkeypatch.setattr(pinned._Stream, "__init__", remembering)
    return made


async def test_a_structured_event_is_a_cloudevent_that_the_sdk_reads(receiver):
    event = an_event()

    await publisher_to(receiver).publish(event)

    [request] = receiver.requests
    assert (request.path, request.headers["host"]) == ("/hook?key=S3CR3T", f"{HOST}:{receiver.port}")
    assert request.headers["content-type"] == "application/cloudevents+json"
    read = from_structured(HTTPMessage(request.headers, request.body), JSONFormat())
    assert (read.get_id(), read.get_source(), read.get_type()) == (event.id, "/pgqrs/public", "order.shipped")
    assert (read.get_subject(), read.get_time()) == ("orders/1", event.created_at)
    assert (read.get_datacontenttype(), read.get_specversion()) == ("application/json", "1.0")
    assert str(read.get_data()) == "{'n': 1e+16, 'z': -0.0}"


async def test_a_binary_event_has_its_attributes_in_headers_and_its_payload_as_it_was_stored(receiver):
    event = an_event(workflow="grüße")

    await publisher_to(receiver, mode="binary").publish(event)

    [request] = receiver.requests
    assert request.body == event.payload_text.encode()
    assert request.headers["content-type"] == "application/json"
    read = from_binary(HTTPMessage(request.headers, request.body), JSONFormat())
    assert (read.get_id(), read.get_subject(), read.get_time()) == (event.id, "grüße/1", event.created_at)


@pytest.mark.parametrize("payload", ["null", "[1, 2]", '"text"', "5", "true", "{}"])
async def test_any_json_is_a_payload(receiver, payload):
    await publisher_to(receiver).publish(an_event(payload_text=payload))
    await publisher_to(receiver, mode="binary").publish(an_event(payload_text=payload))

    structured, binary = receiver.requests
    assert json.loads(structured.body).get("data") == json.loads(payload)
    assert binary.body == payload.encode()


@pytest.mark.parametrize("mode", ["structured", "binary"])
async def test_a_receiver_can_tell_by_the_signature_who_sent_it(receiver, mode):
    await publisher_to(receiver, secret=SECRET, mode=mode).publish(an_event())

    [request] = receiver.requests
    assert pgqrs.verify_signature(SECRET, request.headers["pgqrs-signature"], request.body)
    assert not pgqrs.verify_signature(SECRET + "!", request.headers["pgqrs-signature"], request.body)


async def test_headers_of_the_callers_are_sent(receiver):
    await publisher_to(receiver, headers={"Authorization": "Bearer x"}).publish(an_event())

    assert receiver.requests[0].headers["authorization"] == "Bearer x"


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
async def test_any_success_is_a_success(receiver, status):
    receiver.answer = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.0 %d\r\nX: y\r\n\r\nbody" % status

    await publisher_to(receiver).publish(an_event())


@pytest.mark.row("B9.3")
@pytest.mark.parametrize("status", [300, 301, 302, 307, 400, 401, 404, 410, 429, 500, 503])
async def test_anything_else_is_a_failure_and_a_redirect_is_not_followed(receiver, other, status):
    receiver.answer = b"HTTP/1.1 %d Some\r\nLocation: http://127.0.0.1:%d/inside\r\n\r\nBODY-CANARY" % (
        status,
        other.port,
    )

    with pytest.raises(pgqrs.PublishFailed) as caught:
        await publisher_to(receiver).publish(an_event())

    assert str(caught.value) == f"{HOST} answered {status}"
    assert caught.value.status == status
    assert other.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 O",
        b"\x00" * 100,
        "drop",
    ],
)
async def test_what_is_no_answer_is_a_failure(receiver, answer):
    receiver.answer = answer

    with pytest.raises(pgqrs.PublishFailed, match=r"not HTTP/1\.1|closed|broke"):
        await publisher_to(receiver).publish(an_event())


@pytest.mark.row("B9.3")
@pytest.mark.parametrize("answer", ["hang", "trickle"])
async def test_a_receiver_that_takes_its_time_is_given_up(receiver, exchanges, answer):
    receiver.answer = answer
    began = time.monotonic()

    with pytest.raises(pgqrs.PublishFailed, match=r"did not answer within 0\.3 s"):
        await publisher_to(receiver, timeout=0.3).publish(an_event())

    assert time.monotonic() - began < 2
    assert exchanges[0].received < 1000


@pytest.mark.row("B9.3")
async def test_an_answer_of_a_gigabyte_is_not_read(receiver, exchanges):
    receiver.answer = "endless"

    await publisher_to(receiver).publish(an_event())
    await asyncio.sleep(0)

    assert exchanges[0].received <= 64 * 1024
    # What the operating system took off its hands is some megabytes at most.
    assert receiver.sent < 64 * 2**20


async def test_a_head_without_end_is_given_up_at_64_kilobytes(receiver, exchanges):
    receiver.answer = "endless head"

    with pytest.raises(pgqrs.PublishFailed, match="longer than 65536 bytes"):
        await publisher_to(receiver).publish(an_event())

    assert exchanges[0].received == 64 * 1024


async def test_nobody_there_is_a_failure(receiver):
    publisher = publisher_to(receiver)
    async with receiving() as gone:
        publisher = publisher_to(gone)

    with pytest.raises(pgqrs.PublishFailed, match="no connection: ConnectionRefusedError"):
        await publisher.publish(an_event())


async def test_informational_answers_without_end_are_given_up_at_64_kilobytes(receiver, exchanges):
    receiver.answer = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 10_000

    with pytest.raises(pgqrs.PublishFailed, match="longer than 65536 bytes"):
        await publisher_to(receiver).publish(an_event())

    assert exchanges[0].received == 64 * 1024


async def test_failed_requests_leave_nothing_behind(receiver):
    for answer in ("hang", "drop", "endless head", b"x"):
        receiver.answer = answer
        with pytest.raises(pgqrs.PublishFailed):
            await publisher_to(receiver, timeout=0.1).publish(an_event())
    # One that says nothing during the TLS handshake.
    for limit in ({"timeout": 0.1}, {"connect_timeout": 0.1}):
        with pytest.raises(pgqrs.PublishFailed, match=r"within 0\.1 s"):
            await tls_publisher_to(receiver, **limit).publish(an_event())
    await asyncio.sleep(0)

    gc.collect()  # a connection that was not closed would warn now, and warnings are errors
    assert [task for task in asyncio.all_tasks() if "pgqrs" in task.get_name()] == []


@pytest.mark.parametrize("proxy", ["http_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"])
async def test_a_proxy_of_the_environment_is_not_used(receiver, other, monkeypatch, proxy):
    monkeypatch.setenv(proxy, f"http://{HOST}:{other.port}")

    await publisher_to(receiver).publish(an_event())

    assert (len(receiver.requests), other.requests) == (1, [])


async def test_logs_do_not_hold_the_path_nor_the_secrets_however_detailed_they_are(receiver, caplog):
    caplog.set_level(logging.DEBUG)
    receiver.answer = b"HTTP/1.1 302 Found\r\nLocation: http://inside.example\r\n\r\n"

    with pytest.raises(pgqrs.PublishFailed):
        await publisher_to(receiver, secret=SECRET, headers={"Authorization": "S3CR3T"}).publish(an_event())

    assert any(each.name.startswith("httpcore") for each in caplog.records)
    assert "S3CR3T" not in caplog.text
    assert "hook" not in caplog.text
    assert "order.shipped" not in caplog.text


@pytest.mark.parametrize("path", ["/a'b|c", "/%2F/../x", "/a?b=c?d&e='", "//x", "/a;b=c", '/"<>`{}^'])
async def test_the_path_is_sent_as_it_was_given(receiver, path):
    await publisher_to(receiver, path).publish(an_event())

    assert receiver.requests[0].path == path


# -- TLS -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """For hooks.example.org, signed by itself."""
    if shutil.which("openssl") is None:
        # As a missing backend: on a developer's machine the rest can still be tested, CI must not be green without.
        assert not os.environ.get("CI"), "openssl is needed to make a certificate"
        pytest.skip("no openssl here to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=hooks.example.org"
    names = ["-addext", "subjectAltName=DNS:hooks.example.org", "-keyout", folder / "key", "-out", folder / "cert"]
    subprocess.run([*command.split(), *names], check=True, capture_output=True)
    return folder / "cert", folder / "key"


@pytest.fixture
async def tls_receiver(certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    names = []
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    async with receiving(context) as receiver:
        receiver.names = names
        yield receiver


def tls_publisher_to(receiver, host="hooks.example.org", **options):
    async def here(name, port):
        return [HOST]

    given = {"allow_hosts": [host], "ports": [receiver.port], "resolver": here, "timeout": 5}
    return pgqrs.HttpPublisher(f"https://{host}:{receiver.port}/hook", **given | options)


@pytest.fixture
def trusting(certificate):
    return ssl.create_default_context(cafile=certificate[0])


async def test_tls_asks_for_the_name_and_checks_it(tls_receiver, trusting):
    await tls_publisher_to(tls_receiver, ssl_context=trusting).publish(an_event())

    assert tls_receiver.names == ["hooks.example.org"]
    assert tls_receiver.requests[0].headers["host"] == f"hooks.example.org:{tls_receiver.port}"


@pytest.mark.row("B9.3")
async def test_a_certificate_that_nobody_vouches_for_is_refused(tls_receiver):
    with pytest.raises(pgqrs.PublishFailed, match=r"TLS: self.signed certificate"):
        await tls_publisher_to(tls_receiver).publish(an_event())

    assert tls_receiver.requests == []


async def test_a_certificate_for_another_name_is_refused(tls_receiver, trusting):
    with pytest.raises(pgqrs.PublishFailed, match="TLS: Hostname mismatch"):
        await tls_publisher_to(tls_receiver, "other.example.org", ssl_context=trusting).publish(an_event())

    assert tls_receiver.requests == []


async def test_a_receiver_that_speaks_no_tls_is_refused(receiver):
    with pytest.raises(pgqrs.PublishFailed):
        await tls_publisher_to(receiver, timeout=1).publish(an_event())


@pytest.mark.parametrize("broken", [b"HTTP/1.1 200 OK\r\n\r\n", b"\x17\x03\x03\x00\x20" + b"x" * 32])
async def test_a_receiver_that_leaves_tls_after_the_handshake_is_a_failure(certificate, trusting, broken):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)

    def answer():
        with context.wrap_socket(listening.accept()[0], server_side=True) as encrypted:
            encrypted.recv(65536)
            with socket.socket(fileno=encrypted.detach()) as below:
                below.sendall(broken)
                # Until the other side hangs up, which must find the answer first.
                with contextlib.suppress(ConnectionError):
                    while below.recv(65536):
                        pass

    with socket.create_server((HOST, 0)) as listening:
        answering = asyncio.create_task(asyncio.to_thread(answer))
        receiver = SimpleNamespace(port=listening.getsockname()[1])
        with pytest.raises(pgqrs.PublishFailed, match="the connection broke before an answer came"):
            await tls_publisher_to(receiver, ssl_context=trusting).publish(an_event())
        await answering


async def test_an_endless_answer_over_tls_is_not_read(tls_receiver, trusting, exchanges):
    tls_receiver.answer = "endless head"

    with pytest.raises(pgqrs.PublishFailed, match="longer than 65536 bytes"):
        await tls_publisher_to(tls_receiver, ssl_context=trusting).publish(an_event())

    assert exchanges[0].received == 64 * 1024


# -- in a dispatcher -------------------------------------------------------------------------------------


@pytest.mark.row("B9.3")
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"HTTP/1.1 500 Oh\r\n\r\nBODY-CANARY", "127.0.0.1 answered 500"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", "127.0.0.1 answered 302"),
        ("hang", "127.0.0.1 did not answer within 0.3 s"),
        ("trickle", "127.0.0.1 did not answer within 0.3 s"),
        ("endless head", "127.0.0.1: the head of the answer is longer than 65536 bytes"),
        ("drop", None),
    ],
)
async def test_a_receiver_that_fails_gets_its_events_later_then_they_are_dead_and_the_others_proceed(
    store, receiver, other, clock, answer, error
):
    bad, good = await new_runs(store, 2)
    receiver.answer = answer
    dispatcher = (
        pgqrs.dispatcher(store)
        .to(publisher_to(receiver, timeout=0.3), types=["bad"])
        .to(publisher_to(other), types=["good"])
        .max_attempts(3)
    )
    made = await dispatcher._made()
    admin = pgqrs.admin(store).outbox

    for attempt in range(1, 4):
        await emit(store, [(bad, "bad", "1"), *((good, "good", str(n)) for n in range(5))])
        await made.run_until_idle()
        assert len(receiver.requests) == attempt
        assert len(other.requests) == 5 * attempt
        clock.advance(0.9)
        await made.run_until_idle()
        assert len(receiver.requests) == attempt
        clock.advance(600)

    [dead] = await admin.dead()
    assert dead.attempts == 3
    assert dead.last_error == error or (error is None and "clos" in dead.last_error)
    assert "CANARY" not in dead.last_error
    assert "S3CR3T" not in dead.last_error
    ids = [json.loads(request.body)["id"] for request in receiver.requests]
    assert ids == [dead.id] * 3


@pytest.mark.row("B9.3")
async def test_the_others_do_not_wait_for_a_receiver_that_hangs(store, receiver, other):
    bad = await new_runs(store, 40)
    [good] = await new_runs(store, 1)
    await emit(store, [(run_id, "bad", "1") for run_id in bad])
    await emit(store, [(good, "good", str(n)) for n in range(10)])
    receiver.answer = "hang"
    dispatcher = pgqrs.dispatcher(store).to(publisher_to(receiver, timeout=60), types=["bad"])
    dispatcher.to(publisher_to(other), types=["good"])

    running = asyncio.create_task(dispatcher.run_forever())
    async with asyncio.timeout(20):
        while len(other.requests) < 10:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert len(receiver.requests) == 8
    assert [json.loads(request.body)["data"] for request in other.requests] == list(range(10))
