"""Our metrics in a registry of prometheus-client, for programs that have one; and theirs beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pgqrs.telemetry.meter import WorkerMetrics
from pgqrs.telemetry.metric_types import CONTENT_TYPE

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric


class Collector:
    """Gives a registry what has been counted, when it asks."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        from prometheus_client import Metric  # noqa: PLC0415 - nobody comes here without it

        for family in self._metrics.families():
            # It adds `_total` to counters by itself.
            found = Metric(family.name.removesuffix("_total"), family.help, family.kind)
            for sample in family.samples():
                found.add_sample(f"{family.name}{sample.suffix}", dict(sample.labels), sample.value)
            yield found


def worker_exposition(metrics: WorkerMetrics, registry: CollectorRegistry | None) -> tuple[str, str]:
    """What a worker process shows: content type and text.

    Of the registry that ours are in; or else ours, followed by what the application counts in the default registry of
    prometheus-client, if that is installed.
    """
    if registry is not None:
        return CONTENT_TYPE, _text(registry)
    try:
        from prometheus_client import REGISTRY  # noqa: PLC0415 - optional
    except ModuleNotFoundError:
        return CONTENT_TYPE, metrics.text()
    return CONTENT_TYPE, metrics.text() + _text(REGISTRY)


def _text(registry: Any) -> str:
    from prometheus_client import generate_latest  # noqa: PLC0415 - optional

    return bytes(generate_latest(registry)).decode()
