"""The targets of issue 5, as data."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BestPeer:
    """Ours to that of the best of those that were measured beside it."""


@dataclass(frozen=True, slots=True)
class NamedPeer:
    """Ours to that of one peer."""

    name: str


@dataclass(frozen=True, slots=True)
class OwnScenario:
    """Ours to that of ours in another scenario."""

    name: str


@dataclass(frozen=True, slots=True)
class Limit:
    """Ours, times how many rows one of it writes, to what pgbench reaches with one client."""

    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class Itself:
    """The figure as it is."""


@dataclass(frozen=True, slots=True)
class Target:
    database: str
    scenario: str
    against: BestPeer | NamedPeer | OwnScenario | Limit | Itself = field(default_factory=Itself)
    figure: str = "rate"
    at_least: float | None = None
    at_most: float | None = None
    # Where the scenario's own does not tell what is compared.
    title: str = ""

    def is_met(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    @property
    def bound(self) -> str:
        sign, bound = ("≥", self.at_least) if self.at_least is not None else ("≤", self.at_most)
        ratio = "" if isinstance(self.against, Itself) else "x"
        return f"{sign} {bound:g}{ratio}"


TARGETS = (
    Target("postgres", "runs_10", BestPeer(), at_least=20),
    Target("postgres", "runs_1", BestPeer(), at_least=12),
    Target("postgres", "drain", BestPeer(), at_least=2),
    Target("postgres", "raw_batches", NamedPeer("pgqrs"), at_least=1),
    Target("postgres", "enqueue_many", BestPeer(), at_least=1.2),
    Target("postgres", "enqueue_one", BestPeer(), at_least=1),
    Target("postgres", "producers_100", OwnScenario("enqueue_one"), at_least=5),
    Target("postgres", "latency", BestPeer(), figure="p50_ms", at_most=1),
    Target("postgres", "latency", BestPeer(), figure="p99_ms", at_most=1),
    Target("postgres", "backlog", figure="drain_ratio", at_least=0.9),
    Target("postgres", "backlog", figure="runs_ratio", at_least=0.9),
    Target("postgres", "finished", figure="drain_ratio", at_least=0.9),
    Target("postgres", "finished", figure="runs_ratio", at_least=0.9),
    # Or the database is the limit: the figures of CPU beside it tell.
    Target("postgres", "two_workers", figure="ratio", at_least=1.5),
    Target("postgres", "idle", figure="queries_per_second", at_most=1),
    Target("postgres", "idle", figure="cpu_percent", at_most=0.5),
    Target("postgres", "idle", figure="rss_mb", at_most=70),
    Target("postgres", "runs_10", Limit("steps_100", rows=10), at_least=0.4, title="durable steps of runs of 10"),
    Target("postgres", "audit", figure="ratio", at_least=0.75),
    Target("sqlite", "runs_10", NamedPeer("dbos"), at_least=200),
    Target("sqlite", "drain", NamedPeer("huey"), at_least=5),
    Target("sqlite", "latency", figure="p50_ms", at_most=3),
)
