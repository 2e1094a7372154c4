"""What is measured: every scenario, how much of it, and which of its figures is the one to look at."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table."""

    name: str
    title: str
    # As many at most; fewer where that would take longer than a measurement may (runner.SECONDS).
    count: int
    unit: str = "messages/s"
    figure: str = "rate"
    # As many at least: one batch, one per producer.
    least: int = 20
    # Compared with the peers, as many rounds as asked for. The others compare in themselves, and are measured once.
    peers: bool = True
    # How long an idle worker is watched.
    seconds: float = 20.0


ALL = {
    scenario.name: scenario
    for scenario in (
        Scenario("enqueue_one", "enqueue one by one", 5_000, least=100),
        Scenario("enqueue_many", "enqueue many, 1,000 at a time", 100_000, least=2_000),
        Scenario("producers_100", "enqueue, 100 producers in one process", 20_000, least=500),
        Scenario("drain", "drain through a handler", 20_000, least=500),
        Scenario("raw_batches", "dequeue and archive, 1,000 at a time", 50_000, least=2_000),
        Scenario("runs_1", "runs of 1 step", 20_000, unit="runs/s", least=100),
        Scenario("runs_10", "runs of 10 steps", 10_000, unit="runs/s", least=30),
        Scenario("fan_out", "fan-out, 1,000 children each", 5_000, unit="children/s", least=1_000),
        Scenario("latency", "trigger to start of the handler", 200, unit="ms", figure="p50_ms", least=200),
        Scenario("idle", "an idle worker", 0, unit="% CPU", figure="cpu_percent", least=0, peers=False),
        Scenario("audit", "audit full against none", 2_000, unit="ratio", figure="ratio", peers=False),
        Scenario("two_workers", "two worker processes against one", 1_000, unit="ratio", figure="ratio", peers=False),
        Scenario(
            "backlog", "with 1 M ready against 10 k", 1_000_000, unit="ratio", figure="drain_ratio", peers=False
        ),
        Scenario(
            "finished", "beside 1 M finished against none", 1_000_000, unit="ratio", figure="drain_ratio", peers=False
        ),
        Scenario("memory", "after 50,000 runs", 50_000, unit="MB", figure="rss_mb", peers=False),
        Scenario("sleeping", "100,000 runs asleep", 100_000, unit="MB", figure="rss_mb", peers=False, seconds=10),
    )
}
LIMITS = "limits"
