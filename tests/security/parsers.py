"""Every parser and pattern that sees input, with texts that make a careless one slow.

`python -m security.parsers` (or `make audit-parsers`) times each at 2.5 and at ten times its limit and prints how its
time grows: 1.0 is linear, 2.0 quadratic.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock
from uuid import UUID

import h11
from starlette.datastructures import Headers
from starlette.requests import Request

import pgqrs
from pgqrs import filters, inputs, serialization
from pgqrs.api import cursors
from pgqrs.api.arguments import check_texts, checked_key
from pgqrs.api.operations import queue_peek, stored_json
from pgqrs.cli import output, parse_values
from pgqrs.config import Config
from pgqrs.db import readable
from pgqrs.db.upkeep import import_v1
from pgqrs.engine.outbox.publishers import addresses, http, notify, signature
from pgqrs.engine.schedules import cadence
from pgqrs.errors import PgqrsError, WorkflowNotFound
from pgqrs.telemetry import health
from pgqrs.text import durations, error_signature, names, shell, step_ids
from pgqrs.text.dsn import masked, without_secrets
from pgqrs.text.wildcards import matches
from pgqrs.web import middleware, pagination, request_body
from pgqrs.web.auth import cross_site, proxies, tokens
from pgqrs.web.auth.sessions import Sessions
from pgqrs.web.problems import Problem

# What a header, an address or a word of the command line may have.
HEADER = 16 * 1024
# A tenth of the largest payload: ten times as much as a payload may have is a gigabyte, parsed.
PAYLOAD = 2 * 2**20 // 10

Hostile = Callable[[int], Any]


@dataclass(frozen=True)
class Parser:
    """What reads a text, how long the text may be, and texts of a given length that are hard to read."""

    name: str
    read: Callable[[Any], object]
    limit: int
    hostile: tuple[Hostile, ...]
    # A limit of its own that is lifted for this: (module, name).
    lifted: tuple[Any, str] | None = None

    def seconds(self, make: Hostile, size: int) -> float:
        """Of the processor, the best of three: what other processes do meanwhile does not count."""
        text = make(size)
        best = math.inf
        for _ in range(3):
            began = time.process_time()
            with contextlib.suppress(PgqrsError, Problem, ValueError, RecursionError):
                self.read(text)
            best = min(best, time.process_time() - began)
            if best > 0.1:
                break
        return best

    @contextlib.contextmanager
    def without_limit(self) -> Iterator[None]:
        if self.lifted is None:
            yield
            return
        with mock.patch.object(*self.lifted, 10**9):
            yield


def repeated(*parts: str) -> Hostile:
    """One part again and again, between a beginning and an end."""
    first, part, last = parts
    return lambda size: first + part * max(0, (size - len(first) - len(last)) // len(part)) + last


PLAIN = (repeated("", "a", ""), repeated("", "a", "!"), repeated("", "1", "x"), repeated("", " ", "x"))
QUOTES = (
    repeated("", '"', ""),
    repeated("text:", '"\\', ""),
    repeated('text:"', "\\", ""),
    repeated('text:"', '\\"', ""),
    repeated('"', 'a"', ""),
    repeated("", 'a"b" ', '"'),
)
DOTS = (repeated("", "1.", ""), repeated("", ".", "1"), repeated("1", "e1", ""), repeated("-", "9", ""))
JSONS = (
    repeated("[", "[],", "[]]"),
    repeated("", "[", ""),
    repeated('{"a":', '{"a":', "1"),
    repeated("[", "1,", "1]"),
    repeated('["', "\\u0041", '"]'),
    repeated('["', "\\", '"]'),
    repeated("", "9", ""),
    repeated('{"$set":[', "1,", "1]}"),
    repeated('{"$int":"', "9", '"}'),
    lambda size: "{" + ",".join(f'"k{n}":1' for n in range(size // 10)) + "}",
)
MESSAGES = (
    *PLAIN,
    repeated("", "'", ""),
    repeated("", '"a', ""),
    repeated("", "a@", ""),
    repeated("", "a.", "@"),
    repeated("", "a:", ""),
    repeated("", ":", "g"),
    repeated("", "/", ""),
    repeated("", "a/", " "),
    repeated("", "\\", ""),
    repeated("", "0x", ""),
    repeated("", "1,", ""),
    repeated("", "deadbee ", ""),
    repeated("", "12345678-1234-", ""),
    repeated("", "2024-01-01T", ""),
)


def _many_options(count: int) -> str:
    """Each of them has a value of its own to hide."""
    return "postgresql://h/d?" + "".join(f"a={n:05}&" for n in range(count // 8))


DSNS = (
    *PLAIN,
    _many_options,
    repeated("postgresql://", "@", ""),
    repeated("postgresql://a:", "b", "@c/d?e=f"),
    repeated("postgresql://h/d?", "a=b&", ""),
    repeated("sqlite:///a", "%3f", ""),
    repeated("a://", "#a", ""),
    repeated("postgresql://", "h,", "/d"),
    repeated("postgresql://%2f", "%", ""),
)


def _host(text: str) -> object:
    return health._ProbeConnections(_nothing, None, "127.0.0.1")._is_addressed_to_us(
        [b"Host: " + text.encode("latin-1")]
    )


async def _nothing() -> list[str]:
    return []


def _pattern(size: int) -> tuple[str, str]:
    return "*a" * (size // 2) + "Z", "a" * size


# Multiples of it hash to 0.
ALIKE = 2**61 - 1


def _alike(size: int) -> str:
    return json.dumps([number * ALIKE for number in range(1, size // 26)])


def _alike_keys(size: int) -> str:
    return json.dumps({str(number * ALIKE): 1 for number in range(1, size // 32)})


def _alike_uuids(size: int) -> str:
    return json.dumps([str(UUID(int=number * ALIKE)) for number in range(1, size // 40)])


def _alike_tagged(size: int) -> str:
    return json.dumps({"$set": [{"$int": str(number * ALIKE)} for number in range(1, size // 40)]})


def _number_of_environment(text: str) -> object:
    with mock.patch.dict(os.environ, {"PGQRS_LEASE_SECONDS": text}):
        return Config("sqlite:///a.db")


def _headers(**given: str) -> Headers:
    return Headers(given)


def _request(headers: dict[str, str], query: str = "") -> Request:
    pairs = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return Request({"type": "http", "headers": pairs, "query_string": query.encode(), "path": "/"})


def _query(size: int) -> str:
    return "&".join(f"a{n}=%41" for n in range(size // 8))


def _url(text: str) -> object:
    return addresses.checked_url(text, allow_http=False, allow_hosts=(), ports=None)


def _answer(text: bytes) -> object:
    """As httpcore reads the answer to a webhook: all of its head, informational answers before it included."""
    reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=100 * 1024)
    reader.send(h11.Request(method="POST", target="/", headers=[("Host", "a"), ("Content-Length", "0")]))
    reader.send(h11.EndOfMessage())
    with contextlib.suppress(h11.RemoteProtocolError):
        for start in range(0, len(text), 1000):
            reader.receive_data(text[start : start + 1000])
            while isinstance(event := reader.next_event(), h11.InformationalResponse):
                pass
            if isinstance(event, h11.Response):
                return event
    return None


PARSERS = (
    Parser("filter", pgqrs.RunFilter.parse, filters.MOST_FILTER, QUOTES + PLAIN, (filters, "MOST_FILTER")),
    Parser(
        "filter: many attributes",
        pgqrs.RunFilter.parse,
        filters.MOST_FILTER,
        (lambda size: " ".join(f"attr:a{n}=1" for n in range(size // 12)),),
        (filters, "MOST_FILTER"),
    ),
    Parser("filter: attribute", filters._read_attribute, HEADER, (*QUOTES, repeated("", "=", ""), *PLAIN)),
    Parser("filter: times", filters._read_moment, HEADER, DOTS + PLAIN),
    Parser("filter: ids", filters._read_id, HEADER, DOTS),
    Parser("filter: written", lambda text: str(pgqrs.RunFilter.parse(f"text:{filters._quoted(text[:900])}")), 900, PLAIN),
    Parser("workflow pattern", lambda given: matches(*given), 255, (_pattern, lambda n: ("*" * n + "Z", "a" * n))),
    Parser("lengths of time", durations.parse_duration, HEADER, DOTS + PLAIN),
    Parser("cron", cadence._checked_cron, HEADER, (repeated("", "1,", "1 * * * *"), repeated("", "*/1 ", ""), *DOTS)),
    Parser("time zones", cadence._checked_zone, HEADER, (*PLAIN, repeated("", "../", ""))),
    Parser("cursor", lambda text: cursors.from_cursor(text, 2), HEADER, PLAIN),
    Parser("cursor of steps", pagination.step_place, HEADER, PLAIN),
    Parser("cursor of messages", queue_peek._from_cursor, HEADER, PLAIN),
    Parser("names", lambda text: names.checked_name("queue", text), HEADER, PLAIN),
    Parser("schema names", names.checked_schema, HEADER, PLAIN),
    Parser("step names", names.checked_step_name, HEADER, PLAIN),
    Parser("event types", names.checked_event_type, HEADER, PLAIN),
    Parser("idempotency keys", checked_key, HEADER, PLAIN),
    Parser("operators' texts", lambda text: check_texts(reason=text), HEADER, PLAIN),
    Parser("a name nobody has", lambda text: str(WorkflowNotFound(text, known=[text[1:]] * 50)), 255, PLAIN),
    Parser("step ids", step_ids.signal_of, HEADER, (repeated("wait_for:", "@", ""), repeated("wait_for:", "#", ""))),
    Parser(
        "step ids of children",
        lambda text: (step_ids.child_of(text), step_ids.is_spawn(text), step_ids.read(text), step_ids.anywhere(text)),
        HEADER,
        (repeated("result:", "1", "x"), repeated("spawn@", "#", ""), repeated("result:1@", "@", "\n")),
    ),
    Parser("DSN", Config, HEADER, (*PLAIN, repeated("a+", "b", ""), repeated("", "a/", ".db"), repeated("p://", "@", ""))),
    Parser("numbers of the environment", _number_of_environment, HEADER, DOTS),
    Parser("tables to import", import_v1._TABLE.fullmatch, HEADER, (*PLAIN, repeated("", "a.", ""))),
    Parser("command line: values", lambda text: parse_values.parameters([f"a:={text}"]), PAYLOAD, JSONS),
    Parser("command line: times", parse_values.moment, HEADER, DOTS + PLAIN),
    Parser("command line: output", output.safe, PAYLOAD, (repeated("", "\x1b[", ""), repeated("", "\u202e", ""))),
    Parser("Host of the health port", _host, HEADER, (repeated("", ":1", ""), repeated(":", "1", "x"), *DOTS)),
    Parser(
        "Host",
        lambda text: middleware.Guard(_nothing, hosts=frozenset(), most_bytes=1)._problem(_headers(host=text), None),
        HEADER,
        (repeated("", ":", ""), repeated("", "]", "")),
    ),
    Parser("headers of proxies", lambda text: proxies.tells_of_proxy(_headers(**{text: "", "x-a": text})), HEADER, (repeated("x-forward", "-", ""), repeated("", "accept-", "!"), repeated("", "for=", ""), *PLAIN)),
    Parser("X-Forwarded-For", proxies.TrustedProxies(["10.0.0.0/8"]).client, HEADER, (repeated("", "10.0.0.1,", ""), repeated("[", ":", "]:1"), repeated("", "1", ":"), *DOTS)),
    Parser("form keys", cross_site._KEY.fullmatch, HEADER, PLAIN),
    Parser("DSN in messages", lambda text: without_secrets("a " + text, "postgresql://u:" + text), HEADER, DSNS),
    Parser("DSN shown", masked, HEADER, DSNS),
    Parser("commands to copy", lambda text: shell.command("run signal", text), PAYLOAD, (*PLAIN, repeated("", "'", ""), repeated("", "\n", ""))),
    Parser("Content-Type", lambda text: request_body.content_type(_request({"content-type": text})), HEADER, PLAIN),
    Parser("query", lambda text: request_body.query_pairs(_request({}, text)), HEADER, (_query, repeated("", "&", ""))),
    Parser("JSON body", lambda text: request_body.parsed(text.encode()), PAYLOAD, JSONS),
    Parser("session cookie", Sessions().find, HEADER, (*PLAIN, repeated("", ".", ""))),
    Parser("token names", tokens._NAME.fullmatch, HEADER, PLAIN),
    Parser("stored JSON", serialization.decode, PAYLOAD, JSONS),
    Parser("stored JSON as it is", lambda text: stored_json.stored(text, raw=True), PAYLOAD, JSONS),
    Parser("stored set", lambda text: serialization.decode(text, set[int]), PAYLOAD, (_alike, *JSONS)),
    Parser("stored keys", lambda text: serialization.decode(text, dict[int, int]), PAYLOAD, (_alike_keys, *JSONS)),
    Parser("stored UUIDs", lambda text: serialization.decode(text, set[UUID]), PAYLOAD, (_alike_uuids,)),
    Parser("stored set by its tag", serialization.decode, PAYLOAD, (_alike_tagged,)),
    Parser("stored numbers", lambda text: readable._as(int, text), PAYLOAD, (repeated("", " ", "x"), repeated("", "1", ""), *PLAIN)),
    Parser("stored input", inputs.given_text, PAYLOAD, JSONS),
    Parser("error signatures", lambda text: error_signature.error_signature("E", text, None), 64 * 1024, MESSAGES),
    Parser("webhook address", lambda text: _url("https://" + text), HEADER, (*PLAIN, repeated("", "a.", ""), repeated("", "@", ""))),
    Parser("webhook header", lambda text: http._checked_header("x-a", text), HEADER, (*PLAIN, repeated("a", " ", "\t"))),
    Parser("webhook answer", lambda text: _answer(text.encode()), 64 * 1024, (repeated("HTTP/1.1 200 ", "a", ""), repeated("", "\r\n", ""), repeated("HTTP/1.1 200\r\n", "a: b\r\n", ""), repeated("", "HTTP/1.1 103\r\n\r\n", ""))),
    Parser("webhook signature", signature._VALUE.fullmatch, HEADER, (repeated("t=", "1", ""), repeated("t=1,v1=", "a", ""))),
    Parser("channel names", notify._CHANNEL.fullmatch, HEADER, PLAIN),
)  # fmt: skip


def main() -> None:
    print(f"{'parser':<28}{'limit':>10}{'at 2.5x':>12}{'at 10x':>12}{'growth':>8}")
    for parser in PARSERS:
        with parser.without_limit():
            slowest = max(parser.hostile, key=lambda make: parser.seconds(make, int(2.5 * parser.limit)))
            one, four = (parser.seconds(slowest, int(factor * parser.limit)) for factor in (2.5, 10))
        grown = math.log(max(four, 1e-7) / max(one, 1e-7), 4)
        shown = f"{grown:8.1f}" if four > 0.001 else "     < 1 ms"
        print(f"{parser.name:<28}{parser.limit:>10,}{one * 1000:>9.2f} ms{four * 1000:>9.2f} ms{shown}", flush=True)


if __name__ == "__main__":
    main()
