"""Signatures of webhooks: HMAC-SHA256 over time and body, so that a receiver knows who sent it, and when."""

from __future__ import annotations

import hashlib
import hmac
import re
import time

from pgqrs.errors import ConfigError

HEADER = "Pgqrs-Signature"
# Receivers refuse what is older, or newer, than this: a request that somebody recorded is of no use later.
WINDOW_SECONDS = 300.0
_SHORTEST_SECRET = 16
_VALUE = re.compile(r"t=([0-9]{1,15}),v1=([0-9a-f]{64})", re.ASCII)


def checked_secret(secret: str | bytes) -> bytes:
    key = secret.encode() if isinstance(secret, str) else secret
    if not isinstance(key, bytes) or len(key) < _SHORTEST_SECRET:
        raise ConfigError(
            f"a secret has at least {_SHORTEST_SECRET} bytes", hint="make one with secrets.token_hex(32)"
        )
    return key


def sign(secret: bytes, body: bytes, *, timestamp: int) -> str:
    """The header's value: `t=<seconds since 1970>,v1=<hex of HMAC-SHA256 over "timestamp.body">`."""
    return f"t={timestamp},v1={_digest(secret, timestamp, body)}"


def verify_signature(
    secret: str | bytes,
    header: str | None,
    body: bytes,
    *,
    window_seconds: float = WINDOW_SECONDS,
    now: float | None = None,
) -> bool:
    """Whether the `Pgqrs-Signature` header fits the body as it was received, and is of the last minutes.

    Give it the raw bytes, not what a framework parsed out of them. `now` is seconds since 1970, for tests.
    """
    found = _VALUE.fullmatch(header or "")
    if found is None:
        return False
    timestamp = int(found[1])
    genuine = hmac.compare_digest(found[2], _digest(checked_secret(secret), timestamp, body))
    # The sender's clock against the receiver's: nobody's lease depends on it.
    age = (time.time() if now is None else now) - timestamp
    return genuine and abs(age) <= window_seconds


def _digest(secret: bytes, timestamp: int, body: bytes) -> str:
    return hmac.new(secret, f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
