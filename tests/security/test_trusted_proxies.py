"""`--trust-proxy`: a proxy is known by its address, and not by how that is written."""

import httpx2
import pytest

import pgqrs
from pgqrs.web import Caller
from pgqrs.web.auth import tokens as kept
from pgqrs.web.auth.proxies import ForwardedClient, TrustedProxies
from pgqrs.web.server.connections import Gate
from rig import http
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")


@pytest.mark.parametrize(
    ("given", "peer", "is_trusted"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "::ffff:127.0.0.1", True),
        ("::ffff:127.0.0.1", "127.0.0.1", True),
        ("::ffff:7f00:1", "127.0.0.1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("2001:DB8::0007", "2001:db8::7", True),
        ("10.0.0.0/8", "10.9.8.7", True),
        ("10.0.0.0/8", "::ffff:10.9.8.7", True),
        ("::ffff:10.0.0.0/104", "10.9.8.7", True),
        ("2001:db8::/32", "2001:db8:1::9", True),
        (" 10.0.0.5 ", "10.0.0.5", True),
        ("fe80::1%eth0", "fe80::1%eth0", True),
        ("fe80::1%eth0", "fe80::1%eth1", False),
        ("fe80::1", "fe80::1%eth0", False),
        ("fe80::/64", "fe80::1%eth0", False),
        ("127.0.0.1", "127.0.0.2", False),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("::/0", "10.0.0.1", False),
        ("127.0.0.1", "127.1", False),
        ("127.0.0.1", "0177.0.0.1", False),
        ("127.0.0.1", "localhost", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", None, False),
    ],
)
def test_addresses_are_compared_and_not_their_text(given, peer, is_trusted):
    proxies = TrustedProxies([given])

    assert (peer in proxies) is is_trusted
    # Its connections have no share per address.
    assert Gate(trusted=proxies, most=10, per_address=0).admit(object(), peer) is is_trusted


@pytest.mark.parametrize(
    "given",
    ["", "*", "proxy", "10.0.0", "10.0.0.5/8", "10.0.0.0/33", "1.2.3.4:80", "[::1]", "::1/129", "10.0.0.1,10.0.0.2",
     "0177.0.0.1", "fe80::/64%eth0", "10.0.0.5%eth0", "1.2.3.4/x"],
)  # fmt: skip
async def test_what_is_no_address_and_no_network_is_refused_at_the_start(store, tmp_path, given):
    kept.create(tmp_path / "tokens", "ann", ["read"])
    with pytest.raises(pgqrs.ConfigError, match=r"--trust-proxy .*10\.0\.0\.0/24"):
        async with http.server(store, tokens=tmp_path / "tokens", trusted_proxies=[given]):
            pass


async def test_the_command_says_what_is_wrong(config, store, tmp_path):
    kept.create(tmp_path / "tokens", "ann", ["read"])
    with pytest.raises(AssertionError, match=r"--trust-proxy 'proxy\.example' is neither an address nor a network"):
        async with serving(config, "--tokens", tmp_path / "tokens", "--trust-proxy", "proxy.example"):
            pass


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", "203.0.113.7", "203.0.113.7"),
        ("::ffff:127.0.0.1", "203.0.113.7", "203.0.113.7"),
        # What a client writes itself stands before what the proxies add.
        ("127.0.0.1", "198.51.100.1, 203.0.113.7, 10.0.0.5", "203.0.113.7"),
        ("127.0.0.1", "198.51.100.1, 203.0.113.7, ::ffff:10.0.0.5", "203.0.113.7"),
        ("127.0.0.1", "203.0.113.7:4711", "203.0.113.7"),
        ("127.0.0.1", "[2001:db8::7]:4711", "2001:db8::7"),
        ("127.0.0.1", "2001:DB8:0::7", "2001:db8::7"),
        ("127.0.0.1", "10.0.0.6, 10.0.0.5", "10.0.0.6"),
        ("127.0.0.1", "203.0.113.7, unknown", "127.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("192.0.2.1", "203.0.113.7", "192.0.2.1"),
    ],
)
async def test_a_trusted_proxy_says_for_whom_it_asks(store, peer, forwarded, client):
    seen = []

    async def ann(request):
        seen.append((request.client.host, request.url.scheme))
        return Caller("ann", frozenset())

    inner = http.opened(store, authorize=ann)
    around = ForwardedClient(inner, TrustedProxies(["127.0.0.1", "10.0.0.0/8"]))
    transport = httpx2.ASGITransport(around, client=(peer, 5555))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as asking:
        await asking.get("/api/v1/runs", headers={"x-forwarded-for": forwarded, "x-forwarded-proto": "https"})

    assert seen == [(client, "https" if peer != "192.0.2.1" else "http")]


async def test_a_served_proxy_is_believed_however_its_address_is_written(config, store, tmp_path):
    """The finding: `::ffff:127.0.0.1` was no proxy for a peer of 127.0.0.1, and all clients were one address."""
    token = kept.create(tmp_path / "tokens", "ann", ["operate"])
    await store.create_queue("tasks")
    for given in ("::ffff:127.0.0.1", "127.0.0.0/8"):
        async with serving(config, "--tokens", tmp_path / "tokens", "--trust-proxy", given) as served:
            headers = {**served.bearer(token), "x-forwarded-for": "203.0.113.7"}
            assert (await served.post("/api/v1/queues/tasks/pause", {}, **headers)).status == 200
        assert "by ann from 203.0.113.7" in served.said


@pytest.mark.parametrize("zone", ["e by root from 10.0.0.1: 7 handled", "\x9b31m", "a\x85b", "x" * 16, "é"])
async def test_a_zone_is_the_name_of_an_interface_and_no_text_for_the_audit_log(store, zone):
    """The finding: `fe80::1%` and any text was an address, which the audit log then told."""
    seen = []

    async def inner(scope, receive, send):
        seen.append(scope["client"])

    headers = [(b"x-forwarded-for", f"fe80::1%{zone}".encode("latin-1"))]
    scope = {"type": "http", "client": ("10.0.0.5", 1), "headers": headers}
    await ForwardedClient(inner, TrustedProxies(["10.0.0.5"]))(scope, None, None)
    named = {**scope, "headers": [(b"x-forwarded-for", b"fe80::1%eth0.7")]}
    await ForwardedClient(inner, TrustedProxies(["10.0.0.5"]))(named, None, None)

    assert seen == [("10.0.0.5", 1), ("fe80::1%eth0.7", 0)]
