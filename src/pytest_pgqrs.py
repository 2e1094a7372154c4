"""The pytest plugin of pgqrs: the fixtures `pgqrs` and `apgqrs`.

Outside of the package, and without an import at its head: whoever does not use the fixtures does not pay for pgqrs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pgqrs.testing import AsyncKit, Kit


@pytest.fixture
def pgqrs() -> Iterator[Kit]:
    """A fresh database in memory, a hand-set clock, and a worker that works when it is told to: for plain tests."""
    from pgqrs.testing import Kit  # noqa: PLC0415 - see above

    with Kit() as kit:
        yield kit


@pytest.fixture
def apgqrs() -> Iterator[AsyncKit]:
    """The same for async tests, whichever plugin runs them: `await apgqrs.drain()`."""
    from pgqrs.testing import AsyncKit, Kit  # noqa: PLC0415 - see above

    kit = AsyncKit()
    yield kit
    # The test's loop may be gone by now.
    Kit.closing(kit)
    kit.assert_stubs_used()
