"""`pgqrs serve` without a file of tokens: for the person who has started it, and for no other user of the machine."""

import asyncio
import random
import re
import socket
import string
from pathlib import Path

import httpx2
import pytest

import pgqrs
from pgqrs.web import app
from pgqrs.web.application import endpoints
from pgqrs.web.auth import tokens
from pgqrs.web.auth.start_token import StartToken
from rig import http
from rig.http import filled
from rig.served import serving

pytestmark = pytest.mark.backends("sqlite")

API = "/api/v1"
# They need no token.
OPEN = {"/healthz", "/readyz", "/login", "/logout"}


@pytest.fixture
async def furnished(store):
    await store.create_workflow("flow")
    await store.create_queue("tasks")
    return await pgqrs.workflow("flow").trigger({"secret": "s3cret"}).execute(store)


async def test_a_host_header_lets_nobody_in(config, furnished):
    """The finding: `curl -H 'Host: localhost' http://victim/pgqrs/api/v1/runs/1` returned everything."""
    async with serving(config, "--actions") as served:
        for endpoint in endpoints():
            for host in (f"127.0.0.1:{served.port}", "localhost", "[::1]"):
                answered = await served.ask(endpoint.method, filled(endpoint), host=host, x_pgqrs_request="1")

                assert b"s3cret" not in answered.body
                if endpoint.path not in OPEN:
                    is_sent_to_login = answered.headers.get("location", "").startswith("/login")
                    assert answered.status == 401 or (answered.status == 303 and is_sent_to_login), endpoint


async def test_the_printed_address_opens_a_session_and_leads_to_a_clean_one(config, furnished):
    async with serving(config) as served:
        assert len(served.token) >= 43

        opened = await served.get(f"/?token={served.token}")
        [(name, cookie)] = opened.cookies.items()
        known = {"cookie": f"{name}={cookie}"}

        assert (opened.status, opened.headers["location"]) == (303, "/")
        assert served.token not in str(opened.headers) + opened.body.decode()
        assert re.search("HttpOnly.*SameSite=strict", opened.headers["set-cookie"])
        assert (await served.get("/", **known)).status == 200
        assert (await served.get(f"{API}/runs/1", **known)).json["input"] == {"secret": "s3cret"}
        assert (await served.get(f"{API}/runs/1", **served.bearer())).status == 200
        deep = await served.get(f"/runs?q=status%3Apending&token={served.token}")
        assert deep.headers["location"] == "/runs?q=status%3Apending"


async def test_a_wrong_token_in_the_address_opens_nothing_and_is_not_carried_on(config, furnished):
    async with serving(config) as served:
        for token in ("", "x", served.token[:-1], served.token + "x", served.token.swapcase()):
            opened = await served.get(f"/?token={token}")

            assert (opened.status, opened.headers["location"], opened.cookies) == (303, "/login", {})
        # A token in an address is kept by browsers and proxies: it is taken from pages only, and never by the API.
        assert (await served.get(f"{API}/runs?token={served.token}")).status == 401


async def test_where_tokens_are_in_a_file_no_address_logs_in(store, tmp_path):
    token = tokens.create(tmp_path / "tokens", "ann", ["read"])
    async with http.client(store, tokens=tmp_path / "tokens", headers={}) as client:
        opened = await client.get(f"/?token={token}")

    assert (opened.status_code, dict(opened.cookies)) == (303, {})
    assert opened.headers["location"].startswith("/login?")


async def test_every_start_has_a_token_of_its_own(config, furnished):
    async with serving(config) as first:
        token = first.token
        cookies = (await first.get(f"/?token={token}")).cookies
    async with serving(config) as second:
        assert second.token != token
        assert (await second.get(f"{API}/runs", authorization=f"Bearer {token}")).status == 401
        for name, cookie in cookies.items():
            for each in (name, f"pgqrs_session_{second.port}"):
                assert (await second.get(f"{API}/runs", cookie=f"{each}={cookie}")).status == 401


async def test_the_token_is_in_no_argument_and_no_environment(config, furnished):
    """Arguments are shown to every user by `ps`."""
    async with serving(config) as served:
        process = Path(f"/proc/{served.process.pid}")

        assert served.token not in (process / "cmdline").read_text()
        assert served.token not in (process / "environ").read_text()
        await served.get(f"/?token={served.token}")
    assert served.token not in served.said


# What proxies, networks that deliver pages, tunnels and clouds are known to add.
FORWARDED = (
    "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Prefix", "X-Forwarded",
    "X-Real-IP", "Client-IP", "X-Client-IP", "X-Cluster-Client-IP", "X-ProxyUser-Ip", "WL-Proxy-Client-IP", "X-Host",
    "X-Original-Host", "X-Original-URL", "X-Original-Forwarded-For", "X-Rewrite-URL", "X-Envoy-External-Address",
    "True-Client-IP", "CF-Connecting-IP", "CF-Ray", "CF-IPCountry", "CDN-Loop", "Fastly-Client-IP", "Fastly-FF",
    "X-Amzn-Trace-Id", "X-Amz-Cf-Id", "CloudFront-Viewer-Country", "X-Azure-ClientIP", "X-Azure-Ref", "X-ARR-SSL",
    "X-AppEngine-Country", "X-Cloud-Trace-Context", "Fly-Client-IP", "Fly-Region", "X-Vercel-Forwarded-For",
    "Tailscale-User-Login", "Ngrok-Auth-User-Email", "X-Heroku-Dynos-In-Use", "Akamai-Origin-Hop", "X-Akamai-Edgescape",
    "X-Varnish", "Surrogate-Capability", "Proxy-Connection", "Proxy-Authorization", "Max-Forwards", "Front-End-Https",
    "X-Scheme", "X-SSL-Client-Verify", "XForwardedFor", "X-ClientIP", "X-Remote-Addr",
)  # fmt: skip


async def test_a_request_that_a_proxy_passed_on_is_refused_even_with_the_token(config, furnished):
    """A proxy that rewrites Host would otherwise show a loopback server to its own clients."""
    chance = random.Random(7)
    async with serving(config, "--actions") as served:
        for name in FORWARDED:
            spelled = "".join(chance.choice((each.lower(), each.upper())) for each in name)
            for value in ("127.0.0.1", "", "1.1 proxy"):
                headers = {**served.bearer(), spelled: value}
                answered = await served.get(f"{API}/runs", **headers)

                assert (answered.status, answered.json["code"]) == (403, "local-only"), spelled
                assert repr(name.lower()) in answered.json["detail"]
        ours = {"x-pgqrs-request": "1", "x-request-id": "7", "viaduct": "x", **served.bearer()}
        assert (await served.get(f"{API}/runs", **ours)).status == 200


ADDRESSES = ("203.0.113.7", "127.0.0.1", "10.0.0.5:4711", "2001:db8::7", "[2001:db8::7]:80", "::ffff:10.0.0.5")
# As they are sent on a connection of their own, by Chromium, Firefox, curl, Python and the dashboard's script.
DIRECT = (
    {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/140.0.0.0 Safari/537.36",
     "sec-ch-ua": '"Chromium";v="140", "Not=A?Brand";v="24.0.0.0"', "sec-ch-ua-full-version": "24.0.0.0",
     "sec-ch-ua-mobile": "?0", "sec-ch-ua-platform": '"Linux"', "sec-fetch-site": "none", "sec-fetch-mode": "navigate",
     "sec-fetch-user": "?1", "sec-fetch-dest": "document", "upgrade-insecure-requests": "1", "accept": "text/html",
     "accept-encoding": "gzip, deflate, br, zstd", "accept-language": "de,en;q=0.9", "connection": "keep-alive"},
    {"user-agent": "Mozilla/5.0 (X11; rv:140.0) Gecko/20100101 Firefox/140.0", "dnt": "1", "sec-gpc": "1",
     "priority": "u=0, i", "te": "trailers", "cache-control": "no-cache", "pragma": "no-cache", "accept": "*/*",
     "referer": "http://127.0.0.1:7890/runs", "if-none-match": '"127.0.0.1"', "save-data": "on", "x-moz": "prefetch"},
    {"user-agent": "curl/8.5.0", "accept": "*/*", "content-type": "application/json", "idempotency-key": "10.0.0.5"},
    {"user-agent": "python-httpx/0.28.1", "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
     "tracestate": "a=b", "baggage": "peer=10.0.0.5", "x-request-id": "7", "postman-token": "1b3c", "b3": "0"},
    {"x-pgqrs-request": "1", "last-event-id": "abcd-12", "x-requested-with": "XMLHttpRequest", "range": "bytes=0-"},
)  # fmt: skip


async def test_what_a_proxy_is_not_known_to_add_is_refused_by_its_words_or_its_value(store):
    """No list of names is complete: of generated ones, each has a word of a hop, or the address of a client."""
    chance = random.Random(19)
    hops = ("forwarded", "proxy", "client-ip", "real", "original", "via", "remote-addr", "edge", "tunnel", "gateway")
    token = StartToken()
    transport = httpx2.ASGITransport(app(store, tokens=token), client=("127.0.0.1", 5555))
    known = {"authorization": f"Bearer {token.token}", "host": "localhost"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=known) as client:
        for _ in range(400):
            word = "".join(chance.choices(string.ascii_lowercase, k=chance.randint(2, 9)))
            if chance.random() < 0.5:
                parts = [chance.choice(hops), *(["x"] if chance.random() < 0.5 else []), word]
                chance.shuffle(parts)
                name, value = chance.choice("-_").join(parts), chance.choice(("", "yes", *ADDRESSES))
            else:
                address = chance.choice(ADDRESSES)
                name = f"x-{word}"
                value = chance.choice(("{}", "a, {}", "for={};by=x", 'for="{}"', "{}, 10.0.0.9", " {} ")).format(
                    address
                )
            answered = await client.get(f"{API}/runs", headers={name: value})

            assert (answered.status_code, name in answered.text) == (403, True), (name, value)
        for headers in DIRECT:
            assert (await client.get(f"{API}/runs", headers=headers)).status_code == 200, headers


@pytest.mark.parametrize(
    ("peer", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.5", False),
        ("192.168.1.7", False),
        ("::ffff:10.0.0.5", False),
        ("fe80::1", False),
        ("0.0.0.0", False),
        ("localhost", False),
        ("", False),
        (None, False),
    ],
)
async def test_the_peer_must_be_on_this_machine_whatever_it_says(store, peer, is_here):
    token = StartToken()
    transport = httpx2.ASGITransport(app(store, tokens=token), client=None if peer is None else (peer, 5555))
    headers = {"authorization": f"Bearer {token.token}", "host": "localhost"}
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        assert (await client.get(f"{API}/runs")).status_code == (200 if is_here else 403)
        assert (await client.get("/healthz")).status_code == (200 if is_here else 403)


@pytest.mark.parametrize(
    "options", [("--host", "0.0.0.0"), ("--trust-proxy", "10.0.0.5"), ("--allow-host", "jobs.example")]
)
async def test_what_would_show_it_to_others_needs_tokens(config, store, options):
    with pytest.raises(AssertionError, match=r"pgqrs token create[\s\S]*--tokens"):
        async with serving(config, *options):
            pass


async def test_another_name_is_told_what_works_without_a_file_of_tokens(config, store, tmp_path):
    """`--allow-host` alone is refused in that mode, as above."""
    async with serving(config) as served:
        refused = await served.get("/healthz", host="jobs.example")
    file = tmp_path / "pgqrs.tokens"
    tokens.create(file, "ann", ["read"])
    async with serving(config, "--tokens", file, "--allow-host", "jobs.example") as served:
        answered = await served.get("/healthz", host="jobs.example")

    assert refused.status == 421
    assert refused.json["hint"].endswith(
        "pgqrs token create NAME --scope read; pgqrs serve --tokens pgqrs.tokens --allow-host HOST"
    )
    assert answered.status == 200


async def test_a_file_of_tokens_that_does_not_exist_is_told_at_the_start(config, store, tmp_path):
    async with serving(config, "--tokens", tmp_path / "later.tokens") as served:
        pass
    with pytest.raises(AssertionError, match="there is no folder"):
        async with serving(config, "--tokens", tmp_path / "nowhere/pgqrs.tokens"):
            pass

    assert "does not exist, so all callers are refused; make a token: pgqrs token create" in served.said


@pytest.mark.parametrize("name", ["localhost", "LocalHost"])
async def test_a_name_that_a_browser_may_find_elsewhere_is_not_printed(config, furnished, name):
    """The finding: `--host localhost` listened on 127.0.0.1 only, and another user on [::1] was sent the token."""
    async with serving(config, "--host", name) as served:
        with socket.socket(socket.AF_INET6) as other:
            # The other user's: nothing keeps it from listening there, and no browser is led there.
            other.bind(("::1", served.port))
            other.listen()
            assert served.url.startswith(f"http://127.0.0.1:{served.port}/?token=")
            assert (await served.get(f"/?token={served.token}")).status == 303


# -- pages of other sites in the operator's browser ----------------------------------------------------------


def _fetches(seed, count):
    """Requests as browsers make them, and as attackers would like them; with whether they may read the answer."""
    chance = random.Random(seed)
    for _ in range(count):
        site = chance.choice((None, "none", "same-origin", "same-site", "cross-site", "", "same-origin, cross-site"))
        mode = chance.choice((None, "navigate", "no-cors", "cors", "same-origin", "websocket"))
        dest = chance.choice((None, "document", "iframe", "image", "script", "empty", "object", "embed"))
        origin = chance.choice((None, None, "own", "null", "http://evil.example", "http://127.0.0.1:1"))
        yield site, mode, dest, origin


async def test_no_other_site_reads_through_the_operators_browser(config, furnished):
    """A session and a hundred ways to ask from another site's page; the browser adds the cookie in this worst case."""
    async with serving(config) as served:
        cookies = (await served.get(f"/?token={served.token}")).cookies
        known = "; ".join(f"{name}={value}" for name, value in cookies.items())
        read = 0
        for site, mode, dest, origin in _fetches(11, 150):
            own = f"http://127.0.0.1:{served.port}"
            said = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
            said["origin"] = own if origin == "own" else origin
            headers = {name: value for name, value in said.items() if value is not None}
            is_ours = site == "none" or (site in (None, "same-origin") and said["origin"] in (None, own))
            is_link = (mode, dest) == ("navigate", "document")
            for path, is_allowed in ((f"{API}/runs/1", is_ours), ("/runs/1", is_ours or is_link)):
                answered = await served.get(path, cookie=known, **headers)
                read += answered.status == 200

                assert answered.status == (200 if is_allowed else 403), (path, headers)
                assert is_allowed or b"s3cret" not in answered.body
    assert read > 20


async def test_no_other_site_acts_through_the_operators_browser(config, furnished, store):
    async with serving(config, "--actions") as served:
        cookies = (await served.get(f"/?token={served.token}")).cookies
        known = "; ".join(f"{name}={value}" for name, value in cookies.items())
        form = {"content_type": "application/x-www-form-urlencoded"}
        for headers in (
            {},
            {"origin": "null"},
            {"origin": "http://evil.example", "x_pgqrs_request": "1"},
            {"sec_fetch_site": "cross-site", "x_pgqrs_request": "1"},
            {"sec_fetch_site": "same-site", "x_pgqrs_request": "1"},
        ):
            for path in ("/runs/1/cancel", f"{API}/runs/1/cancel"):
                answered = await served.ask("POST", path, b"form_token=guess", cookie=known, **form, **headers)

                assert answered.status == 403, (path, headers)
    assert (await pgqrs.workflow("flow").get_run(1, store)).status == "PENDING"


def _hosts(seed, count):
    """Host headers, with whether they name this machine: what a URL's authority could be taken for."""
    chance = random.Random(seed)
    names = ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"]
    bad = [
        "evil",
        "localhost.evil",
        "localhost.",
        "127.0.0.2",
        "[::2]",
        "[::1",
        "::1]",
        "[::1]x",
        "user@localhost",
        "",
    ]
    tails = ["", ":7890", ":0", ":65535"]
    bad_tails = [
        ":7902@evil",
        "@evil",
        ":",
        ":x",
        ":7890:1",
        ":7890/",
        "/",
        "?",
        "#",
        ":+1",
        ":\uff11\uff12",
        " ",
        ":123456",
    ]
    for _ in range(count):
        name, tail = chance.choice(names + bad), chance.choice(tails + bad_tails)
        yield name + tail, name in names and tail in tails
    for _ in range(count):
        yield "".join(chance.choice(string.printable[:94]) for _ in range(chance.randrange(1, 20))), False


async def test_a_host_header_is_a_name_and_perhaps_a_port(store):
    """`Host: localhost:7902@evil` was taken for localhost."""
    async with http.client(store, headers={}) as client:
        for host, is_ours in _hosts(5, 400):
            answered = await client.get("/healthz", headers=[(b"host", host.encode())])

            assert answered.status_code == (200 if is_ours else 421), host


async def test_a_link_of_another_site_logs_in_by_a_page_that_leads_on(config, furnished):
    """A browser does not send a SameSite=Strict cookie with a redirect that began elsewhere."""
    async with serving(config) as served:
        opened = await served.get(
            f"/?token={served.token}",
            sec_fetch_site="cross-site",
            sec_fetch_mode="navigate",
            sec_fetch_dest="document",
        )

        assert (opened.status, b'http-equiv="refresh" content="0; url=/"' in opened.body) == (200, True)
        assert len(opened.cookies) == 1
        assert served.token.encode() not in opened.body


async def test_many_starts_at_the_same_time_keep_their_sessions_apart(config, furnished):
    """A browser sends the cookies of one port to all others of the host."""
    async with serving(config) as one, serving(config) as other:
        cookies = {}
        for served in (one, other):
            cookies |= (await served.get(f"/?token={served.token}")).cookies
        known = "; ".join(f"{name}={value}" for name, value in cookies.items())

        assert len(cookies) == 2
        found = await asyncio.gather(*(served.get("/", cookie=known) for served in (one, other)))
        assert [each.status for each in found] == [200, 200]
