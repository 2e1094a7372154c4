"""A page as a browser's parser sees it, as far as tests ask: elements, text, links, forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "source",
        "track",
        "wbr",
        "path",
        "circle",
        "rect",
        "line",
        "polyline",
    ]
)


@dataclass
class Form:
    action: str
    method: str
    fields: dict[str, str | list[str]] = field(default_factory=dict)
    # What its buttons send: name and value.
    buttons: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Document:
    elements: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    text: str = ""
    forms: list[Form] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    # The text of what has an id.
    by_id: dict[str, str] = field(default_factory=dict)

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def attributes(self, name: str) -> list[str]:
        return [given[name] for _, given in self.elements if name in given]

    @property
    def values(self) -> str:
        """All text and all values of attributes: where a stored text may stand."""
        return "\n".join([self.text, *(value for _, given in self.elements for value in given.values())])


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.document = Document()
        self._open: list[tuple[str, str | None, int]] = []
        self._link: tuple[str, int] | None = None
        self._textarea: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        document = self.document
        document.elements.append((tag, given))
        if tag == "form":
            document.forms.append(Form(given.get("action", ""), given.get("method", "get")))
        elif tag in ("input", "textarea", "select") and document.forms and given.get("name"):
            if given.get("type") != "checkbox":
                document.forms[-1].fields[given["name"]] = given.get("value", "")
        elif tag == "button" and document.forms and given.get("name"):
            document.forms[-1].buttons.append((given["name"], given.get("value", "")))
        elif tag == "a":
            self._link = (given.get("href", ""), len(document.text))
        if tag not in _VOID:
            self._open.append((tag, given.get("id"), len(document.text)))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.document.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        document = self.document
        if tag == "a" and self._link is not None:
            href, start = self._link
            document.links.setdefault(" ".join(document.text[start:].split()), href)
            self._link = None
        while self._open:
            opened, name, start = self._open.pop()
            if name is not None:
                document.by_id[name] = document.text[start:]
            if opened == tag:
                break

    def handle_data(self, data: str) -> None:
        self.document.text += data


def parsed(text: str) -> Document:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.document
