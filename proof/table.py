"""The rows of the table: what was counted, on which database, and whether it is what must be."""

from dataclasses import dataclass

_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `number` is the line of the issue that asks for it, and sorts the table."""

    number: int
    what: str
    on: str
    seen: str
    wanted: str
    good: bool
    # What repeats it.
    command: str = ""
    seconds: float = 0.0

    def line(self, *, colour: bool = False) -> str:
        verdict = "yes" if self.good else "NO"
        if colour:
            verdict = f"{_GREEN if self.good else _RED}{verdict}{_PLAIN}"
        return f"{self.number:>2}  {self.what:<44} {self.on:<10} {self.seen:<34} {self.wanted:<26} {verdict}"


HEADING = f"{'':>2}  {'what':<44} {'on':<10} {'seen':<34} {'wanted':<26} holds"


def markdown(rows: list[Row]) -> str:
    """As a table for the documents."""
    lines = ["| | what | on | seen | wanted | holds | seconds |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {row.number} | {row.what} | {row.on} | {row.seen} | {row.wanted} | {'yes' if row.good else '**no**'} "
        f"| {row.seconds:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)
