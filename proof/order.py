"""What a layer is asked for: where, how long, from which seed."""

from dataclasses import dataclass
from pathlib import Path

BACKENDS = ("sqlite", "postgres", "turso")


@dataclass(frozen=True, slots=True)
class Order:
    """One request to one layer."""

    on: tuple[str, ...] = BACKENDS
    # False: what fits into ten minutes with all the other layers; True: everything.
    full: bool = False
    # How long layers take that could go on for ever.
    minutes: float = 1.0
    seed: int = 0
    # Of a PostgreSQL that may be used but not killed; who kills servers starts its own.
    postgres: str = ""
    # Empty when it begins; nobody looks at it afterwards.
    folder: Path = Path()

    def asks_for(self, backend: str) -> bool:
        return backend in self.on
