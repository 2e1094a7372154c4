"""Horizontal bars on a log scale as SVG, readable on light and on dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

OURS = "ours"
WIDTH, LABELS, NUMBERS = 860, 150, 80
BAR, GAP, TITLE = 15, 4, 24
TOP = 34

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.head { font-weight: 600; font-size: 14px; } .title { font-weight: 600; } .axis { font-size: 10px; fill: #6e7781; }
.ours { fill: #0a7d4f; } .peer { fill: #9aa7b4; } line { stroke: #d0d7de; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .axis { fill: #8b949e; }
  .ours { fill: #3fb984; } .peer { fill: #5b6673; } line { stroke: #30363d; }
}"""


@dataclass(frozen=True, slots=True)
class Group:
    """A scenario: who reached what, in the order in which they are drawn."""

    title: str
    values: Sequence[tuple[str, float]]


def draw(title: str, groups: Sequence[Group]) -> str:
    """The picture; empty when there is nothing to draw."""
    values = [value for group in groups for _, value in group.values if value > 0]
    if not values:
        return ""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    height = TOP + sum(TITLE + len(group.values) * (BAR + GAP) for group in groups) + 24
    scale = (WIDTH - LABELS - NUMBERS) / (high - low)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="head" x="0" y="16">{escape(title)} (log scale)</text>',
    ]
    for power in range(low, high + 1):
        x = LABELS + (power - low) * scale
        parts.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{TOP - 6}" y2="{height - 18}"/>')
        parts.append(f'<text class="axis" x="{x:.0f}" y="{height - 4}" text-anchor="middle">{10**power:,g}</text>')
    y = TOP
    for group in groups:
        y += TITLE
        parts.append(f'<text class="title" x="0" y="{y - 8}">{escape(group.title)}</text>')
        for name, value in group.values:
            parts += _bar(name, value, y, max(2.0, (math.log10(value) - low) * scale) if value > 0 else 0.0)
            y += BAR + GAP
    return "\n".join([*parts, "</svg>", ""])


def _bar(name: str, value: float, y: int, length: float) -> list[str]:
    kind = "ours" if name == OURS else "peer"
    middle = y + BAR - 4
    return [
        f'<text x="{LABELS - 8}" y="{middle}" text-anchor="end">{escape(name)}</text>',
        f'<rect class="{kind}" x="{LABELS}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2"/>',
        f'<text x="{LABELS + length + 6:.1f}" y="{middle}">{value:,.0f}</text>',
    ]
