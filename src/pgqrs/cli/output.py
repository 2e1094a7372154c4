"""Printing what was found: a table for people, JSON for programs, ids for the next command."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pgqrs.cli.state import state
from pgqrs.clock import EARLIEST, LATEST, UNREADABLE
from pgqrs.text.durations import format_duration
from pgqrs.text.shell import quoted

# Everything that a terminal may take for a command, or that makes text look like other text.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
# Times that no datetime can hold, as bodies have them.
_UNREADABLE = {f"{each:%Y-%m-%dT%H:%M:%SZ}".rjust(20, "0") for each in (EARLIEST, LATEST)}
# Before every line but the first of what others wrote.
MARGIN = "  | "
COLOURS = {
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


def lines(text: str, margin: str = MARGIN) -> str:
    """Safe text in which no line but the first can pass for one of ours: a margin sets the others off."""
    return safe(text).replace("\n", f"\n{margin}")


def dumps(value: Any, *, indent: int | None = None) -> str:
    """JSON that a terminal shows and does not obey: what is not printable is written as its escape."""
    return _UNSAFE.sub(_json_escape, json.dumps(value, ensure_ascii=False, indent=indent))


def _json_escape(found: re.Match[str]) -> str:
    number = ord(found.group())
    # Beyond the first plane JSON has a pair of escapes.
    return f"\\u{number:04x}" if number < 0x10000 else json.dumps(found.group())[1:-1]


def body(thing: Any) -> Any:
    """As JSON, which the engine is imported for."""
    from pgqrs.api.operations import json_view

    return json_view.to_json(thing)


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
            return UNREADABLE if value in _UNREADABLE else safe(value)
        case _:
            return safe(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _flat(text: str) -> str:
    """One id, one line: the next program reads them so."""
    return text.replace("\n", "\\n")


def told(words: str) -> None:
    """What was done. To people on standard output; beside data, which programs read, on standard error."""
    print(lines(words), file=sys.stdout if state().output == "table" else sys.stderr)


def age(name: str) -> Callable[[dict[str, Any]], str]:
    """How long ago a time of the item is."""

    def cell(item: dict[str, Any]) -> str:
        from datetime import UTC, datetime

        text = item.get(name)
        if text is None or text in _UNREADABLE:
            return "" if text is None else UNREADABLE
        return format_duration((datetime.now(UTC) - datetime.fromisoformat(text)).total_seconds())

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
                print(dumps(item))
        case "ids":
            for item in found:
                print(_flat(shown(item[key])))
        case _:
            table(found, columns)
            if next_cursor:
                print(f"more: --cursor={quoted(next_cursor)}", file=sys.stderr)


def table(found: Iterable[dict[str, Any]], columns: Sequence[Column]) -> None:
    """Aligned; nothing is cut."""
    rows = [[shown(each.cell(item)) for each in columns] for item in found]
    if not sys.stdout.isatty() or not state().colour:
        _plain([[each.heading for each in columns], *rows], columns)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, header_style="bold", pad_edge=False)
    for each in columns:
        drawn.add_column(each.heading, justify="right" if each.right else "left", overflow="fold")
    for row in rows:
        # As Text: in a plain string rich finds markup, and pictures such as :warning:.
        drawn.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
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


def one(item: Any, *, key: str | None = None) -> None:
    """One thing: as JSON; as a table, a line for each field; as an id, its key, else its first field."""
    match state().output:
        case "json":
            print(dumps(item, indent=2))
        case "jsonl":
            print(dumps(item))
        case "ids":
            print(_flat(shown(item[key or next(iter(item))])))
        case _:
            width = max((len(name) for name in item), default=0)
            for name, value in item.items():
                if value is not None:
                    print(lines(f"{name.ljust(width)}  {shown(value)}", " " * width + "| "))
