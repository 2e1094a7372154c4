"""What differs between the databases, as a handful of tokens in one SQL text.

{now}                    :now when a test has set the clock, else the database's time
{after x}                {now} plus x seconds, x being a parameter or a column
{shift t by x}           the time t plus x seconds
{seconds a since b}      the seconds from b to a, as a float
{in ids}                 = any of the list :ids
{rows given: a id, b json}   a table `given` made from the list of tuples :given; also has `position`
{next_token x}           a lease token: greater than x, and the time, so that none is given twice
{skip_locked}            lock the rows read, pass over those that somebody else has locked
{text x}                 the JSON x as text, and
{as_json x}              the text x as JSON: JSON travels as text, so that no codec on a caller's connection
                         encodes it once more, or decodes it before we do
{contains x in y}        does the text y hold x, whatever the case of a-z (x is in lower case already)
{by x}                   the text x for an order or a comparison that is the same on every database: by its bytes
{lock x}                 let nobody else change the rows of x until the transaction ends
{keep x}                 let nobody delete the rows of x until the transaction ends
{index x}                the index x with its schema, as `drop index` wants it
{id} {ref} {json} {time}     column types
{hot}                    storage options of the table that changes all the time
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

ParamStyle = Literal["numbered", "named", "pyformat", "format", "qmark"]

# A token's text, its argument (what follows the first blank), and the dialect give the SQL.
_Render = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Renders tokens; one instance per database, made once."""

    name: Literal["postgres", "sqlite"]
    # Tables are written bare in the texts and qualified here, so that no search_path decides what they mean.
    schema: str | None = None

    def table(self, name: str) -> str:
        return f'"{self.schema}".{name}' if self.schema else name

    def token(self, word: str, argument: str) -> str:
        if word == "index":
            return self.table(argument)
        renderer = (_POSTGRES if self.name == "postgres" else _SQLITE).get(word)
        if renderer is None:
            raise ValueError(f"unknown token {{{word}}} in SQL text")
        return renderer(argument)

    @property
    def is_postgres(self) -> bool:
        return self.name == "postgres"


def columns_of(argument: str) -> tuple[str, list[tuple[str, str]]]:
    """`given: a id, b json` as ("given", [("a", "id"), ("b", "json")])."""
    name, _, listed = argument.partition(":")
    pairs = [each.split() for each in listed.split(",")]
    return name.strip(), [(column, kind) for column, kind in pairs]


# statement_timestamp(): now() stands still in a long transaction, clock_timestamp() is volatile and cannot
# be an index condition.
_POSTGRES_NOW = "coalesce(:now::timestamptz, statement_timestamp())"
_POSTGRES_USUAL = "between timestamptz '0001-01-01 UTC' and timestamptz '9999-12-31 UTC'"
# Microseconds since 1970 in an integer: exact, sorts by itself, no time zone. SQLite's clock ticks in
# milliseconds, and unixepoch('subsec') needs 3.42, so round what julianday gives to its millisecond.
_SQLITE_NOW = "coalesce(:now, cast(round((julianday('now') - 2440587.5) * 86400000) as integer) * 1000)"

_POSTGRES_ARRAYS = {
    "id": "bigint[]",
    "int": "integer[]",
    "json": "json[]",
    "seconds": "float8[]",
    "text": "text[]",
    "time": "timestamptz[]",
}


def _postgres_rows(argument: str) -> str:
    name, columns = columns_of(argument)
    # As text (see arrays.py); `n` says that a column holds numbers.
    marks = ["n" if kind in ("id", "int", "seconds") else "" for _, kind in columns]
    arrays = ", ".join(
        f":{name}.{i}{marks[i]}::text::{_POSTGRES_ARRAYS[kind]}" for i, (_, kind) in enumerate(columns)
    )
    listed = ", ".join(column for column, _ in columns)
    return f"unnest({arrays}) with ordinality as {name} ({listed}, position)"


def _sqlite_rows(argument: str) -> str:
    name, columns = columns_of(argument)
    listed = ", ".join(f"json_extract(value, '$[{i}]') as {column}" for i, (column, _) in enumerate(columns))
    return f"(select {listed}, key as position from json_each(:{name})) as {name}"


def _shift(template: str) -> _Render:
    def render(argument: str) -> str:
        time, seconds = argument.split(" by ")
        return template.format(time=time, seconds=seconds)

    return render


def _seconds(template: str) -> _Render:
    def render(argument: str) -> str:
        later, earlier = argument.split(" since ")
        return template.format(later=later, earlier=earlier)

    return render


def _contains(template: str) -> _Render:
    def render(argument: str) -> str:
        part, whole = argument.split(" in ")
        return template.format(part=part, whole=whole)

    return render


_POSTGRES: dict[str, _Render] = {
    "now": lambda _: _POSTGRES_NOW,
    "after": lambda x: f"({_POSTGRES_NOW} + {x}::float8 * interval '1 second')",
    # A statement must not fail for one row whose time is infinite (PostgreSQL 15 cannot subtract that), or near the
    # end of the database's range. Such a time stays where it is, and is 30,000 years away.
    "shift": _shift(
        f"(case when {{time}} {_POSTGRES_USUAL} then {{time}} + ({{seconds}}::float8) * interval '1 second'"
        " else {time} end)"
    ),
    "seconds": _seconds(
        f"(case when {{later}} {_POSTGRES_USUAL} and {{earlier}} {_POSTGRES_USUAL}"
        " then extract(epoch from ({later} - {earlier}))::float8"
        " else sign(date_part('epoch', {later}) - date_part('epoch', {earlier})) * 1e12 end)"
    ),
    "in": lambda x: f"= any(:{x}::bigint[])",
    "rows": _postgres_rows,
    # Exact: a double has room for today's microseconds.
    # The largest there is stays what it is: a row that has it must not fail the lease of the others.
    "next_token": lambda x: (
        f"greatest(least({x}, 9223372036854775806) + 1, (date_part('epoch', {_POSTGRES_NOW}) * 1000000)::bigint)"
    ),
    "skip_locked": lambda _: "for update skip locked",
    "text": lambda x: f"{x}::text",
    "as_json": lambda x: f"{x}::text::json",
    # By the C collation: only a-z have two cases then, as in SQLite.
    "contains": _contains('strpos(lower({whole} collate "C"), {part}) > 0'),
    "by": lambda x: f'{x} collate "C"',
    "lock": lambda x: f"for update of {x}",
    "keep": lambda x: f"for key share of {x}",
    "id": lambda _: "bigint generated by default as identity primary key",
    "ref": lambda _: "bigint",
    "json": lambda _: "json",
    "time": lambda _: "timestamptz",
    # Every lease and every archive leaves a dead row behind: clean up after 1 % instead of 20 %.
    "hot": lambda _: (
        "with (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,"
        " autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05)"
    ),
}

_SQLITE: dict[str, _Render] = {
    "now": lambda _: _SQLITE_NOW,
    "after": lambda x: f"({_SQLITE_NOW} + cast({x} * 1000000 as integer))",
    "shift": _shift("({time} + cast(({seconds}) * 1000000 as integer))"),
    # Of two arguments, these are no aggregates, and null where one is null.
    "seconds": _seconds("max(min(({later} - {earlier}) / 1000000.0, 1e12), -1e12)"),
    "in": lambda x: f"in (select value from json_each(:{x}))",
    "rows": _sqlite_rows,
    "next_token": lambda x: f"max(min({x}, 9223372036854775806) + 1, {_SQLITE_NOW})",
    # The writer holds the whole database: there is nobody to pass over.
    "skip_locked": lambda _: "",
    "text": lambda x: x,
    "as_json": lambda x: x,
    "contains": _contains("instr(lower({whole}), {part}) > 0"),
    "by": lambda x: x,
    "lock": lambda _: "",
    "keep": lambda _: "",
    "id": lambda _: "integer primary key autoincrement",
    "ref": lambda _: "integer",
    "json": lambda _: "text",
    "time": lambda _: "integer",
    "hot": lambda _: "",
}
