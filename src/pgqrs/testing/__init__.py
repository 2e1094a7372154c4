"""Testing workflows: a kit with a clock of its own, crashes at every boundary, replay of recorded runs.

def test_an_order_is_shipped(pgqrs):
    run = pgqrs.trigger(order, sku="A1")
    pgqrs.drain()
    assert run.result() == {"shipped": True}
"""

from pgqrs.testing.crash import DoesNotSurvive, crash_everywhere
from pgqrs.testing.determinism import assert_deterministic
from pgqrs.testing.handle import RunHandle
from pgqrs.testing.kit import AsyncKit
from pgqrs.testing.replay_history import replay
from pgqrs.testing.report import Report
from pgqrs.testing.sync_kit import Kit

__all__ = [
    "AsyncKit",
    "DoesNotSurvive",
    "Kit",
    "Report",
    "RunHandle",
    "assert_deterministic",
    "crash_everywhere",
    "replay",
]
