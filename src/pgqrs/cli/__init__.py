"""The command line: `pgqrs --help`."""

from __future__ import annotations

from pgqrs.cli.app import main

__all__ = ["main"]
