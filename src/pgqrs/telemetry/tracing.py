"""OpenTelemetry: a span where a run is triggered, one per execution of it, one per step that is executed.

An execution is the root of a trace of its own, linked to the span of its trigger: a run may last for weeks, and no
back end keeps a trace open for that long. Attributes are names, ids and numbers; what goes in and comes out of runs
and steps is never among them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pgqrs import __version__
from pgqrs.db.runs.records import Ended, Suspended
from pgqrs.db.tables.runs import origin
from pgqrs.engine.instrumentation import Origin
from pgqrs.engine.replay.unwinding import EngineSignal
from pgqrs.errors import LeaseLost
from pgqrs.serialization import encode
from pgqrs.text.step_ids import work_of
from pgqrs.types import RunStatus

if TYPE_CHECKING:
    from pgqrs.db.runs.claims import Claim
    from pgqrs.engine.replay.branches import BranchPlace

_PROPAGATOR = TraceContextTextMapPropagator()
# Ways out of a step or a pass that are no failures of the user's code.
_NO_FAILURES: tuple[type[BaseException], ...] = (asyncio.CancelledError, EngineSignal)


class OtelTracer:
    """A `Tracer`. Without a provider that the program has set, the API gives it spans that do nothing."""

    def __init__(self, provider: trace.TracerProvider | None = None, *, record_exceptions: bool = True) -> None:
        self._tracer = trace.get_tracer("pgqrs", __version__, provider)
        self._record_exceptions = record_exceptions

    def trigger(self, workflow: str, count: int) -> _Trigger:
        attributes = _attributes(workflow, "trigger", {"messaging.batch.message_count": count} if count > 1 else {})
        span = self._tracer.start_span(f"trigger {workflow}", kind=SpanKind.PRODUCER, attributes=attributes)
        return _Trigger(self, span)

    def execute(self, workflow: str, claim: Claim) -> _Pass:
        attributes = _attributes(
            workflow,
            "run",
            {
                "pgqrs.run_id": claim.run_id,
                "pgqrs.attempt": claim.lease.attempts,
                # Of an earlier pass, and not executed again.
                "pgqrs.recorded_steps": len(claim.steps),
            },
        )
        span = self._tracer.start_span(
            f"run {workflow}",
            # An empty one: whatever the worker is doing is not this run's cause.
            Context(),
            SpanKind.CONSUMER,
            attributes,
            _links(claim.headers),
        )
        return _Pass(self, span)

    def step(self, workflow: str, run_id: int, place: BranchPlace, attempt: int) -> _Scope:
        attributes: dict[str, str | int] = {
            "pgqrs.workflow": workflow,
            "pgqrs.run_id": run_id,
            "pgqrs.step": place.step_id,
            "pgqrs.step_attempt": attempt,
        }
        # `fetch#2` and `fetch@1` are the step `fetch`: a span's name is to be the same for the same work.
        return _Scope(self, self._tracer.start_span(f"step {work_of(place.step_id)}", attributes=attributes))

    def step_failed(self, error: Exception) -> None:
        self.mark_failed(trace.get_current_span(), error)

    def mark_failed(self, span: Span, error: BaseException) -> None:
        """Its class is always told; its message and traceback, which may quote anything, as the user wishes."""
        kind = type(error).__qualname__
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, kind))
        if self._record_exceptions:
            span.record_exception(error)


class _Scope:
    """The current span while the context lasts; marked as failed when an error comes out that is one.

    A class, and not a generator: there is one for each step, and it takes a third of the time.
    """

    _no_failures = _NO_FAILURES

    def __init__(self, tracer: OtelTracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span

    def __enter__(self) -> Self:
        self._token = attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        detach(self._token)
        if error is not None and not isinstance(error, self._no_failures):
            self._tracer.mark_failed(self._span, error)
        self._span.end()


class _Trigger(_Scope, Origin):
    """Around making runs."""

    def __enter__(self) -> Self:
        super().__enter__()
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        self.headers: str | None = encode(carrier) if carrier else None
        return self

    def made(self, run_ids: Sequence[int]) -> None:
        if len(run_ids) == 1:
            self._span.set_attribute("pgqrs.run_id", run_ids[0])


class _Pass(_Scope):
    """Around one execution of a run. To lose a run is no failure of its code."""

    _no_failures = (*_NO_FAILURES, LeaseLost)

    def ended(self, end: Ended | Suspended, error: BaseException | None) -> None:
        self._span.set_attribute("pgqrs.status", str(end.status))
        failed = isinstance(end, Ended) and end.status is RunStatus.ERROR
        if error is not None and (failed or (isinstance(end, Suspended) and end.last_error is not None)):
            self._tracer.mark_failed(self._span, error)


def _attributes(workflow: str, operation: str, more: Mapping[str, Any]) -> dict[str, Any]:
    """As OpenTelemetry's conventions for messaging name them."""
    return {
        "messaging.system": "pgqrs",
        "messaging.operation.name": operation,
        "messaging.operation.type": "send" if operation == "trigger" else "process",
        "messaging.destination.name": workflow,
        "pgqrs.workflow": workflow,
        **more,
    }


def _links(headers: str | None) -> list[Link]:
    """To the span of the trigger, if the run remembers one that can be read."""
    found = trace.get_current_span(_PROPAGATOR.extract(origin(headers), Context())).get_span_context()
    return [Link(found)] if found.is_valid else []
