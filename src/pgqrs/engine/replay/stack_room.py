"""A handler that nears Python's recursion limit gets its RecursionError before the engine has begun anything for it.

In the midst of the engine it would leave something begun that never ends.
"""

from __future__ import annotations

import sys

# Frames. What follows needs 30 at most, with a tracer.
_ROOM = 100


def check_stack_room() -> None:
    """Raise RecursionError where the engine could run into the limit."""
    limit = sys.getrecursionlimit()
    try:
        # Raises when there are fewer frames: the quickest way to learn how many there are.
        sys._getframe(max(limit - _ROOM, limit // 2))  # noqa: SLF001 - there is no other way
    except ValueError:
        return
    raise RecursionError(f"maximum recursion depth exceeded: pgqrs keeps {_ROOM} of the {limit} frames for itself")
