"""What a store holds, as gauges: queues, runs, workers, outbox, dead letters. For `/metrics` of a server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from pgqrs.api.operations.metrics import LIVE_LEASES
from pgqrs.api.store import Store
from pgqrs.db.views import metrics
from pgqrs.db.views.metrics import StoreGauges
from pgqrs.telemetry.metric_types import CONTENT_TYPE, Family, Gauge, LabelNames, text_of

_Values = Mapping[tuple[str, ...], float]
# The label of workers that serve several queues.
SEVERAL = "*"


async def exposition(store: Store) -> tuple[str, str]:
    """The gauges of a store as (content type, text) for Prometheus. Needs no library."""
    return CONTENT_TYPE, text_of(await store_metrics(store))


async def store_metrics(store: Store) -> list[Family]:
    """The gauges of a store, counted now. Every count is capped, so that it takes milliseconds; see the reference."""
    live_within = LIVE_LEASES * store.config.lease_seconds
    return families_of(await metrics.gauges(await store.ready(), live_within=live_within))


def families_of(found: StoreGauges) -> list[Family]:
    return [
        _gauge(
            "pgqrs_queue_depth",
            "Messages and runs by what they are doing: ready, scheduled, leased, dead.",
            ["queue", "state"],
            _depths(found),
        ),
        _gauge(
            "pgqrs_queue_oldest_ready_age_seconds",
            "For how long the oldest message that could be taken has been waiting; 0 when none is.",
            ["queue"],
            _ages(found),
        ),
        _gauge("pgqrs_runs_active", "Runs that have not ended.", ["workflow", "status"], _active(found)),
        _gauge(
            "pgqrs_workers",
            "Workers that have not shut down: ready, or stale after three leases without a heartbeat.",
            ["queue", "state"],
            _workers(found),
        ),
        _gauge("pgqrs_outbox_unpublished", "Events that are still to be published.", [], {(): found.unpublished}),
        _gauge(
            "pgqrs_dead_letters",
            "What nobody tries again by itself: messages, and events of the outbox.",
            ["kind"],
            {("message",): sum(each.dead for each in found.queues), ("event",): found.dead_events},
        ),
    ]


def _gauge(name: str, help_: str, labels: list[str], values: _Values) -> Gauge:
    return Gauge(name, help_, labels, read=lambda: sorted(values.items()))


def _depths(found: StoreGauges) -> _Values:
    names = LabelNames()
    return _summed(
        ((names.label(each.queue), state), getattr(each, state))
        for each in found.queues
        for state in ("ready", "scheduled", "leased", "dead")
    )


def _ages(found: StoreGauges) -> _Values:
    names = LabelNames()
    ages: dict[tuple[str, ...], float] = {}
    for each in found.queues:
        label = (names.label(each.queue),)
        ages[label] = max(ages.get(label, 0.0), each.oldest_ready_age_seconds or 0.0)
    return ages


def _active(found: StoreGauges) -> _Values:
    names = LabelNames()
    return _summed(
        ((names.label(each.workflow), status.upper()), getattr(each, status).count)
        for each in found.live
        for status in ("pending", "running", "paused")
    )


def _workers(found: StoreGauges) -> _Values:
    names = LabelNames()
    return _summed(_worker_counts(found, names))


def _worker_counts(found: StoreGauges, names: LabelNames) -> Iterator[tuple[tuple[str, ...], int]]:
    for each in found.workers:
        queue = SEVERAL if each.queue is None else names.label(each.queue)
        yield (queue, "ready"), each.ready
        yield (queue, "stale"), each.stale


def _summed(counted: Iterable[tuple[tuple[str, ...], int]]) -> _Values:
    """What shares its labels, which is what stands for `other`, together."""
    totals: Counter[tuple[str, ...]] = Counter()
    for labels, number in counted:
        totals[labels] += number
    return totals
