"""The pages of docs/ in the order in which people read them: the site's navigation, and llms.txt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
SUMMARY = (
    "Durable workflows and queues as a Python library, on the database you already have: SQLite, PostgreSQL or Turso."
)

# Folders, and what comes first in them; a page that is not named here follows those that are, by its file's name.
SECTIONS: dict[str, tuple[str, str]] = {
    "tutorial": ("Tutorial", "two-minutes hello steps retry approval children schedule test crash deploy"),
    "guides": (
        "Guides",
        """workflows queues workers submitting retries approval children schedules outbox transactions types testing versions operations
        observability retention deploy fastapi django pgbouncer failover sqlite-to-postgres migrating""",
    ),
    "concepts": ("Concepts", "guarantees data leases replay time databases"),
    "reference": (
        "Reference",
        """cli settings python http errors events metrics schema values lint faults invariants proof power-loss mutants benchmarks
        simple-workflow""",
    ),
    "decisions": ("Decisions", ""),
}

_CONFIGURATION = """# Made by `make docs-pages` from what is in docs/: edit tools/docs/pages.py, not this file.
[project]
site_name = "pgqrs"
site_description = "{summary}"
docs_dir = "docs"
site_dir = "site"
use_directory_urls = true
nav = [
{nav}]

# Nothing is fetched from elsewhere: no fonts, no icons, no analytics; a test looks at the built pages.
[project.theme]
language = "en"
font = false
features = [
    "content.code.copy",
    "navigation.indexes",
    "navigation.path",
    "navigation.sections",
    "navigation.tabs",
    "navigation.top",
    "search.highlight",
    "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Dark"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Light"

[project.extra]
generator = false

[project.markdown_extensions.admonition]
[project.markdown_extensions.attr_list]
[project.markdown_extensions.tables]
[project.markdown_extensions.md_in_html]
[project.markdown_extensions.toc]
permalink = true
[project.markdown_extensions.pymdownx.superfences]
[project.markdown_extensions.pymdownx.highlight]
[project.markdown_extensions.pymdownx.details]
"""

_LLMS = """# pgqrs

> {summary}

Everything is `import pgqrs`. A workflow is a function whose steps are recorded; after a crash another worker runs it again and recorded steps return their
record. Python 3.11 or newer; in a clone of the repository `pip install .` for SQLite, `pip install '.[postgres]'` for PostgreSQL. The distribution is `pgqrs-durable`; `pgqrs` on the package index is another project. All pages in one file: [llms-full.txt](llms-full.txt).
"""


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    title: str
    says: str

    @property
    def address(self) -> str:
        return self.path.relative_to(DOCS).as_posix()


def sections() -> Iterator[tuple[str, list[Page]]]:
    for folder, (title, first) in SECTIONS.items():
        order = {name: place for place, name in enumerate(first.split())}
        files = sorted((DOCS / folder).glob("*.md"), key=lambda file: (order.get(file.stem, len(order)), file.stem))
        yield title, [_page(file) for file in files]


def loose() -> list[Page]:
    """Pages that are in no folder, but for the first."""
    return [_page(file) for file in sorted(DOCS.glob("*.md")) if file.stem != "index"]


def unlisted() -> list[str]:
    """Folders that the navigation does not know."""
    return sorted({file.parent.name for file in DOCS.rglob("*.md")} - {*SECTIONS, DOCS.name})


def configuration() -> str:
    nav = ['    { "Home" = "index.md" },\n']
    for title, pages in sections():
        nav.append(f'    {{ "{title}" = [\n')
        nav += [f'        {{ "{page.title}" = "{page.address}" }},\n' for page in pages]
        nav.append("    ] },\n")
    nav += [f'    {{ "{page.title}" = "{page.address}" }},\n' for page in loose()]
    return _CONFIGURATION.format(summary=SUMMARY, nav="".join(nav))


def llms() -> str:
    parts = [_LLMS.format(summary=SUMMARY)]
    for title, pages in [*sections(), ("Others", loose())]:
        parts.append(f"\n## {title}\n\n")
        parts += [f"- [{page.title}]({page.address}): {page.says}\n" for page in pages]
    return "".join(parts)


def whole() -> str:
    """All pages in one text, each under its address."""
    listed = [
        DOCS / "index.md",
        *(page.path for _, pages in sections() for page in pages),
        *(p.path for p in loose()),
    ]
    return "".join(
        f"<!-- {file.relative_to(DOCS).as_posix()} -->\n\n{file.read_text(encoding='utf-8').strip()}\n\n"
        for file in listed
    )


def _page(file: Path) -> Page:
    text = file.read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, re.MULTILINE)
    if title is None:
        raise ValueError(f"{file} has no title: its first line must be one, as in `# Queues`")
    body = text[title.end() :]
    # The first paragraph that is one: no heading, table, list or code, and not how the page is made.
    for paragraph in re.split(r"\n\s*\n", body):
        line = " ".join(paragraph.split())
        if line and not line.startswith(("#", "|", "```", "- ", "<", "Made by")):
            break
    sentence = re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", line).replace("*", "")
    return Page(
        file, title.group(1).replace('"', "'").replace("`", ""), re.split(r"(?<=\.)\s", sentence)[0].rstrip(":")
    )
