"""Printing what was found: a table for people, JSON for programs, ids for the next command."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pgqrs.cli.state import state
from pgqrs.words import lasting

# Everything that a terminal may take for a command, or that makes text look like other text.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_COLOURS = {
    "SUCCESS": "green",
    "ERROR": "red",
    "CANCELLED": "bright_black",
    "PAUSED": "yellow",
    "RUNNING": "blue",
    "PENDING": "cyan",
}


class Column(NamedTuple):
    """A heading, and what stands below it for one item."""

    heading: str
    cell: Callable[[dict[str, Any]], Any]
    right: bool = False


def column(heading: str, name: str | None = None, *, right: bool = False) -> Column:
    """What the item has under that name."""
    key = name or heading
    return Column(heading, lambda item: item.get(key), right)


def safe(text: str) -> str:
    """Text of users, fit for a terminal: what is not printable is shown as its escape."""
    return _UNSAFE.sub(lambda found: found.group().encode("unicode_escape").decode(), text)


def body(thing: Any) -> Any:
    """As JSON, which the engine is imported for."""
    from pgqrs.api import bodies

    return bodies.body(thing)


def shown(value: Any) -> str:
    """A cell: times short, lists and objects as JSON, nothing for None."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.2f}".rstrip("0").rstrip(".")
        case int():
            return str(value)
        case str():
            return safe(value)
        case _:
            return safe(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def age(name: str) -> Callable[[dict[str, Any]], str]:
    """How long ago a time of the item is."""

    def cell(item: dict[str, Any]) -> str:
        text = item.get(name)
        if text is None:
            return ""
        return lasting((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())

    return cell


def items(
    found: Sequence[dict[str, Any]],
    columns: Sequence[Column],
    *,
    key: str,
    next_cursor: str | None = None,
    paged: bool = False,
) -> None:
    """A list. As JSON it is the API's body: `items`, and `next_cursor` where there are pages."""
    match state().output:
        case "json":
            one({"items": list(found), **({"next_cursor": next_cursor} if paged else {})})
        case "jsonl":
            for item in found:
                print(json.dumps(item, ensure_ascii=False))
        case "ids":
            for item in found:
                print(item[key])
        case _:
            table(found, columns)
            if next_cursor:
                print(f"more: --cursor {next_cursor}", file=sys.stderr)


def table(found: Iterable[dict[str, Any]], columns: Sequence[Column]) -> None:
    """Aligned; nothing is cut."""
    rows = [[shown(each.cell(item)) for each in columns] for item in found]
    if not sys.stdout.isatty() or not state().colour:
        _plain([[each.heading for each in columns], *rows], columns)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for each in columns:
        drawn.add_column(each.heading, justify="right" if each.right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(f"[{_COLOURS[cell]}]{cell}[/]" if cell in _COLOURS else escape(cell) for cell in row))
    Console().print(drawn)


def _plain(rows: list[list[str]], columns: Sequence[Column]) -> None:
    flat = [[cell.replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in flat) for i in range(len(columns))]
    for row in flat:
        cells = [
            cell.rjust(width) if each.right else cell.ljust(width)
            for cell, width, each in zip(row, widths, columns, strict=True)
        ]
        print("  ".join(cells).rstrip())


def one(item: Any) -> None:
    """One thing, as JSON; as a table, a line for each of its fields."""
    if state().output in ("json", "jsonl"):
        print(json.dumps(item, ensure_ascii=False, indent=2 if state().output == "json" else None))
        return
    width = max((len(name) for name in item), default=0)
    for name, value in item.items():
        if value is not None:
            print(f"{name.ljust(width)}  {shown(value)}")
