"""Where a webhook may go: which URLs are accepted, and which addresses their names may stand for.

Whoever may set a URL must not reach what only this machine can reach: other services here, the metadata of a cloud.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from pgqrs.errors import ConfigError, PublishFailed

# Host and port to addresses.
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
# What inet_aton reads as a number: 2130706433, 0x7f000001, 0177.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_PRINTABLE = re.compile(r"[!-~]+", re.ASCII)

# What `is_global` of some version of Python calls public, and yet is no company's web server. IANA's registries of
# special-purpose addresses: protocol assignments (a cloud's metadata among them), documentation, AS112, multicast
# tunnels, relays that lead to addresses inside. 3ffe::/16 was the 6bone's, and was never handed out again.
_REGISTERED = (
    "192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",
    "2001::/23", "2002::/16", "2620:4f:8000::/48", "3ffe::/16", "3fff::/20",
)  # fmt: skip
# A cloud's own services, in ranges that it owns, answered only inside it: Azure's host, IBM's service endpoints,
# Google's private access.
_CLOUDS = ("168.63.129.16/32", "161.26.0.0/16", "166.8.0.0/14", "199.36.153.4/30", "199.36.153.8/30")
_NOT_PUBLIC = tuple(map(ipaddress.ip_network, _REGISTERED + _CLOUDS))
# All that was ever handed out. Loopback, mapped and translated IPv4 (NAT64), unique local and link-local addresses,
# segment routing and multicast are outside.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that was found acceptable, in the parts that a request needs."""

    host: str
    port: int
    is_https: bool
    path: str
    # Somebody vouched for the host by name: its addresses are not asked about.
    is_allowed_host: bool

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.is_https else 80) else f"{host}:{self.port}"


def checked_url(url: str, *, allow_http: bool, allow_hosts: Collection[str], ports: Collection[int] | None) -> Target:
    """The URL's parts, or ConfigError. It may hold a secret, so the message never shows more than the host."""
    if not isinstance(url, str) or not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise ConfigError(
            "a webhook's URL is ASCII without blanks, line breaks or backslashes", hint="escape them with %XX"
        )
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigError(f"a webhook's URL cannot be understood: {error}") from None
    if parts.scheme not in ("https", "http"):
        raise ConfigError(f"a webhook's URL starts with https://, not {parts.scheme or 'nothing'}:")
    is_https = parts.scheme == "https"
    if not is_https and not allow_http:
        raise ConfigError(f"the webhook to {host!r} is not https", hint="if that is meant, say allow_http=True")
    if "@" in parts.netloc:
        raise ConfigError(f"the webhook to {host!r} has user information in its URL", hint="give it as a header")
    if parts.fragment:
        raise ConfigError(f"the webhook to {host!r} has a #fragment, which no server is ever sent")
    port = port if port is not None else (443 if is_https else 80)
    accepted = set(ports) if ports is not None else {443, 80} if allow_http else {443}
    if port not in accepted:
        raise ConfigError(
            f"the webhook to {host!r} has port {port}", hint=f"allowed are {sorted(accepted)}; see ports="
        )
    host = host.removesuffix(".")
    allowed = host in {each.lower().removesuffix(".") for each in allow_hosts}
    _check_host(host, allowed=allowed)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(host, port, is_https, path, allowed)


def _check_host(host: str, *, allowed: bool) -> None:
    address = _address(host)
    if address is not None:
        if not allowed and not is_public(address):
            raise ConfigError(
                f"the webhook to {host!r} is not a public address", hint="if that is meant, see allow_hosts="
            )
        return
    labels = host.split(".")
    if not all(map(_LABEL.fullmatch, labels)) or len(host) > 253:
        raise ConfigError(f"the webhook's host {host!r} is not a name of letters, digits and '-' (IDNA: xn--...)")
    if _NUMBER.fullmatch(labels[-1]):
        raise ConfigError(
            f"the webhook's host {host!r} is an address in disguise", hint="write it as four plain numbers"
        )
    if labels[-1] == "localhost" and not allowed:
        raise ConfigError(f"the webhook to {host!r} stays on this machine", hint="if that is meant, see allow_hosts=")


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is somebody's on the open internet, and nothing of the local network in another notation."""
    # A zone names an interface of this machine: packets go where that leads, whatever the address says.
    if isinstance(address, ipaddress.IPv6Address) and (address.scope_id or address not in _GLOBAL_UNICAST):
        return False
    if any(address in network for network in _NOT_PUBLIC if network.version == address.version):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_unspecified)


async def resolved(target: Target, resolve: Resolver) -> list[str]:
    """The addresses to connect to, asked for once. One that is not public, and none of them is used."""
    if _address(target.host) is not None:
        return [target.host]
    try:
        found = list(dict.fromkeys(await resolve(target.host, target.port)))
    except OSError as error:
        raise PublishFailed(f"the name was not resolved: {error.strerror or type(error).__name__}") from None
    if not found:
        raise PublishFailed("the name has no address")
    for each in found:
        address = _address(each)
        if address is None or not (target.is_allowed_host or is_public(address)):
            # Which address is nobody's business who can only set a URL.
            raise PublishFailed("the name leads to an address that is not public: refused")
    return found


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
