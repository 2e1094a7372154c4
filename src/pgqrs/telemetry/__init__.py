"""Metrics, traces, logs and health checks: what a process tells those who watch it.

    from pgqrs import telemetry

    telemetry.instrument()  # before workers are made; counts, and draws spans where OpenTelemetry is installed

`pgqrs worker run` does that by itself. See docs/guides/observability.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pgqrs.api.worker import Worker
from pgqrs.distribution import install_command
from pgqrs.engine.instrumentation import hooks
from pgqrs.errors import ConfigError
from pgqrs.telemetry.gauges import exposition, store_metrics
from pgqrs.telemetry.health import serving_health
from pgqrs.telemetry.logs import JsonFormatter
from pgqrs.telemetry.meter import WorkerMetrics
from pgqrs.telemetry.prometheus import Collector, worker_exposition

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

__all__ = [
    "JsonFormatter",
    "WorkerMetrics",
    "exposition",
    "instrument",
    "serve_health",
    "store_metrics",
    "uninstrument",
    "worker_metrics",
]

# The registry that ours are in, and the collector that is in it.
_registered: tuple[CollectorRegistry, Collector] | None = None


def instrument(
    *,
    metrics: bool = True,
    tracing: bool | None = None,
    registry: CollectorRegistry | None = None,
    tracer_provider: TracerProvider | None = None,
    record_exceptions: bool = True,
) -> None:
    """From now on workers that are made in this process count, and runs are traced. Calling again replaces it.

    `registry` (of prometheus-client) gets our metrics beside the program's own. `tracing` is on where
    opentelemetry-api is installed; spans go to `tracer_provider`, or else to the global one. With
    `record_exceptions=False` a failed span tells the class of its error only.
    """
    uninstrument()
    if registry is not None and not metrics:
        raise ConfigError("a registry was given, but metrics=False", hint="leave one of them out")
    if tracing or (tracing is None and _is_installed("opentelemetry.trace")):
        hooks.tracer = _otel_tracer(tracer_provider, record_exceptions=record_exceptions)
    if metrics:
        counted = WorkerMetrics()
        if registry is not None:
            _register(registry, Collector(counted))
        hooks.meter = counted


def instrument_worker(*, metrics: bool) -> None:
    """What `pgqrs worker run` does with what it finds, when the application has loaded: what that has set stays.

    Spans are drawn when the application has set a provider: without one they would cost time, and nobody saw them.
    """
    if metrics and hooks.meter is None:
        hooks.meter = WorkerMetrics()
    if hooks.tracer is None and _is_installed("opentelemetry.trace"):
        trace = import_module("opentelemetry.trace")
        if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            hooks.tracer = _otel_tracer(None, record_exceptions=True)


def uninstrument() -> None:
    """Undoes `instrument`; workers that are there go on as they were made."""
    global _registered  # noqa: PLW0603 - there is one telemetry in a process
    hooks.meter = hooks.tracer = None
    if _registered is not None:
        registry, collector = _registered
        _registered = None
        registry.unregister(collector)


def worker_metrics() -> WorkerMetrics | None:
    """What this process has counted since `instrument`; `.text()` is what Prometheus reads."""
    return hooks.meter if isinstance(hooks.meter, WorkerMetrics) else None


@asynccontextmanager
async def serve_health(worker: Worker, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
    """`/healthz`, `/readyz` and, after `instrument`, `/metrics` of a worker, while the context lasts; gives the port.

    There is no authentication: on another address than the loopback, whoever reaches the port sees the names of
    workflows and how they fare.
    """

    def shown() -> tuple[str, str]:
        counted = worker_metrics()
        return worker_exposition(counted or WorkerMetrics(), _registered[0] if _registered else None)

    metrics = None if worker_metrics() is None else shown
    async with serving_health(worker.problems, metrics=metrics, host=host, port=port) as found:
        yield found


def _is_installed(module: str) -> bool:
    try:
        import_module(module)
    except ModuleNotFoundError:
        return False
    return True


def _register(registry: CollectorRegistry, collector: Collector) -> None:
    global _registered  # noqa: PLW0603 - as above
    registry.register(collector)
    _registered = (registry, collector)


def _otel_tracer(provider: TracerProvider | None, *, record_exceptions: bool) -> Any:
    try:
        from pgqrs.telemetry.tracing import OtelTracer  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"tracing needs {error.name!r}, which is not installed", hint=f"{install_command('telemetry')} brings it"
        ) from None
    return OtelTracer(provider, record_exceptions=record_exceptions)
