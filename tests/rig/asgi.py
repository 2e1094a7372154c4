"""Requests to an application in this process: no server, no port, no client library."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

from rig.html import Document, parsed


@dataclass
class Answered:
    status: int
    headers: dict[str, str]
    content: bytes
    cookies: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def document(self) -> Document:
        return parsed(self.text)


class Browser:
    """Asks pages and sends their forms, as a browser without JavaScript would."""

    def __init__(self, app: Any, *, root: str = "") -> None:
        self.app = app
        self.root = root
        self.cookies: dict[str, str] = {}

    async def get(self, target: str, **headers: str) -> Answered:
        return await self._ask("GET", target, b"", headers)

    async def post(self, target: str, form: dict[str, Any], **headers: str) -> Answered:
        body = urlencode(form, doseq=True).encode()
        kind = {"content-type": "application/x-www-form-urlencoded", "content-length": str(len(body))}
        return await self._ask("POST", target, body, {"origin": "http://localhost", **kind, **headers})

    async def submit(self, page: Answered, action: str, **fields: Any) -> Answered:
        """The form of the page whose address ends so, with its own fields and these; then where it leads."""
        [form] = [each for each in page.document.forms if each.action.endswith(action)]
        answered = await self.post(form.action, {**form.fields, **fields})
        return await self.follow(answered)

    async def follow(self, answered: Answered) -> Answered:
        while answered.status == 303:
            answered = await self.get(answered.headers["location"])
        return answered

    async def _ask(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> Answered:
        path, _, query = target.partition("#")[0].partition("?")
        given = {"host": "localhost", **headers}
        if self.cookies:
            given["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": self.root,
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1), "server": ("localhost", 80),
        }  # fmt: skip
        sent: list[dict[str, Any]] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                # Whoever waits for the client to go away waits until it is answered.
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        names = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
        for name, value in names:
            if name == "set-cookie":
                key, _, rest = value.partition("=")
                self.cookies[key] = rest.partition(";")[0]
        return Answered(sent[0]["status"], dict(names), b"".join(each.get("body", b"") for each in sent[1:]))
