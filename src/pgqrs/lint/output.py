"""Findings as text for people, JSON for programs, annotations for GitHub."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, assert_never, get_args

from pgqrs.lint.rules import Finding

Format = Literal["text", "json", "github"]
FORMATS: tuple[Format, ...] = get_args(Format)


def shown(findings: Sequence[Finding], how: Format) -> str:
    """All of it, without a newline at the end; JSON is a list even when nothing was found."""
    match how:
        case "text":
            return "\n".join(_text(each) for each in findings)
        case "json":
            return json.dumps([_fields(each) for each in findings], indent=2, ensure_ascii=False)
        case "github":
            return "\n".join(_annotation(each) for each in findings)
        case _:
            assert_never(how)


def _text(finding: Finding) -> str:
    return f"{finding.path}:{finding.line}:{finding.column} {finding.code} {finding.message}"


def _fields(finding: Finding) -> dict[str, str | int]:
    return {
        "path": finding.path,
        "line": finding.line,
        "column": finding.column,
        "code": finding.code,
        "title": finding.rule.title,
        "message": finding.said,
        "instead": finding.rule.instead,
    }


def _annotation(finding: Finding) -> str:
    place = f"file={_property(finding.path)},line={finding.line},col={finding.column}"
    return f"::error {place},title={finding.code}::{_data(finding.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
