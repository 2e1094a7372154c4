"""Hostile requests to every route of the table, from a seed: what is described, what is nearly so, and what is nothing like it."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import quote

from pgqrs.web import openapi
from pgqrs.web.application import endpoints

TEXTS = (
    "", " ", "flow", "tasks", "nightly", "0", "1", "-1", "null", "true", "\0", "a\0b", "\ud800", "é", "🐢" * 50, "x" * 5000,
    "../../etc/passwd", "%00", "%2e%2e/", "';drop table pgqrs_queues;--", '" or 1=1 --', "<script>alert(1)</script>",
    "${jndi:ldap://x}", "{{7*7}}", "\r\nX-Evil: 1", "status:error", "status:error,paused", "workflow:*", 'text:"open',
    "attr:a=b", "since:1h", "since:-1h", "since:99999999999d", "parent:99999999999999999999", "deleted:any", "key:\ud800",
    "1h", "24h", "7d", "1e9h", "2030-01-01", "2030-01-01T00:00:00Z", "0000-00-00", "9999-12-31T23:59:59Z",
    "0001-01-01T00:00:00+14:00", "* * * * *", "61 * * * *", "0 0 30 2 *", "*/0 * * * *", "UTC", "Mars/Olympus", "../UTC",
    "*" * 254 + "Z", "a*" * 127, "workflow:" + "*a" * 120, "text:" + '"\\' * 500, "attr:a=1 " * 60, "x" * 20_000, "9" * 5_000,
    "cancel", "restart", "delete", "skip", "AAAAAAAAAAE=", "AAAAAAAAAAAAAAAAAAAAAA==", "\u202e\u200b", "NaN", "Infinity",
)  # fmt: skip
NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    100,
    1000,
    1001,
    2**31 - 1,
    2**31,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    10**30,
    # Hashes to 0, as its multiples do.
    2**61 - 1,
    2 * (2**61 - 1),
    0.5,
    -0.0,
    1e-300,
    1e300,
)
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW")


class Fuzzer:
    """Requests as (method, url, headers, body), without end; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        document = openapi.document(endpoints(dashboard=False))
        self._schemas = document["components"]["schemas"]
        self._operations = [
            (method.upper(), path, operation)
            for path, found in document["paths"].items()
            for method, operation in found.items()
            # Without an end; it has tests of its own.
            if path != "/stream"
        ]

    def request(self) -> tuple[str, str, dict[str, str], bytes]:
        chance = self._random
        method, path, operation = chance.choice(self._operations)
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                path = path.replace("{" + parameter["name"] + "}", self._path_part(parameter["name"]))
        query = [
            (parameter["name"], self._query_value(parameter["schema"]))
            for parameter in operation["parameters"]
            if parameter["in"] == "query" and chance.random() < 0.3
        ]
        if chance.random() < 0.05:
            query.append((chance.choice(TEXTS), chance.choice(TEXTS)))
        headers = {"host": "localhost", "x-pgqrs-request": "1"}
        if chance.random() < 0.2:
            headers["idempotency-key"] = _header(chance.choice(TEXTS))
        body = b""
        if "requestBody" in operation or chance.random() < 0.05:
            headers["content-type"] = "application/json"
            body = self._body(operation)
        self._spoil(headers)
        if chance.random() < 0.03:
            method = chance.choice(METHODS)
        if chance.random() < 0.02:
            path += chance.choice(("/", "//", "/x", "%00", "/..", "?"))
        text = "&".join(f"{_quoted(name)}={_quoted(value)}" for name, value in query)
        return method, path + ("?" + text if text else ""), headers, body

    def _path_part(self, name: str) -> str:
        chance = self._random
        usual = {"queue": ("tasks", "flow"), "workflow": ("flow",), "schedule": ("nightly",), "name": ("go",)}
        if chance.random() < 0.7:
            return str(chance.choice(usual.get(name, range(1, 200))))
        return _quoted(str(chance.choice(TEXTS + NUMBERS))) or "x"

    def _query_value(self, schema: dict[str, Any]) -> str:
        value = self._value(schema) if self._random.random() < 0.6 else self._random.choice(TEXTS + NUMBERS)
        return value if isinstance(value, str) else json.dumps(value)

    def _body(self, operation: dict[str, Any]) -> bytes:
        chance = self._random
        schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        if chance.random() < 0.1:
            return chance.choice(
                (
                    b"",
                    b"{",
                    b"[]",
                    b"null",
                    b"{}x",
                    b'{"a":1,"a":2}',
                    b"NaN",
                    b"\xff",
                    b"[" * 5000,
                    b'"\\ud800"',
                    b"1e999",
                    json.dumps({"reason": "x" * 2_001}).encode(),
                    json.dumps({"ids": list(range(1_001))}).encode(),
                )
            )
        value = self._value(schema)
        if isinstance(value, dict) and value and chance.random() < 0.2:
            value[chance.choice(list(value))] = self._anything(3)
        if isinstance(value, dict) and chance.random() < 0.05:
            value[chance.choice(TEXTS)] = self._anything(2)
        return json.dumps(value).encode()

    def _value(self, schema: dict[str, Any], depth: int = 0) -> Any:  # noqa: C901, PLR0912 - a kind, a line
        chance = self._random
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"].rpartition("/")[2]]
        if "anyOf" in schema:
            return self._value(chance.choice(schema["anyOf"]), depth)
        if "enum" in schema:
            return chance.choice(schema["enum"])
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = chance.choice(kind)
        match kind:
            case "object":
                found = {}
                for name, each in schema.get("properties", {}).items():
                    if name in schema.get("required", ()) or chance.random() < 0.4:
                        found[name] = self._usual(name) if chance.random() < 0.7 else self._value(each, depth + 1)
                return found
            case "array":
                return [self._value(schema["items"], depth + 1) for _ in range(chance.randrange(4))]
            case "integer":
                if chance.random() < 0.5:
                    return chance.randint(max(0, schema.get("minimum", 0)), min(50, schema.get("maximum", 50)))
                return chance.choice([each for each in NUMBERS if isinstance(each, int)])
            case "number":
                return chance.choice(NUMBERS)
            case "boolean":
                return chance.random() < 0.5
            case "null":
                return None
            case "string":
                return chance.choice(TEXTS)
        return self._anything(3)

    def _usual(self, name: str) -> Any:
        """What makes the request get further than the first check."""
        chance = self._random
        usual: dict[str, Any] = {
            "workflow": "flow",
            "name": f"n{chance.randrange(20)}",
            "filter": chance.choice(("status:error", "workflow:flow since:1h", "attr:a=b", "")),
            "verb": chance.choice(("cancel", "restart", "delete")),
            "cron": chance.choice(("30 2 * * *", None)),
            "priority": chance.randrange(3),
            "idempotency_key": f"k{chance.randrange(50)}",
            "delay_seconds": chance.choice((0, 1, 60)),
            "run_at": chance.choice((None, "2031-01-01T00:00:00Z")),
            "dry_run": chance.random() < 0.7,
            "ids": [chance.randrange(100)],
        }
        return usual[name] if name in usual else self._anything(2)

    def _anything(self, depth: int) -> Any:
        chance = self._random
        kind = chance.randrange(7 if depth else 5)
        match kind:
            case 0:
                return chance.choice(TEXTS)
            case 1:
                return chance.choice(NUMBERS)
            case 2:
                return None
            case 3:
                return chance.random() < 0.5
            case 4:
                return chance.choice(("$datetime", "$dict", "$int"))
            case 5:
                return [self._anything(depth - 1) for _ in range(chance.randrange(4))]
        keys = (*TEXTS[:20], "$datetime", "$tuple", "a", "b")
        return {chance.choice(keys): self._anything(depth - 1) for _ in range(chance.randrange(4))}

    def _spoil(self, headers: dict[str, str]) -> None:
        chance = self._random
        if chance.random() < 0.05:
            name = chance.choice(
                (
                    "host",
                    "origin",
                    "content-type",
                    "content-length",
                    "transfer-encoding",
                    "cookie",
                    "accept-encoding",
                    "authorization",
                    "last-event-id",
                )
            )
            headers[name] = _header(chance.choice(TEXTS))


def _header(text: str) -> str:
    """As bytes that can stand in a header at all."""
    return (
        text.encode("utf-8", "replace").decode("latin-1").replace("\r", "").replace("\n", "").replace("\0", "")[:2000]
    )


def _quoted(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"), safe="")
