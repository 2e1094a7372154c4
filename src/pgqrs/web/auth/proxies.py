"""Proxies before us: which of them are believed, and whether a request tells of one that is not."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from pgqrs.errors import ConfigError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


# Python takes any text for a zone, and addresses stand in the audit log.
_ZONE = re.compile(r"[A-Za-z0-9_.-]{1,15}", re.ASCII)


def address_of(text: str | None) -> Address | None:
    """Return the address, however it is written; None for anything else.

    An IPv4 address that is written as IPv6 (`::ffff:127.0.0.1`) is the IPv4 address: a socket for both families says
    it so. A zone is the name or the number of an interface.
    """
    try:
        found = ipaddress.ip_address(text or "")
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv4Address):
        return found
    if found.scope_id is not None and not _ZONE.fullmatch(found.scope_id):
        return None
    return found.ipv4_mapped or found


# -- proxies that are believed -------------------------------------------------------------------------------


class TrustedProxies:
    """The proxies that may say for whom they ask: addresses, or networks (`10.0.0.0/8`). It is false when empty.

    An address with a zone (`fe80::1%eth0`) is another one on every interface, and so must be given with its zone.
    """

    def __init__(self, given: Iterable[str] = ()) -> None:
        texts = [each.strip() for each in given]
        self._zoned = frozenset(_zoned(each) for each in texts if "%" in each)
        self._networks = tuple(_network(each) for each in texts if "%" not in each)

    def __bool__(self) -> bool:
        return bool(self._zoned or self._networks)

    def __contains__(self, host: object) -> bool:
        address = address_of(host) if isinstance(host, str) else None
        if address is None:
            return False
        if getattr(address, "scope_id", None) is not None:
            return address in self._zoned
        return any(address in network for network in self._networks)

    def client(self, forwarded: str) -> str | None:
        """Return the address that the proxies ask for: the last in X-Forwarded-For that is none of them.

        Each proxy adds the address that it was asked from at the end; what stands before may be the client's own
        invention. None when what a proxy added is no address.
        """
        hops = [_without_port(each.strip()) for each in forwarded.split(",")]
        last = next((each for each in reversed(hops) if each not in self), hops[0])
        found = address_of(last)
        return None if found is None else str(found)


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise _refused(text, error) from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, ipaddress.IPv6Network) else None
    if mapped is not None and network.prefixlen >= 96:
        return ipaddress.ip_network((int(mapped), network.prefixlen - 96))
    return network


def _zoned(text: str) -> Address:
    try:
        return ipaddress.IPv6Address(text)
    except ValueError as error:
        raise _refused(text, error) from None


def _refused(text: str, error: ValueError) -> ConfigError:
    return ConfigError(
        f"--trust-proxy {text!r} is neither an address nor a network ({error})",
        hint="write the address that the proxy connects from, such as 10.0.0.5, or a network, such as 10.0.0.0/24",
    )


_WITH_PORT = re.compile(r"\[([^\]]*+)\](?::\d++)?|([^:]*+):\d++", re.ASCII)


def _without_port(text: str) -> str:
    """`192.0.2.1:80` and `[2001:db8::1]:80` without their port, anything else as it is."""
    match = _WITH_PORT.fullmatch(text)
    return text if match is None else match.group(1) if match.group(1) is not None else match.group(2)


class ForwardedClient:
    """A request of a proxy that is believed counts as one of the client that the proxy names."""

    def __init__(self, inner: ASGIApp, proxies: TrustedProxies) -> None:
        self._inner = inner
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = scope.get("client")
        if scope["type"] == "http" and peer is not None and peer[0] in self._proxies:
            scope = {**scope, **self._said(Headers(scope=scope))}
        await self._inner(scope, receive, send)

    def _said(self, headers: Headers) -> Mapping[str, object]:
        found: dict[str, object] = {}
        if (scheme := headers.get("x-forwarded-proto", "").strip().lower()) in ("http", "https"):
            found["scheme"] = scheme
        if client := self._proxies.client(",".join(headers.getlist("x-forwarded-for"))):
            found["client"] = (client, 0)
        return found


# -- proxies that nothing is known of ------------------------------------------------------------------------

# What browsers, curl and libraries send on a connection of their own: there may be addresses in these.
_ORDINARY = re.compile(
    r"host|connection|keep-alive|te|trailer|transfer-encoding|expect|upgrade-insecure-requests|user-agent|referer"
    r"|origin|cookie|authorization|date|dnt|priority|pragma|cache-control|range|last-event-id|idempotency-key"
    r"|traceparent|tracestate|baggage|(?:accept|content|if|sec|access-control-request|x-pgqrs)(?:-[a-z0-9-]++)?",
    re.ASCII,
)
# Words of names that tell of a hop: of what proxies do, of what they pass on, and of those who run them.
_HOP = re.compile(
    r"""(?:^|[-_.])(?:
    forwards?|forwarded|forwarder|forwarding|via|proxy|proxied|proxyuser|reverse|tunnel|hops?|gateway|ingress|edge|cdn|loop
    |waf|lb|balancer|cluster|upstream|downstream|surrogate
    |client|remote|real|true|connecting|peer|orig|original|originating|rewrite|rewritten|scheme|host|port|proto|ssl|tls
    |https|ray|addr|ip
    |envoy|istio|linkerd|nginx|haproxy|traefik|varnish|squid|caddy|kong
    |cf|cloudflare|cloudfront|fastly|akamai|amzn?|aws|azure|arr|fd|appengine|appgw|cloud|gcp|heroku|fly|vercel|netlify
    |render|railway|tailscale|ngrok|localtunnel|zrok|incap|imperva|sucuri|bunny
    )(?:$|[-_.])
    # The same, where no dash is between the words.
    |forward|prox[yi]|client_?ip|real_?ip|remote_?(?:addr|ip|host)|tunnel""",
    re.ASCII | re.VERBOSE,
)
_BETWEEN = re.compile(r"[,;\s=\"]++")


def tells_of_proxy(headers: Headers) -> str | None:
    """Return the first header that a client on this machine would not send of itself, if there is one.

    By the words of its name, and by an address as its value: whatever a proxy calls it, the address of its own client
    is what it has to pass on.
    """
    return next((name for name, value in headers.items() if _is_of_proxy(name.lower(), value)), None)


def _is_of_proxy(name: str, value: str) -> bool:
    if name != "host" and _HOP.search(name):
        return True
    return not _ORDINARY.fullmatch(name) and any(
        address_of(_without_port(each)) is not None for each in _BETWEEN.split(value)
    )
