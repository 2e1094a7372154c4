"""Every pattern and parser that sees input is in the audit, and reads ten times its limit in no time."""

import ast
import re
from pathlib import Path
from re import _constants as codes
from re import _parser as parser

import pytest

import pgqrs
from security import parsers
from security.parsers import PARSERS

SOURCE = Path(pgqrs.__file__).parent
# What takes text apart.
READERS = {"compile", "match", "fullmatch", "search", "sub", "split", "findall", "finditer"}
# Linear, this is milliseconds for all but the largest: a hundred times as much is a pattern that tries again.
MOST_SECONDS = 10.0
# Files with patterns that the audit times; each name is a parser of it.
AUDITED = {
    "serialization/hash_collisions.py": "stored keys",
    "filters.py": "filter",
    "text/names.py": "names",
    "text/durations.py": "lengths of time",
    "config.py": "numbers of the environment",
    "text/dsn.py": "DSN in messages",
    "text/shell.py": "commands to copy",
    "web/auth/cross_site.py": "form keys",
    "web/middleware.py": "Host",
    "web/auth/proxies.py": "headers of proxies",
    "text/error_signature.py": "error signatures",
    "serialization/tags.py": "stored JSON",
    "cli/output.py": "command line: output",
    "text/step_ids.py": "step ids of children",
    "db/upkeep/import_v1.py": "tables to import",
    "db/readable.py": "stored numbers",
    "engine/outbox/publishers/addresses.py": "webhook address",
    "engine/outbox/publishers/http.py": "webhook header",
    "engine/outbox/publishers/notify.py": "channel names",
    "engine/outbox/publishers/signature.py": "webhook signature",
    "telemetry/health.py": "Host of the health port",
    "web/auth/tokens.py": "token names",
}
# Files whose patterns see nothing that comes from outside.
OURS = {
    "serialization/classes.py": "a message of msgspec about the type, its path last",
    "api/arguments.py": "the name of a class that a program decorates",
    "api/dispatcher.py": "event types that a program names when it makes its dispatcher",
    "cli/completion.py": "our own commands",
    "cli/commands/explain.py": "the code of an error that a person types, one character at a time",
    "cli/reference.py": "our own help",
    "db/database.py": "the beginning of a handler's own SQL",
    "db/drivers/postgres/errors.py": "what PostgreSQL says of a database that is missing",
    "db/upkeep/invariants.py": "our own SQL",
    "db/migrations/__init__.py": "our own SQL",
    "db/queries.py": "our own SQL",
    "errors.py": "names of our own classes",
    "lint/__init__.py": "the program that is checked",
    "testing/crash.py": "tests",
    "testing/determinism.py": "tests",
    "testing/crash_point.py": "tests",
    "web/openapi.py": "our own routes",
    "web/reference.py": "our own routes",
}


def _patterns():
    """File, line and text of each pattern; None for one that is put together."""
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id == "re"
                and node.func.attr in READERS
            ):
                given = node.args[0]
                yield file.relative_to(SOURCE).as_posix(), node.lineno, getattr(given, "value", None)


def test_every_pattern_is_audited_or_sees_no_input():
    found = {file for file, _, _ in _patterns()}

    assert found == set(AUDITED) | set(OURS)
    assert not set(AUDITED) & set(OURS)
    assert set(AUDITED.values()) <= {each.name for each in PARSERS}


def _repeats(parsed, *, inside):
    """Unbounded repeats inside of unbounded repeats that could give back what they took."""
    for code, given in parsed:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            _, most, body = given
            unbounded = most is codes.MAXREPEAT
            if inside and unbounded:
                yield body
            yield from _repeats(body, inside=inside or unbounded)
        elif code is codes.SUBPATTERN:
            yield from _repeats(given[-1], inside=inside)
        elif code is codes.BRANCH:
            for branch in given[1]:
                yield from _repeats(branch, inside=inside)
        elif code is codes.POSSESSIVE_REPEAT:
            # It gives nothing back: what is inside is tried once.
            yield from _repeats(given[2], inside=False)


def test_no_pattern_repeats_what_it_repeats():
    """Nested repeats are how a pattern takes exponential time. `(?:,\\d+)*` is none: what separates is always there."""
    hurt = [
        (file, line, text)
        for file, line, text in _patterns()
        if isinstance(text, str | bytes)
        for _ in _repeats(parser.parse(text), inside=False)
    ]
    # Each of these begins its inner part with a character that the repeated class does not have.
    known = {("text/error_signature.py", r"(?<!\w)[+-]?\d+(?:[.,:]\d+)*|\d+(?:[.,:]\d+)*")}

    assert {(file, text) for file, _, text in hurt if file not in OURS} <= known


@pytest.mark.parametrize("each", PARSERS, ids=lambda each: each.name)
def test_ten_times_its_limit_is_read_in_no_time(each):
    with each.without_limit():
        for make in each.hostile:
            assert each.seconds(make, 10 * each.limit) < MOST_SECONDS


def test_the_audit_would_notice_a_pattern_that_backtracks():
    slow = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
    caught = parsers.Parser("old", lambda text: slow.sub("", text), 1_000, (parsers.repeated("text:", '"\\', ""),))
    at_once, four_times = (caught.seconds(caught.hostile[0], size) for size in (1_000, 4_000))

    # Sixteen times as long for four times as much, against four times for what is linear.
    assert four_times > 8 * at_once
