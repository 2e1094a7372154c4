"""Named queries: read from .sql files, rendered once per dialect, bound by name.

A file holds blocks that start with `-- name: x`; `{include _x}` puts a piece into a query. Where `x` also stands in
a file `*.postgres.sql` beside it, that text is used on PostgreSQL.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from typing import Any

import msgspec

from pgqrs.clock import microseconds
from pgqrs.db import postgres_arrays
from pgqrs.db.dialect import Dialect, ParamStyle

TABLES = (
    "pgqrs_migrations",
    "pgqrs_queues",
    "pgqrs_workers",
    "pgqrs_messages",
    "pgqrs_archived_messages",
    "pgqrs_workflows",
    "pgqrs_workflow_runs",
    "pgqrs_workflow_steps",
    "pgqrs_workflow_events",
    "pgqrs_signals",
    "pgqrs_outbox_events",
    "pgqrs_schedules",
    "pgqrs_schedule_slots",
    "pgqrs_run_attributes",
    "pgqrs_retention",
)

# Written bare in the texts, qualified with the schema when they are rendered.
QUALIFIED = (*TABLES, "pgqrs_trigger")

_BLOCK = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"\{include (\w+)\}")
_LITERAL = re.compile(r"('(?:[^']|'')*')")
_COMMENT = re.compile(r"--[^\n]*")
_TOKEN = re.compile(r"\{(\w+)(?:\s+([^{}]*))?\}")
_PARAM = re.compile(r"(?<!:):([a-z_][a-z0-9_]*)(?:\.(\d+)(n?))?")
_TABLE = re.compile(rf"\b({'|'.join(QUALIFIED)})\b")
_AS_THEY_ARE = frozenset({int, str, float, bytes})
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One placeholder: the argument it takes, and for `{rows}` on PostgreSQL which column of it, numbers or not."""

    name: str
    column: int | None = None
    numeric: bool = False

    @property
    def key(self) -> str:
        """What it is called where placeholders have names."""
        return self.name if self.column is None else f"{self.name}_{self.column}"

    def array(self, columns: Sequence[Sequence[Any]]) -> str:
        """The column that it stands for, of rows that are turned to columns."""
        # No rows have no columns.
        column = columns[self.column or 0] if columns else ()
        return postgres_arrays.numbers(column) if self.numeric else postgres_arrays.texts(column)


@dataclass(frozen=True, slots=True)
class Statement:
    """A query as one database wants it."""

    name: str
    sql: str
    parameters: tuple[Parameter, ...]
    # The names of those that are lists of rows.
    tables: frozenset[str]

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """The values in the order of the placeholders."""
        columns = {name: list(zip(*given[name], strict=True)) for name in self.tables}
        return [given[p.name] if p.column is None else p.array(columns[p.name]) for p in self.parameters]


@dataclass(frozen=True, slots=True, eq=False)
class Query:
    """A named SQL text with tokens; compiled on first use for each dialect."""

    name: str
    text: str
    postgres_text: str | None = None
    _compiled: dict[tuple[Dialect, ParamStyle], Statement] = field(default_factory=dict, repr=False)

    def compiled(self, dialect: Dialect, style: ParamStyle) -> Statement:
        statement = self._compiled.get((dialect, style))
        if statement is None:
            text = self.postgres_text if dialect.is_postgres and self.postgres_text else self.text
            statement = self._compiled[dialect, style] = compile_statement(self.name, text, dialect, style)
        return statement


def load(package: str, file: str, *, pieces_of: str = "") -> dict[str, Query]:
    """The queries of `<file>.sql`, with those of `<file>.postgres.sql` laid over them.

    They may include the pieces of their own file and of `pieces_of` (`package:file`); those for PostgreSQL also the
    common ones.
    """
    common = _queries(package, f"{file}.sql", f"{pieces_of}.sql")
    special = _queries(package, f"{file}.postgres.sql", f"{pieces_of}.postgres.sql", f"{file}.sql")
    return {
        name: Query(name, common.get(name, special.get(name, "")), special.get(name)) for name in common | special
    }


def _queries(package: str, file: str, *others: str) -> dict[str, str]:
    blocks = _blocks(package, file)
    pieces = dict(ChainMap(blocks, *(_blocks(package, other) for other in others)))

    def included(text: str) -> str:
        return _INCLUDE.sub(lambda m: included(pieces[m.group(1)]), text)

    return {name: included(text) for name, text in blocks.items() if not name.startswith("_")}


def _blocks(package: str, file: str) -> dict[str, str]:
    elsewhere, _, file = file.rpartition(":")
    source = resources.files(elsewhere or package).joinpath(file)
    if not source.is_file():
        return {}
    parts = _BLOCK.split(source.read_text(encoding="utf-8"))
    return dict(zip(parts[1::2], (text.strip().rstrip(";") for text in parts[2::2]), strict=True))


def compile_statement(name: str, text: str, dialect: Dialect, style: ParamStyle) -> Statement:
    """Tokens rendered, tables qualified, comments dropped, `:names` turned into the driver's placeholders."""
    text = _outside_literals(_COMMENT.sub("", text), lambda part: _rendered(part, dialect))
    parameters: list[Parameter] = []

    def placeholder(match: re.Match[str]) -> str:
        column = match.group(2)
        parameter = Parameter(match.group(1), None if column is None else int(column), match.group(3) == "n")
        # Only these two can say the same thing twice.
        if style in ("numbered", "named", "pyformat") and parameter in parameters:
            number = parameters.index(parameter) + 1
        else:
            parameters.append(parameter)
            number = len(parameters)
        match style:
            case "numbered":
                return f"${number}"
            case "named":
                return f":{parameter.key}"
            case "pyformat":
                return f"%({parameter.key})s"
            case "format":
                return "%s"
            case "qmark":
                return "?"

    if style in ("pyformat", "format"):
        text = text.replace("%", "%%")
    sql = _outside_literals(text, lambda part: _PARAM.sub(placeholder, part))
    tables = frozenset(parameter.name for parameter in parameters if parameter.column is not None)
    return Statement(name, re.sub(r"\n\s*\n", "\n", sql).strip(), tuple(parameters), tables)


def _rendered(part: str, dialect: Dialect) -> str:
    # A token may stand inside another ({seconds {now} since x}): from the inside out.
    while _TOKEN.search(part):
        part = _TOKEN.sub(lambda m: dialect.token(m.group(1), (m.group(2) or "").strip()), part)
    return _TABLE.sub(lambda m: dialect.table(m.group(1)), part)


def _outside_literals(text: str, change: Callable[[str], str]) -> str:
    parts = _LITERAL.split(text)
    parts[::2] = [change(part) for part in parts[::2]]
    return "".join(parts)


def to_sqlite(value: Any) -> Any:
    """A parameter as SQLite and Turso store it: times as microseconds, lists as JSON."""
    if value is None or type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, datetime):
        return microseconds(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return _encoder.encode(_without_times(value)).decode()
    return value


def _without_times(items: Sequence[Any]) -> Sequence[Any]:
    """Numbers or rows, with the times in the rows as numbers, too. Most have none, and stay as they are."""
    if any(type(part) is datetime for item in items if isinstance(item, tuple) for part in item):
        return [[to_sqlite(part) for part in item] for item in items]
    return items


def changed_rows(tag: str) -> int:
    """How many rows a PostgreSQL command tag speaks of (`UPDATE 3`); 0 where it speaks of none (`BEGIN`)."""
    count = tag.rpartition(" ")[2]
    return int(count) if count.isdigit() else 0
