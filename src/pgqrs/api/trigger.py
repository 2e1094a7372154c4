"""Triggering: what a run is to be, checked and encoded, until `execute` makes it durable."""

from __future__ import annotations

import difflib
import logging
import warnings
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, Unpack

from pgqrs.api.arguments import (
    check_store,
    check_texts,
    checked_attributes,
    checked_batch,
    checked_key,
    checked_priority,
    checked_time,
    checked_whole,
    noun_of,
)
from pgqrs.config import Config
from pgqrs.db.driver import Driver
from pgqrs.db.hints import OUTBOX
from pgqrs.db.runs import triggers
from pgqrs.db.runs.triggers import NewRuns, Triggered
from pgqrs.db.tables import workflows
from pgqrs.engine import instrumentation
from pgqrs.engine.definitions.arguments import each_checked, encoded_inputs
from pgqrs.engine.definitions.binding import Signature
from pgqrs.engine.replay.branches import in_body
from pgqrs.errors import ConfigError, InvalidArguments, NoActiveWorker, WorkflowNotFound
from pgqrs.serialization import encode
from pgqrs.text.durations import checked_seconds
from pgqrs.types import Result_co

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from pgqrs.api.store import Store
    from pgqrs.api.workflow import Workflow

    Given_co = TypeVar("Given_co", covariant=True, default=int)
else:
    from typing import TypeVar

    Given_co = TypeVar("Given_co", covariant=True)

log: logging.Logger = logging.getLogger("pgqrs")


class TriggerOptions(TypedDict, total=False):
    """How a run is triggered; higher priority comes first."""

    priority: int
    run_at: datetime | None
    delay: float | timedelta
    max_attempts: int | None
    attributes: dict[str, Any] | None


# Ordered, and a set.
OPTION_NAMES = dict.fromkeys((*TriggerOptions.__annotations__, "idempotency_key", "require_worker")).keys()


def unknown_argument(signature: Signature, name: str) -> InvalidArguments:
    """The error for a name that is neither a parameter of the workflow nor an option of `trigger`."""
    near = difflib.get_close_matches(name, [*signature.names, *OPTION_NAMES], n=1, cutoff=0.75)
    takes = f"the workflow takes {', '.join(signature.names) or 'no arguments'}"
    return InvalidArguments(
        signature.workflow,
        f"there is no parameter or option {name!r}",
        hint=f"{takes}; trigger takes {', '.join(OPTION_NAMES)}",
        parameter=name,
        suggestion=near[0] if near else None,
    )


class Trigger(Generic[Result_co, Given_co]):
    """What `trigger` was told, until `execute` carries it out.

    The second type is what `execute` gives: the id of the run, the ids of several, or after `wait()` the result.
    """

    _is_pending = False

    def __init__(
        self,
        workflow: Workflow[Result_co],
        inputs: list[Any],
        keys: Sequence[str] = (),
        *,
        many: bool,
        require_worker: bool | None = None,
        **options: Unpack[TriggerOptions],
    ) -> None:
        unknown = [name for name in options if name not in TriggerOptions.__annotations__]
        if unknown:
            raise ConfigError(f"trigger does not know {unknown[0]!r}", hint=f"it takes {', '.join(OPTION_NAMES)}")
        self._workflow = workflow
        self._inputs = inputs
        self._keys = keys
        self._many = many
        self._options = options
        self._require_worker = require_worker
        self._wait = False
        self._timeout: float | None = None
        # From here on, a trigger that is not executed is a mistake.
        self._is_pending = True

    def wait(self: Trigger[Result_co, int]) -> Trigger[Result_co, Result_co]:
        """`execute` then waits for the result, and gives that."""
        if self._many:
            self._is_pending = False
            raise ConfigError(
                "wait() is for one run", hint="take the ids that trigger_many gives, and await run.result() of each"
            )
        self._wait = True
        waiting: Any = self
        return waiting  # type: ignore[no-any-return]

    def timeout(self, seconds: float | timedelta) -> Self:
        self._timeout = checked_seconds(seconds, "timeout")
        return self

    def __del__(self) -> None:
        if self._is_pending:
            verb = "trigger_many" if self._many else "trigger"
            warnings.warn(
                f"{verb}(...) of workflow {self._workflow.name!r} was never executed, so nothing was triggered; "
                f"write `await workflow.{verb}(...).execute(store)`",
                RuntimeWarning,
                source=self,
                stacklevel=2,
            )

    def execute(self, store: Store) -> Coroutine[object, None, Given_co]:
        """Start the run, or runs: the id (or ids), durable; after `wait()` the result."""
        self._is_pending = False
        verb = "trigger_many" if self._many else "trigger"
        usage = "execute(store)"
        check_store(store, usage, (store,), of=f"{noun_of(self._workflow)}.{verb}(...).{usage}")
        # A coroutine that is made and not awaited gives Python's own warning.
        return self._execute(store)

    async def _execute(self, store: Store) -> Any:
        run_ids = [each.run_id for each in await self.triggered(store)]
        if self._many:
            return run_ids
        if not self._wait:
            return run_ids[0]
        return await (await self._workflow.get_run(run_ids[0], store)).result(self._timeout)

    async def triggered(self, store: Store, *, actor: str | None = None) -> list[Triggered]:
        """The runs, durable, each with whether it is new or was found by its key; `actor` stands in their history."""
        self._is_pending = False
        check_texts(actor=actor)
        if in_body() and not self._keys:
            log.warning(
                "a run of workflow %r is triggered in the body of a workflow, and again by each replay; call the "
                "workflow or use ctx.spawn, trigger it in a step, or give an idempotency_key",
                self._workflow.name,
            )
        db = await store.ready()
        found = await self._found(store)
        new = new_runs(
            store.config,
            found,
            self._inputs,
            self._keys,
            **self._options,
            actor=actor,
            many=self._many,
            code=self._workflow.signature,
        )
        if not new.inputs:
            return []
        await self._look_for_workers(store, found)
        with instrumentation.triggered(found.name, len(new.inputs)) as origin:
            made = await _triggered(db, new.with_headers(origin.headers))
            origin.made([each.run_id for each in made])
        db.hints.announce([found.queue_id, OUTBOX] if db.audit_policy.published else [found.queue_id])
        return made

    async def _found(self, store: Store) -> workflows.WorkflowRow:
        """One whose code is at hand is created when it is missing, as a direct call and a worker would."""
        try:
            return await store.workflow(self._workflow.name)
        except WorkflowNotFound:
            if self._workflow.signature is None:
                raise
        await store.create_workflow(self._workflow.name)
        return await store.workflow(self._workflow.name)

    async def _look_for_workers(self, store: Store, found: workflows.WorkflowRow) -> None:
        queue_id = found.queue_id
        strict = store.config.require_workers if self._require_worker is None else self._require_worker
        within = 3 * store.config.lease_seconds
        if not strict and store.knows_of_workers(queue_id):
            return
        if await workflows.count_live_workers(await store.ready(), found, within=within):
            store.remember_workers(queue_id)
        elif strict:
            raise NoActiveWorker(self._workflow.name)
        else:
            store.remember_workers(queue_id)
            log.warning("no live worker for workflow %r: the run waits in its queue", self._workflow.name)


async def _triggered(db: Driver, new: NewRuns) -> list[Triggered]:
    """Those with keys can be tried again after a lost reply: they find themselves."""
    if new.keys:
        return await triggers.trigger_once(db, new)
    return [Triggered(run_id, is_new=True) for run_id in await triggers.trigger(db, new)]


def new_runs(
    config: Config,
    found: workflows.WorkflowRow,
    inputs: Iterable[Any],
    keys: Sequence[str] = (),
    *,
    priority: int = 0,
    run_at: datetime | None = None,
    delay: float | timedelta = 0,
    max_attempts: int | None = None,
    attributes: dict[str, Any] | None = None,
    actor: str | None = None,
    many: bool = False,
    code: Signature | None = None,
) -> NewRuns:
    """Everything checked and encoded, before anything is written; of `many`, errors name the item."""
    if run_at is not None and delay:
        raise ConfigError("give either delay or run_at, not both")
    attempts = config.max_attempts if max_attempts is None else max_attempts
    limit = config.max_payload_bytes
    texts = encoded_inputs(found, inputs, max_bytes=limit, many=many, code=code)
    if texts:
        checked_batch("the number of runs in one call", len(texts))
    if keys and len(keys) != len(texts):
        raise ConfigError(
            f"{len(keys)} idempotency keys were given for {len(texts)} runs", hint="give one for each, or none"
        )
    return NewRuns(
        found.workflow_id,
        found.queue_id,
        texts,
        keys=each_checked(checked_key, keys, many=many),
        priority=checked_priority(priority),
        run_at=checked_time("run_at", run_at),
        delay=checked_seconds(delay, "delay"),
        max_attempts=checked_whole("max_attempts", attempts, least=1, most=2**31 - 1),
        attributes=None if attributes is None else encode(checked_attributes(attributes), max_bytes=limit),
        actor=actor,
    )
