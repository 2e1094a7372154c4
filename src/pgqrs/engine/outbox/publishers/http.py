"""Webhooks: each event as a POST, CloudEvents 1.0, signed, and only to where it may go."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pgqrs.distribution import install_command
from pgqrs.engine.outbox.publishers import cloudevent, signature
from pgqrs.engine.outbox.publishers.addresses import Resolver, checked_url, resolved
from pgqrs.engine.outbox.publishers.lookups import Lookups
from pgqrs.errors import ConfigError, PublishFailed
from pgqrs.types import OutboxEvent

if TYPE_CHECKING:
    import httpx2

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_VALUE = re.compile(r"[!-~]([ !-~]*[!-~])?", re.ASCII)
# Ours to set: what frames the request, says what it is, and whom it is for.
_OURS = {"host", "content-length", "content-type", "transfer-encoding", "connection", "te", "trailer", "upgrade",
         "expect", "keep-alive", "proxy-connection", signature.HEADER.lower()}  # fmt: skip


class HttpPublisher:
    """POSTs each event to one URL; any answer of 2xx means taken, anything else (a redirect, too) not.

    The URL's name is resolved once for each request, and the connection goes to the address that was checked: it must
    be public, unless the host is in `allow_hosts`. With a `secret` each request is signed; see `verify_signature`.
    Seconds: `timeout` for all of it, `connect_timeout` for the name, the connection and TLS. `ports` are those that
    the URL may have (443; with `allow_http` also 80). `ssl_context` is for certificates of your own authority (of its
    own, as its ALPN is set to http/1.1), `resolver` replaces the system's: host and port to addresses.
    """

    def __init__(
        self,
        url: str,
        *,
        mode: cloudevent.Mode = "structured",
        secret: str | bytes | None = None,
        timeout: float = 10.0,
        connect_timeout: float = 5.0,
        allow_hosts: Collection[str] = (),
        allow_http: bool = False,
        headers: Mapping[str, str] | None = None,
        ports: Collection[int] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        resolver: Resolver | None = None,
    ) -> None:
        if mode not in ("structured", "binary"):
            raise ConfigError(f"mode must be 'structured' or 'binary', not {mode!r}")
        if isinstance(allow_hosts, str):
            raise ConfigError(f"allow_hosts is a list of names: allow_hosts=[{allow_hosts!r}]")
        for name, seconds in (("timeout", timeout), ("connect_timeout", connect_timeout)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 3600:
                raise ConfigError(f"{name} must be seconds, more than 0 and at most 3600, not {seconds!r}")
        _check_installed()
        self._target = checked_url(url, allow_http=allow_http, allow_hosts=allow_hosts, ports=ports)
        self._mode = mode
        self._secret = None if secret is None else signature.checked_secret(secret)
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._headers = {name: value for name, value in (headers or {}).items() if _checked_header(name, value)}
        self._resolve: Resolver = resolver or Lookups(connect_timeout)
        self._tls = (ssl_context or ssl.create_default_context()) if self._target.is_https else None

    async def publish(self, event: OutboxEvent) -> None:
        """Raises PublishFailed, which never holds anything of the URL's path or of what was answered."""
        from pgqrs.engine.outbox.publishers.pinned import PinnedTransport  # noqa: PLC0415 - an extra

        target = self._target
        request = self._request(event)
        try:
            async with asyncio.timeout(self._timeout):
                addresses = await self._addresses()
                pinned = PinnedTransport(addresses, tls=self._tls, connect_seconds=self._connect_timeout)
                async with pinned as transport:
                    status = (await transport.handle_async_request(request)).status_code
        except TimeoutError:
            raise PublishFailed(f"{target.host} did not answer within {self._timeout:g} s") from None
        except PublishFailed as error:
            raise PublishFailed(f"{target.host}: {error}") from None
        if not 200 <= status < 300:
            raise PublishFailed(f"{target.host} answered {status}", status=status)

    async def _addresses(self) -> list[str]:
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await resolved(self._target, self._resolve)
        except TimeoutError:
            raise PublishFailed(f"the name was not resolved within {self._connect_timeout:g} s") from None

    def _request(self, event: OutboxEvent) -> httpx2.Request:
        import httpx2  # noqa: PLC0415 - an extra

        made, body = cloudevent.to_http(event, self._mode)
        headers = {
            "Host": self._target.host_header,
            "User-Agent": "pgqrs",
            "Accept": "*/*",
            "Connection": "close",
            "Content-Length": str(len(body)),
            **made,
            **self._headers,
        }
        if self._secret is not None:
            # A stamp for the receiver, who compares it with the receiver's own clock.
            headers[signature.HEADER] = signature.sign(self._secret, body, timestamp=int(time.time()))
        for name, value in made.items():
            _checked_header(name, value, ours=True)
        target = self._target
        url = httpx2.URL(scheme="https" if target.is_https else "http", host=target.host, port=target.port)
        # The path as it was given: a URL of httpx would escape some characters of it.
        return httpx2.Request("POST", url, headers=headers, content=body, extensions={"target": target.path.encode()})

    def __repr__(self) -> str:
        # The path of a webhook is often its password.
        return f"HttpPublisher({self._target.host_header})"


def _check_installed() -> None:
    """Raise ConfigError where the extra is missing. The imports take 0.1 s: here they keep no event waiting."""
    try:
        import httpcore2  # noqa: F401, PLC0415 - an extra
        import httpx2  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise ConfigError(f"webhooks need the `{error.name}` package: {install_command('web')}") from None
    cloudevent.check_installed()


def _checked_header(name: str, value: str, *, ours: bool = False) -> bool:
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise ConfigError(f"{name!r} is no name for a header")
    if not isinstance(value, str) or not _VALUE.fullmatch(value):
        # It may be a secret: not shown.
        raise ConfigError(f"the value of header {name!r} must be one line of printable ASCII")
    if not ours and (name.lower() in _OURS or name.lower().startswith("ce-")):
        raise ConfigError(f"header {name!r} is set by pgqrs itself")
    return True
