"""How long a generator goes on: `make test` asks it for a little of everything, `make test-all`, as in CI, for more."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")
# `make long` has the longest forms, and of the others those of CI.
IS_LONG = bool(os.environ.get("PGQRS_TEST_LONG") or os.environ.get("PGQRS_SOAK"))


def by_length(*, short: T, long: T) -> T:
    """`long` in CI. Only for how many: seeds and assertions are the same in both."""
    return long if IS_LONG else short
