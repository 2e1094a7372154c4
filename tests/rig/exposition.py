"""Metrics as prometheus-client reads them: a parser that is not ours."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def values_of(text: str) -> Values:
    """{(name, labels): value}; no line may come twice."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples}
    assert len(found) == len(samples)
    return found
