"""Small programs with a known right end, by what they are about; SCENARIOS has them all by name."""

from proof.crash.scenarios import errors, lives, others, side_by_side, steps, waits
from proof.crash.scenarios.scenario import Scenario, rows

SCENARIOS: dict[str, type[Scenario]] = {
    kind.name: kind
    for module in (steps, waits, lives, errors, side_by_side, others)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Scenario) and "name" in vars(kind)
}

__all__ = ["SCENARIOS", "Scenario", "rows"]
