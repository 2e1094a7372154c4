"""What the routes of all nouns have in common."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pgqrs.names import NAME

API = "/api/v1"
# A page that is larger takes longer to read than to ask for the next.
MOST_PER_PAGE = 1_000

Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST_PER_PAGE)]
# Said in the description only: the library itself refuses others, with a hint.
Name = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{NAME}$"})]
Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    """What a request says; a field that is not known is refused, as it was surely meant to do something."""


class RunId(Shape):
    run_id: int


class Counted(Shape):
    """How many were done."""

    count: int
