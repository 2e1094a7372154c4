"""What happened outside of the database: one line for each, appended by whoever it happened to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Ledger:
    """Lines are appended by one write each: in the order of the file is the order of time, whoever wrote them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, **fields: Any) -> None:
        os.write(self._file, (json.dumps({"kind": kind, "pid": os.getpid(), **fields}) + "\n").encode())

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        text = self.path.read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if not kind or line["kind"] == kind]

    def close(self) -> None:
        os.close(self._file)
