"""The form of a record, as JSON.

A record is a tree. An error that occurs twice in it (most causes are contexts, too) is written once: `ref` is its
number, counted in the order of writing, which is also the order of reading: an error itself, then its `exceptions`,
`held`, `cause` and `context`.
"""

from __future__ import annotations

import msgspec

from pgqrs.engine.recorded_errors.classes import ClassName

NULL = msgspec.Raw(b"null")


class HeldValue(msgspec.Struct, omit_defaults=True):
    """A value that is or holds errors: kind is value, error, list, tuple or dict."""

    kind: str = "value"
    value: msgspec.Raw = NULL
    error: ErrorRecord | None = None
    keys: list[str] = []
    items: list[HeldValue] = []


class ErrorRecord(msgspec.Struct, omit_defaults=True):
    """One error. Rows of earlier versions have only the first three fields."""

    type: str | None = None
    message: str | None = None
    traceback: str | None = None
    # Where the class is. `home`: in the handler's own module. `stand_in`: no reader shall look for it.
    module: str | None = None
    qualname: str | None = None
    home: bool = False
    stand_in: bool = False
    # Classes that the stand-in is made of, so that `except` clauses for them still catch it.
    bases: list[ClassName] = []
    # The text, if the class makes it of attributes that are not recorded.
    says: str | None = None
    args: list[msgspec.Raw] = []
    attributes: dict[str, msgspec.Raw] = {}
    # Attributes that need the annotation of the class to be read.
    annotated: list[str] = []
    # Values that builtin classes keep in C.
    fields: dict[str, msgspec.Raw] = {}
    # By "args.0", "attributes.name" or "fields.name".
    held: dict[str, HeldValue] = {}
    # Attributes and their types, by the same names as above.
    unstored: dict[str, str] = {}
    too_large: list[str] = []
    exceptions: list[ErrorRecord] = []
    cause: ErrorRecord | None = None
    context: ErrorRecord | None = None
    suppress_context: bool = False
    ref: int | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ErrorRecord)


def as_text(record: ErrorRecord) -> str:
    return _encoder.encode(record).decode()


def as_record(text: str) -> ErrorRecord:
    """Raises msgspec.MsgspecError or RecursionError for a text that is no record."""
    return _decoder.decode(text)
