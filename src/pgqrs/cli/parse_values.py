"""What people type, as values: `k=v`, `k:=json`, `@file`, `-`, lengths of time and points in time."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgqrs.errors import ConfigError, InvalidArguments
from pgqrs.inputs import Typed
from pgqrs.text.durations import parse_duration
from pgqrs.text.shell import quoted

if TYPE_CHECKING:
    from pgqrs.engine.definitions.binding import Signature

# What a file or standard input may hold: as much as a payload, and a little more for blanks.
_MOST_BYTES = 64 * 1024 * 1024

__all__ = ["arguments", "document", "ids", "moment", "parameters", "parse_duration", "parsed", "with_json"]


def arguments(words: Sequence[str]) -> Any:
    """As `parameters`, for a workflow: names are those of its parameters, or of the fields of the value it takes."""
    found = parameters(words)
    return Typed(found) if words and not _is_document(words) else found


def with_json(error: InvalidArguments, given: Any, signature: Signature | None) -> InvalidArguments:
    """The same error; with `write n:=1` where a person typed `n=1`, and the number would have fitted."""
    name = error.parameter
    text = given.get(name) if isinstance(given, Typed) and name is not None else None
    if not isinstance(text, str) or signature is None or name not in signature.names:
        return error
    try:
        value = json.loads(text)
    except ValueError:
        return error
    if isinstance(value, str) or signature.misfit(name, json.dumps(value)) is not None:
        return error
    return InvalidArguments(error.workflow, error.reason, parameter=name, hint=f"write {name}:={quoted(text)}")


def parameters(words: Sequence[str]) -> Any:
    """`name=ann n:=3` as `{"name": "ann", "n": 3}`; `@file`, `-` or one JSON text as that; nothing as None."""
    if not words:
        return None
    if _is_document(words):
        return document(words[0])
    found: dict[str, Any] = {}
    for word in words:
        name, separator, text = _split(word)
        if not separator or not name:
            raise ConfigError(
                f"{word!r} is no parameter", hint="write name=text, name:=json, @file.json or - for stdin"
            )
        found[name] = text if separator == "=" else parsed(text, what=f"{name}:=")
    return found


def _is_document(words: Sequence[str]) -> bool:
    return len(words) == 1 and "=" not in words[0].partition('"')[0].partition("{")[0]


def _split(word: str) -> tuple[str, str, str]:
    name, equals, text = word.partition("=")
    return (name[:-1], ":=", text) if equals and name.endswith(":") else (name, equals, text)


def document(word: str) -> Any:
    """`@file`, `-` for standard input, else JSON."""
    if word == "-":
        return parsed(sys.stdin.read(_MOST_BYTES), what="standard input")
    if word.startswith("@"):
        try:
            with Path(word[1:]).open(encoding="utf-8") as file:
                return parsed(file.read(_MOST_BYTES), what=word[1:])
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{word[1:]!r} cannot be read: {error}") from None
    return parsed(word, what="the parameters")


def parsed(text: str, *, what: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what} is no JSON: {error}", hint="text needs quotes, or name=text") from None


def moment(text: str) -> datetime:
    """An ISO time; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is no time", hint="write 2030-01-31T12:00Z") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def ids(words: Sequence[str]) -> list[int]:
    """Ids from the command line; `-` reads more of them from standard input."""
    found: list[int] = []
    for word in words:
        for each in sys.stdin.read(_MOST_BYTES).split() if word == "-" else [word]:
            if not (each.isascii() and each.isdigit()):
                raise ConfigError(f"{each!r} is no id", hint="ids are numbers, or - to read them from standard input")
            found.append(int(each))
    return found
