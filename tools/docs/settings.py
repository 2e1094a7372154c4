"""docs/reference/settings.md from the fields of Config."""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any

from pgqrs.config import Config

HEAD = """# Settings

Every setting of a store, with its default and what it means. (Made by `make docs-pages` from `src/pgqrs/config.py`: edit that.)

`pgqrs.connect(dsn, **settings)` or `pgqrs.connect_with(pgqrs.Config(dsn, ...))`. Each is also an environment variable: `lease_seconds` is
`PGQRS_LEASE_SECONDS`. An argument wins over the environment, the environment over the default. The command line reads `[tool.pgqrs]` of
`pyproject.toml` as well, below the environment; `pgqrs config show` says where each value comes from. Times are in seconds; a yes or no
is written `1` or `0`.

| setting | type | default | at least | meaning |
|---|---|---|---|---|
"""

TAIL = """
Two more variables are no fields of `Config`: `WORKER_TYPE_PREFIXES` gives a worker its [prefixes](../guides/workers.md), and `PGQRS_APP`
names the application that the command line imports.
"""


def page() -> str:
    return HEAD + "".join(_row(each) for each in fields(Config)) + TAIL


def _row(setting: Field[Any]) -> str:
    default, least = setting.metadata["default"], setting.metadata["least"]
    kind = type(default).__name__
    shown = {"bool": "yes" if default else "no"}.get(kind, f"`{default}`" if default != "" else "")
    if isinstance(default, float) and default.is_integer():
        shown = f"`{default:.0f}`"
    bound = "" if least is None else f"{least:g}"
    return f"| `{setting.name}` | {kind} | {shown} | {bound} | {setting.metadata['meaning']} |\n"
