"""The newest answer of every layer, kept beside the code and shown in docs/reference/proof.md."""

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path

from proof import ROOT
from proof.order import Order
from proof.table import Row, markdown

RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "reference" / "proof.md"
MARK = "<!-- made by `make proof`; do not edit below -->\n"


def keep(layer: str, order: Order, rows: list[Row]) -> None:
    """One file for each layer and database: what it said last. A case that was run alone is no answer."""
    if os.environ.get("CASE") or os.environ.get("MODES"):
        return
    RESULTS.mkdir(exist_ok=True)
    for on in sorted({row.on for row in rows}):
        said = {
            "layer": layer,
            "on": on,
            "full": order.full,
            "seed": order.seed,
            "python": platform.python_version(),
            "seconds": round(sum(row.seconds for row in rows if row.on == on), 1),
            "rows": [asdict(row) for row in rows if row.on == on],
        }
        (RESULTS / f"{layer}.{on}.json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")
    write()


def write() -> None:
    """The part of the page below the mark; what stands above it is written by hand."""
    if not PAGE.exists():
        return
    said = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))]
    rows = sorted((Row(**row) for each in said for row in each["rows"]), key=lambda row: row.number)
    runs = [
        f"- `{each['layer']}` on {each['on']}: seed {each['seed']}, {'full' if each['full'] else 'short'}, "
        f"{each['seconds']:.0f} s, Python {each['python']}"
        for each in said
    ]
    above = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(f"{above}{MARK}\n{markdown(rows)}\n\n{chr(10).join(runs)}\n", encoding="utf-8")
