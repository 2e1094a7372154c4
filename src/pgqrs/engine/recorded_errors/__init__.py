"""Errors of steps as JSON text, and back: equal in class, text, arguments, attributes, notes, cause and context.

    record_of(error)      -> the text of pgqrs_workflow_steps.error
    raised_again(text)    -> the error that the handler gets, in the first pass and in all later ones

The engine raises the rebuilt error in the first pass, too. What a record cannot hold is therefore missing from the
beginning, and not only after a crash.

Nothing that a record says is executed. Classes are found as `classes.py` describes. Instances are made by the nearest
builtin class, without `__new__`, `__init__`, `__setstate__`, `__setattr__` or a property of their own; attributes go
directly into the instance's namespace. If that is not possible, the handler gets a stand-in, a StepFailed
(`stand_ins.py`). Attributes that could not be stored say so when they are used (`unrecorded.py`).
"""

from __future__ import annotations

import traceback

from pgqrs.engine.recorded_errors.classes import Program
from pgqrs.engine.recorded_errors.decode import Reader
from pgqrs.engine.recorded_errors.encode import Writer
from pgqrs.engine.recorded_errors.record import ErrorRecord, as_record, as_text
from pgqrs.engine.recorded_errors.texts import message_of, name_of, storable
from pgqrs.errors import StepFailed

__all__ = ["Program", "message_of", "raised_again", "record_of", "storable", "traceback_of"]

# Enough to find the line; a traceback of a deep recursion is not kept whole.
_MOST_TRACEBACK = 8_000


def record_of(error: BaseException, *, program: Program) -> str:
    """Return an error as JSON text. Never raises; values beyond about 64 KB are left out."""
    trace = traceback_of(error)
    try:
        record = Writer(program).record(error)
        record.traceback = trace
        return as_text(record)
    except Exception:  # noqa: BLE001 - attributes, `__eq__` and `__str__` are the user's, and may do anything
        return as_text(ErrorRecord(name_of(type(error)), message_of(error), trace, stand_in=True))


def raised_again(text: str, *, program: Program, step_id: str) -> BaseException:
    """Return the error that a record describes, or its stand-in. Never raises, whatever the text is.

    Raise it outside of any `except` block: Python would replace its `__context__` otherwise.
    """
    try:
        return Reader(program, step_id).read(as_record(text))
    except Exception as broken:  # noqa: BLE001 - the text may be anything
        return StepFailed(step_id, kind="Exception", message=f"(its record cannot be read: {type(broken).__name__})")


def traceback_of(error: BaseException) -> str:
    """Return the traceback as storable text, its end if it is long. Never raises."""
    try:
        return storable("".join(traceback.format_exception(error)))[-_MOST_TRACEBACK:]
    except Exception as broken:  # noqa: BLE001 - it calls code of the user's
        return f"(its traceback could not be formatted: {type(broken).__name__})"
