"""Code whose annotations name what only type checkers import, in each way that this Python allows."""

from __future__ import annotations

import sys
from typing import Any

import pytest

# As text, and from Python 3.14 on as it stands: annotations are evaluated there when they are read.
_HEADS = {"text": "from __future__ import annotations\n", "lazy": ""}
late_names = pytest.mark.parametrize("head", _HEADS if sys.version_info >= (3, 14) else ["text"])


def written(head: str, source: str, **names: Any) -> Any:
    """The last thing that the source defines, in a module that knows these names."""
    space = {"__name__": __name__, **names}
    exec(compile(_HEADS[head] + source, "late.py", "exec", dont_inherit=True), space)
    return list(space.values())[-1]
