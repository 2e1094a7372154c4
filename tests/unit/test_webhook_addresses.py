"""Where a webhook may not go: each way in which a URL, or a name server, leads inside."""

import ipaddress
import socket

import httpx2
import pytest

import pgqrs
from pgqrs.engine.outbox.publishers.addresses import is_public
from pgqrs.engine.outbox.publishers.pinned import PinnedTransport
from rig.outbox import an_event
from rig.receiver import receiving

PUBLIC = "8.8.8.8"
INSIDE = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "192.88.99.1",
    "198.18.0.1",
    "203.0.113.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "2002:7f00:1::",
    "2001:0:7f00:1::",
    "2001:db8::1",
    "fc00::1",
    "fd00::1",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]


@pytest.fixture
def connections(monkeypatch):
    """Who would have been connected to; nobody is."""
    tried = []

    class Refusing(PinnedTransport):
        def __init__(self, addresses, **options):
            super().__init__(addresses, **options)
            self.addresses = tuple(addresses)

        async def handle_async_request(self, request):
            tried.append((self.addresses, request.url.port or 443, request.url.host))
            return httpx2.Response(204)

    monkeypatch.setattr("pgqrs.engine.outbox.publishers.pinned.PinnedTransport", Refusing)
    return tried


def answering(*answers):
    """A name server that gives one answer after the other."""
    left = list(answers)

    async def resolve(host, port):
        return left.pop(0) if len(left) > 1 else left[0]

    return resolve


@pytest.mark.row("B9.4")
@pytest.mark.parametrize("address", INSIDE)
def test_what_is_inside_is_not_public(address):
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", [PUBLIC, "93.184.216.34", "2606:4700:4700::1111"])
def test_what_is_outside_is_public(address):
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", INSIDE)
async def test_a_name_that_leads_inside_is_refused(address, connections):
    publisher = pgqrs.HttpPublisher("https://hooks.example.org/x", resolver=answering([address]))

    with pytest.raises(pgqrs.PublishFailed, match="not public") as caught:
        await publisher.publish(an_event())

    assert connections == []
    assert address not in str(caught.value)


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_refused_when_it_is_written_out(address):
    shown = f"[{address}]" if ":" in address else address

    with pytest.raises(pgqrs.ConfigError):
        pgqrs.HttpPublisher(f"https://{shown}/x")


async def test_one_address_inside_among_public_ones_is_enough_to_refuse(connections):
    publisher = pgqrs.HttpPublisher("https://hooks.example.org/x", resolver=answering([PUBLIC, "127.0.0.1"]))

    with pytest.raises(pgqrs.PublishFailed, match="not public"):
        await publisher.publish(an_event())

    assert connections == []


@pytest.mark.row("B9.4")
async def test_a_name_that_changes_its_address_is_asked_once_and_connected_where_it_was_checked(connections):
    publisher = pgqrs.HttpPublisher("https://hooks.example.org/x", resolver=answering([PUBLIC], ["127.0.0.1"]))

    await publisher.publish(an_event())
    with pytest.raises(pgqrs.PublishFailed, match="not public"):
        await publisher.publish(an_event())

    assert connections == [((PUBLIC,), 443, "hooks.example.org")]


async def test_the_connection_goes_to_the_addresses_in_turn_and_the_name_is_not_asked_for_again(monkeypatch):
    import asyncio

    asked = []

    async def create_connection(self, protocol, host, port, **options):
        asked.append((host, port))
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", create_connection)
    monkeypatch.setattr(socket, "getaddrinfo", None)
    publisher = pgqrs.HttpPublisher("https://hooks.example.org/x", resolver=answering([PUBLIC, "1.1.1.1"]))

    with pytest.raises(pgqrs.PublishFailed, match="no connection: ConnectionRefusedError"):
        await publisher.publish(an_event())

    assert asked == [(PUBLIC, 443), ("1.1.1.1", 443)]


@pytest.mark.row("B9.4")
@pytest.mark.parametrize(
    "url",
    [
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://0177.1/",
        "https://127.1/",
        "https://127.0.1/",
        "https://127.0.0.1./",
        "https://134744072/",
        "https://8.8.8.010/",
        "https://foo.0x8/",
        "https://localhost/",
        "https://localhost./",
        "https://LOCALHOST/",
        "https://app.localhost/",
        "https://user@hooks.example.org/",
        "https://hooks.example.org@127.0.0.1/",
        "https://hooks.example.org:x@127.0.0.1/",
        "https://@hooks.example.org/",
        "https://127.0.0.1\\@hooks.example.org/",
        "https://hooks.example.org#@127.0.0.1/",
        "https://hooks.example.org/a\r\nHost: inside",
        "https://hooks.example.org/a\nb",
        "https://hooks.example.org/a b",
        "https://hooks.example.org\t/",
        "https://hooks.example.org/\x00",
        "https://hooks%2eexample.org/",
        "https://hooks.example.org%00.evil.org/",
        "https://\uff11\uff12\uff17.0.0.1/",
        "https://\uff4cocalhost/",
        "https://bücher.example/",
        "https://[::1/",
        "https://[::1]x/",
        "https:///x",
        "https://",
        "//hooks.example.org/",
        "hooks.example.org/x",
        "http://hooks.example.org/",
        "gopher://hooks.example.org/",
        "file:///etc/passwd",
        "ftp://hooks.example.org/",
        "javascript:alert(1)",
        "unix:///run/docker.sock",
        "https://hooks.example.org:22/",
        "https://hooks.example.org:8443/",
        "https://hooks.example.org:99999/",
        "https://hooks.example.org:x/",
        "https://hooks..example.org/",
        "https://-a.example.org/",
        f"https://{'a' * 64}.example.org/",
        "",
        None,
        b"https://hooks.example.org/",
    ],
)
def test_urls_that_are_not_what_they_seem_are_refused(url):
    with pytest.raises(pgqrs.ConfigError):
        pgqrs.HttpPublisher(url)


def test_http_and_other_ports_are_a_decision():
    assert pgqrs.HttpPublisher("http://hooks.example.org/", allow_http=True)
    assert pgqrs.HttpPublisher("https://hooks.example.org:8443/", ports=(443, 8443))


async def test_a_host_that_is_vouched_for_by_name_may_be_inside(connections):
    publisher = pgqrs.HttpPublisher(
        "https://hooks.internal./x", allow_hosts=["Hooks.internal"], resolver=answering(["10.0.0.7"])
    )
    other = pgqrs.HttpPublisher(
        "https://other.internal/x", allow_hosts=["hooks.internal"], resolver=answering(["10.0.0.7"])
    )

    await publisher.publish(an_event())
    with pytest.raises(pgqrs.PublishFailed, match="not public"):
        await other.publish(an_event())

    assert connections == [(("10.0.0.7",), 443, "hooks.internal")]


@pytest.mark.parametrize("answer", [[], ["nonsense"], ["127.0.0.1\n"]])
async def test_a_name_server_that_says_nonsense_is_refused(connections, answer):
    with pytest.raises(pgqrs.PublishFailed):
        await pgqrs.HttpPublisher("https://hooks.example.org/", resolver=answering(answer)).publish(an_event())

    assert connections == []


async def test_a_name_that_cannot_be_resolved_is_a_failure_like_any_other():
    async def fail(host, port):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(pgqrs.PublishFailed, match="Name or service not known"):
        await pgqrs.HttpPublisher("https://hooks.example.org/", resolver=fail).publish(an_event())


async def test_a_name_server_that_hangs_is_given_up():
    import asyncio

    async def hang(host, port):
        await asyncio.Event().wait()

    publisher = pgqrs.HttpPublisher("https://hooks.example.org/", resolver=hang, connect_timeout=0.05)

    with pytest.raises(pgqrs.PublishFailed, match=r"not resolved within 0\.05 s"):
        await publisher.publish(an_event())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "b\r\nHost: inside"),
        ("X-A", "b\nc"),
        ("X-A", "b\0"),
        ("X-A", "ä"),
        ("X-A", ""),
        ("X-A", 5),
        ("X-A\r\nB", "c"),
        ("X A", "c"),
        ("", "c"),
        ("Host", "inside"),
        ("content-length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("CE-Id", "another"),
        ("pgqrs-signature", "forged"),
    ],
)
def test_headers_that_would_change_the_request_are_refused(name, value):
    with pytest.raises(pgqrs.ConfigError, match="header"):
        pgqrs.HttpPublisher("https://hooks.example.org/", headers={name: value})


async def test_what_an_event_holds_cannot_break_out_of_its_headers():
    async with receiving() as receiver:
        publisher = pgqrs.HttpPublisher(
            f"http://hooks.example.org:{receiver.port}/",
            mode="binary",
            allow_http=True,
            allow_hosts=["hooks.example.org"],
            ports=[receiver.port],
            resolver=answering(["127.0.0.1"]),
        )
        await publisher.publish(an_event(type="a\r\nHost: inside", workflow="ü\n"))

    [request] = receiver.requests
    assert request.head.count(b"\r\nHost:") == 1
    assert b"ce-type: a%0D%0AHost:" in request.head


@pytest.mark.parametrize(
    "arguments",
    [
        {"mode": "batch"},
        {"timeout": 0},
        {"connect_timeout": "5"},
        {"secret": "short"},
        {"secret": ""},
        {"allow_hosts": "inside"},
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments):
    with pytest.raises(pgqrs.ConfigError):
        pgqrs.HttpPublisher("https://hooks.example.org/", **arguments)


def test_nothing_shows_the_path_or_the_secret():
    publisher = pgqrs.HttpPublisher("https://hooks.example.org/T0KEN?key=S3CR3T", secret="S3CR3T" * 5)

    assert repr(publisher) == "HttpPublisher(hooks.example.org)"


@pytest.mark.parametrize("missing", ["cloudevents.core.bindings.http", "httpx2", "httpcore2"])
def test_without_the_extra_the_way_out_is_told(monkeypatch, missing):
    import sys

    monkeypatch.setitem(sys.modules, missing, None)

    with pytest.raises(pgqrs.ConfigError, match=r"pip install 'pgqrs-durable\[web\]'"):
        pgqrs.HttpPublisher("https://hooks.example.org/")
