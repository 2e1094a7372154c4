"""`pgqrs metrics`: the gauges of the store, as `/metrics` of the server shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgqrs.cli import output
from pgqrs.cli.state import state, with_store

if TYPE_CHECKING:
    from pgqrs.api.store import Store


def metrics() -> None:
    """Print what Prometheus would read; with -o json or jsonl one object for each value."""

    async def work(store: Store) -> None:
        from pgqrs.telemetry.gauges import store_metrics
        from pgqrs.telemetry.metric_types import text_of

        families = await store_metrics(store)
        if state().output not in ("json", "jsonl"):
            print(output.safe(text_of(families)), end="")
            return
        found = [
            {"name": family.name, "labels": dict(sample.labels), "value": sample.value}
            for family in families
            for sample in family.samples()
        ]
        output.items(found, (), key="name")

    with_store(work)
