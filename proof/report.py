"""The newest answer of every layer, kept beside the code and shown in docs/reference/proof.md."""

import json
import os
import platform
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proof import ROOT
from proof.order import Order
from proof.table import Row, markdown

RESULTS = Path(__file__).parent / "results"
PAGE = ROOT / "docs" / "reference" / "proof.md"
# Pages that layers write themselves.
_WRITTEN = (ROOT / "docs" / "reference" / "mutants.md",)
# Of a tree without git, or of results from before commits were kept.
UNKNOWN = "unknown"
MARK = "<!-- made by `make proof`; do not edit below -->\n"


def keep(layer: str, order: Order, rows: list[Row], *, commit: str, seconds: Mapping[str, float]) -> None:
    """One file for each layer and database: what it said last. A case that was run alone is no answer.

    `commit` is what was proved, `seconds` how long each database took: rows that share their work share its time.
    """
    if os.environ.get("CASE") or os.environ.get("MODES"):
        return
    RESULTS.mkdir(exist_ok=True)
    for on in sorted({row.on for row in rows}):
        said = {
            "layer": layer,
            "on": on,
            "commit": commit,
            "full": order.full,
            "seed": order.seed,
            "python": platform.python_version(),
            "seconds": round(seconds[on], 1),
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
    above = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(f"{above}{MARK}\n{markdown(rows)}\n\n{_foot(said)}\n", encoding="utf-8")


def _foot(said: list[dict[str, Any]]) -> str:
    """Which commit each of them is about, and whether it is the same one."""
    commits = Counter(each.get("commit", UNKNOWN) for each in said)
    minutes = sum(each["seconds"] for each in said) / 60
    many = ", ".join(f"{commit} ({count} of {len(said)})" for commit, count in commits.most_common())
    about = f"All rows are about commit {next(iter(commits))}." if len(commits) == 1 else f"Several commits: {many}."
    lines = [
        f"- `{each['layer']}` on {each['on']}: commit {each.get('commit', UNKNOWN)}, seed {each['seed']}, "
        f"{'full' if each['full'] else 'short'}, {each['seconds']:.0f} s, Python {each['python']}"
        for each in said
    ]
    return "\n".join([f"{about} All layers together took {minutes:.0f} minutes.", "", *lines])


def commit_here() -> str:
    """The commit that is checked out, with `-dirty` when a file differs from it.

    Without the files that the proof writes: to commit what one layer said makes no other commit for the next.
    """
    all_but_ours = (".", *(f":(exclude){file.relative_to(ROOT)}" for file in (RESULTS, PAGE, *_WRITTEN)))
    try:
        name = _git("log", "-1", "--format=%h", "--abbrev=12", "--", *all_but_ours)
        changed = _git("status", "--porcelain", "--", *all_but_ours)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return f"{name}-dirty" if changed else name or UNKNOWN


def _git(*command: str) -> str:
    return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
