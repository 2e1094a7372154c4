"""Every error that pgqrs raises, in one tree.

PgqrsError
├── ConfigError                 a setting, name or argument that cannot be right
│   └── InvalidArguments        arguments that do not fit the workflow's parameters
├── ConnectionFailed            the database cannot be reached, or a reply was lost
├── SchemaNotInstalled          the tables are not there
├── SchemaMismatch              the tables are of another version than this code
├── StorePromoted               what was in this database is in another one now
├── NotFound
│   ├── QueueNotFound
│   ├── WorkflowNotFound
│   ├── ScheduleNotFound
│   └── RunNotFound
│       └── RunDeleted          it was there, and somebody deleted it
├── NoActiveWorker              strict trigger, and nobody would run it
├── IdempotencyConflict         the key is taken by a run with another input
├── InvalidTransition           the thing is not in a state that allows this
│   └── AlreadyCompleted
├── StepFailed                  stands in for a step's error whose class cannot be found
├── ExecutionFailed             the run that was waited for ended in ERROR
├── RunCancelled                the run that was waited for was cancelled
├── WaitTimeout
├── SerializationError          a value that would not come back as it went in
│   └── PayloadTooLarge
├── LeaseLost                   somebody else holds the message now; nothing was written
├── PublishFailed               a receiver did not take an event of the outbox
└── NonDeterminism              a replay asked for other steps than were recorded

What handlers raise: PermanentError, TransientError, PauseError (also under PgqrsError).
PermanentError
├── NotAllowedInStep            a wait, a step or a child was asked for inside the body of a step
├── NotRecorded                 an attribute of a step's error was used that could not be stored
└── OutcomeUnknown              a step that must not run twice began, and how it ended is unknown

Messages name the problem and the way to fix it: `error.problem` and `error.hint`. Other fields carry the data, so
that no caller parses text. Programs that cannot see the class (HTTP, scripts) get its `code_of`; `pgqrs explain CODE`
says more about it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self


class PgqrsError(Exception):
    """The root: catches everything pgqrs raises on purpose.

    `hint` is the way to fix it, or None; `problem` is the rest of the message. `item` is the index of the item at
    fault, for calls that take many (`enqueue_many`, `trigger_many`).
    """

    hint: str | None = None
    item: int | None = None

    def __init__(self, *args: Any, hint: str | None = None) -> None:
        if hint is None:
            super().__init__(*args)
        else:
            said, *others = args
            super().__init__("; ".join((str(said), hint)), *others)
            self.hint = hint

    @property
    def problem(self) -> str:
        """What went wrong, without the hint."""
        return str(self) if self.hint is None else str(self).removesuffix(f"; {self.hint}")

    def of_item(self, index: int) -> Self:
        """Return the same error, telling which item of a call is at fault."""
        self.item = index
        self.args: tuple[Any, ...] = (f"item {index}: {self}", *self.args[1:])
        return self


class ConfigError(PgqrsError):
    """A setting, name or argument that cannot be right; nothing was written."""


class InvalidArguments(ConfigError):
    """Arguments that do not fit a workflow's parameters; `parameter` is the one at fault, if it is one."""

    def __init__(
        self,
        workflow: str,
        reason: str,
        *,
        parameter: str | None = None,
        suggestion: str | None = None,
        hint: str | None = None,
    ) -> None:
        meant = None if suggestion is None else f"did you mean {suggestion!r}?"
        super().__init__(f"workflow {workflow!r}: {reason}", hint="; ".join(filter(None, (hint, meant))) or None)
        self.workflow = workflow
        self.reason = reason
        self.parameter = parameter
        self.suggestion = suggestion


class ConnectionFailed(PgqrsError):
    """The database cannot be reached, or the connection broke.

    `ambiguous` is True when the statement had been sent and its reply was lost: it may or may not have been
    carried out.
    """

    def __init__(self, message: str, *, ambiguous: bool = False, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.ambiguous = ambiguous


class SchemaNotInstalled(PgqrsError):
    """The tables are not in this database (or schema)."""


class SchemaMismatch(PgqrsError):
    """The tables are of a version, or a shape, that this code does not work with.

    `found` is 0 when they are another program's.
    """

    def __init__(self, message: str, *, found: int, expected: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.found = found
        self.expected = expected


class StorePromoted(PgqrsError):
    """What was in this database is in another one now; nothing can be written here any more."""

    def __init__(self, where: str, *, promoted_to: str, schema: str) -> None:
        super().__init__(
            f"{where} was promoted: its runs and messages are in {promoted_to}, schema {schema!r}, now",
            hint="set PGQRS_DSN to that",
        )
        self.promoted_to = promoted_to
        self.schema = schema


class NotFound(PgqrsError):
    """Something was named that does not exist."""


class _NamedNotFound(NotFound):
    noun = "thing"
    creator = ""

    def __init__(self, name: str, *, known: Iterable[str] = ()) -> None:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f", or did you mean {near[0]!r}?" if near else ""
        super().__init__(
            f"no {self.noun} named {name!r}", hint=f"create it with {self.creator.format(name=name)}{hint}"
        )
        self.name = name
        self.suggestion: str | None = near[0] if near else None


class QueueNotFound(_NamedNotFound):
    """No queue of that name."""

    noun = "queue"
    creator = "store.create_queue({name!r})"


class WorkflowNotFound(_NamedNotFound):
    """No workflow of that name."""

    noun = "workflow"
    creator = "store.create_workflow({name!r})"


class ScheduleNotFound(_NamedNotFound):
    """No schedule of that name."""

    noun = "schedule"
    creator = "pgqrs.schedules(store).create({name!r}, ...)"


class RunNotFound(NotFound):
    """No run of that id, or none of the workflow that was asked; `workflow` is then the one that it is of."""

    def __init__(self, run_id: int, *, workflow: str | None = None) -> None:
        if workflow is None:
            super().__init__(f"no run {run_id}; it was never triggered here, or retention has deleted it")
        else:
            super().__init__(
                f"run {run_id} is one of workflow {workflow!r}", hint=f"ask workflow({workflow!r}) for it"
            )
        self.run_id = run_id
        self.workflow = workflow


class RunDeleted(RunNotFound):
    """The run was deleted before it ended; `workflow(...).restore` takes that back until retention removes it."""

    def __init__(self, run_id: int, reason: str | None = None) -> None:
        PgqrsError.__init__(self, f"run {run_id} was deleted" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.workflow: str | None = None
        self.reason = reason


class NoActiveWorker(PgqrsError):
    """Nobody is there to run it, and the trigger asked to be told."""

    def __init__(self, workflow: str) -> None:
        super().__init__(
            f"no live worker serves workflow {workflow!r}", hint="start one, or trigger without require_worker"
        )
        self.workflow = workflow


class IdempotencyConflict(PgqrsError):
    """The idempotency key belongs to a run of another workflow, or with another input.

    `run_id` is None when that run is not visible yet, or is of the same call.
    """

    def __init__(self, key: str, run_id: int | None, message: str | None = None) -> None:
        whose = "another run of this call" if run_id is None else f"run {run_id}"
        super().__init__(
            message or f"idempotency key {key!r} belongs to {whose}, which has another workflow or input",
            hint=None if message else "use another key, or delete that run to free it",
        )
        self.key = key
        self.run_id = run_id


class InvalidTransition(PgqrsError):
    """The thing is not in a state that allows this."""


class AlreadyCompleted(InvalidTransition):
    """The run has ended in SUCCESS."""


class StepFailed(PgqrsError):
    """The recorded error of a step whose class this program cannot find, or cannot build.

    `kind` is the name of that class, `message` the text of the error, `attributes` those that could be stored. If the
    class derives from one that can be found, so does this error: `except` clauses for it still work.
    """

    def __init__(self, step_id: str, *, kind: str, message: str, attributes: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"step {step_id!r} failed with {kind}: {message}")
        self.step_id = step_id
        self.kind = kind
        self.message = message
        self.attributes: dict[str, Any] = dict(attributes or {})


class ExecutionFailed(PgqrsError):
    """The run that was waited for ended in ERROR."""

    def __init__(self, run_id: int, error: Any) -> None:
        super().__init__(f"run {run_id} failed: {error}")
        self.run_id = run_id
        self.error = error


class RunCancelled(PgqrsError):
    """The run that was waited for was cancelled."""

    def __init__(self, run_id: int, reason: str | None = None) -> None:
        super().__init__(f"run {run_id} was cancelled" + (f": {reason}" if reason else ""))
        self.run_id = run_id
        self.reason = reason


class WaitTimeout(PgqrsError):
    """What was waited for did not happen in time; it may still."""


class SerializationError(PgqrsError):
    """A value that would not come back as it went in; `path` says where it is (`$.a[3]`)."""

    def __init__(self, message: str, *, path: str = "$", hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}", hint=hint)
        self.path = path
        self.reason: str = message if hint is None else f"{message}; {hint}"

    def about(self, what: str) -> Self:
        """Return the same error, telling whose value it is: `the result of workflow 'order'`."""
        where = "" if self.path == "$" else f"{self.path}: "
        self.args: tuple[Any, ...] = (f"{what}: {where}{self.reason}", *self.args[1:])
        return self


class PayloadTooLarge(SerializationError):
    """The encoded value is larger than `Config.max_payload_bytes`."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"encodes to {size:,} bytes, more than max_payload_bytes={limit:,}",
            hint="store it elsewhere and pass a reference, or raise the limit",
        )
        self.size = size
        self.limit = limit


class LeaseLost(PgqrsError):
    """Another consumer or worker has leased the message, or it is gone; nothing was written."""

    def __init__(self, message: str, *, message_id: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.message_id = message_id


class PublishFailed(PgqrsError):
    """A receiver did not take an event of the outbox; `status` is its HTTP status, if it gave one."""

    def __init__(self, message: str, *, status: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class NonDeterminism(PgqrsError):
    """A replay asked for other steps than were recorded."""


class PermanentError(PgqrsError):
    """Raised by a handler: retrying will not help, end in ERROR."""


class NotAllowedInStep(PermanentError):
    """A wait, a step or a child was asked for inside the body of a step."""


class NotRecorded(PermanentError, AttributeError):
    """A handler used an attribute of a step's error that could not be stored; `attribute` names it."""

    def __init__(self, message: str, *, attribute: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.attribute = attribute


class OutcomeUnknown(PermanentError):
    """A step with `retry_unknown=False` began in an earlier attempt, and how that ended is unknown."""


class TransientError(PgqrsError):
    """Raised by a handler: try the same run again after `retry_after` seconds (None: the usual backoff)."""

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @classmethod
    def with_backoff(cls, seconds: float, message: str = "") -> TransientError:
        return cls(message, retry_after=seconds)


class PauseError(PgqrsError):
    """Raised by a handler: wait for something outside, then go on."""

    def __init__(self, message: str = "", *, resume_condition: Any = None) -> None:
        super().__init__(message)
        self.resume_condition = resume_condition


def code_of(error: type[BaseException] | BaseException) -> str:
    """The stable name of a kind of error: `InvalidTransition` is `invalid-transition`.

    A class of the user's below one of ours has the name of ours; what is not ours at all is `unexpected`.
    """
    kind = error if isinstance(error, type) else type(error)
    for each in kind.__mro__:
        if each.__module__ == __name__ and not each.__name__.startswith("_"):
            return re.sub(r"(?<!^)(?=[A-Z])", "-", each.__name__).lower()
    return "unexpected"
