"""What the routes of all nouns have in common."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from pgqrs.api.arguments import MOST_TEXT
from pgqrs.text.names import NAME

API = "/api/v1"
# A page that is larger takes longer to read than to ask for the next.
MOST_PER_PAGE = 1_000

Limit = Annotated[int, msgspec.Meta(ge=1, le=MOST_PER_PAGE)]
# Said in the description only: the library itself refuses others, with a hint.
Name = Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{NAME}$"})]
# RFC 3339. Said in the description only, as msgspec says it for times that must have a zone.
Time = Annotated[datetime, msgspec.Meta(extra_json_schema={"format": "date-time"})]
Id = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
# Numbers can be chosen so that many of them are slow to tell apart in a set.
Ids = Annotated[list[Id], msgspec.Meta(max_length=MOST_PER_PAGE)]
# What an operator says of what they do.
Words = Annotated[str, msgspec.Meta(max_length=MOST_TEXT)]


class RequestShape(msgspec.Struct, forbid_unknown_fields=True):
    """What a request says; a field that is not known is refused, as it was surely meant to do something."""


class ListAsked(RequestShape):
    """A page of a list of names, which are short and few: most stores have them all on one."""

    limit: Limit = MOST_PER_PAGE
    cursor: str | None = None


class RunId(RequestShape):
    run_id: int


class Counted(RequestShape):
    """How many were done."""

    count: int
