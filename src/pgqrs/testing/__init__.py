"""Testing workflows: a kit with a clock of its own, crashes at every boundary, replay of recorded runs.

def test_an_order_is_shipped(pgqrs):
    run = pgqrs.trigger(order, sku="A1")
    pgqrs.drain()
    assert run.result() == {"shipped": True}
"""

from pgqrs.testing.crash import crash_everywhere
from pgqrs.testing.handle import RunHandle
from pgqrs.testing.kit import AsyncKit
from pgqrs.testing.plain import Kit
from pgqrs.testing.report import Report

__all__ = ["AsyncKit", "Kit", "Report", "RunHandle", "crash_everywhere"]
