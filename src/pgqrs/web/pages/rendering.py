"""Pages from templates: one environment, and one frame around every page."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pgqrs.clock import UNREADABLE, is_readable
from pgqrs.db.views.throughput import clock
from pgqrs.reports import CappedCount
from pgqrs.text.durations import format_duration
from pgqrs.web.auth.access import Access, Caller, Scope
from pgqrs.web.auth.cross_site import form_token
from pgqrs.web.auth.login import is_own_path
from pgqrs.web.problems import Problem
from pgqrs.web.routing import RequestContext

HERE = Path(__file__).parent.parent
STATIC = HERE / "static"
# A number is read in groups of three; a narrow blank does not wrap.
_GROUP = "\N{NARROW NO-BREAK SPACE}"
_NONE = "\N{EN DASH}"
_BRIEF = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_BYTES = ((2**30, "GB"), (2**20, "MB"), (2**10, "KB"))

# What was done, told once by the page that comes after it; the address says which of these, and nothing else.
DONE = {
    "run.cancel": "The run was cancelled.",
    "run.pause": "The run is paused.",
    "run.resume": "The run goes on.",
    "run.signal": "The signal was sent.",
    "run.restart": "The run continues where it stopped.",
    "run.retry-children": "The failed children were restarted; the run waits for them.",
    "run.reset": "The run starts anew.",
    "run.delete": "The run was deleted; it can be restored until retention removes it.",
    "run.restore": "The run was restored.",
    "run.answer": "The answer was given; the run goes on.",
    "run.trigger": "The run was started.",
    "workflow.pause": "The workflow is paused.",
    "workflow.resume": "The workflow goes on.",
    "queue.pause": "The queue is paused.",
    "queue.resume": "The queue goes on.",
    "queue.replay": "The dead letters start anew.",
    "queue.purge": "The queue was emptied.",
    "worker.stop": "The worker is told to stop.",
    "worker.release": "What the worker held is free.",
    "schedule.pause": "The schedule is paused.",
    "schedule.resume": "The schedule goes on.",
    "schedule.trigger": "The run was started.",
    "outbox.replay": "The dead events start anew.",
    "session.end": "You are logged out.",
}


class Frame:
    """What every page needs of whoever asked: where it is, who they are, what they may do."""

    def __init__(self, request: Request, caller: Caller | None = None, access: Access | None = None) -> None:
        self.root: str = request.scope.get("root_path", "").rstrip("/")
        self.path: str = request.url.path.removeprefix(self.root) or "/"
        self.address: str = self.path + (f"?{request.url.query}" if request.url.query else "")
        self.done: str | None = DONE.get(request.query_params.get("done", ""))
        self._request = request
        self._caller = caller
        self._access = access

    @property
    def caller(self) -> str | None:
        return self._caller.name if self._caller is not None and self._caller.scopes else None

    @property
    def read_only(self) -> bool:
        return self._access is not None and self._access.read_only

    @property
    def can_log_out(self) -> bool:
        return self._access is not None and self._access.tokens is not None and self.caller is not None

    @property
    def form_token(self) -> str:
        return "" if self._caller is None else form_token(self._request, self._caller)

    def may(self, scope: str) -> bool:
        """Whether a button for this would do something."""
        return not self.read_only and self._caller is not None and self._caller.may(Scope(scope))

    def url(self, path: str, *parts: Any, **query: Any) -> str:
        """An address of ours: `{}` in the path stands for a part, which is quoted; empty queries are left out."""
        place = self.root + path.format(*(quote(str(part), safe="") for part in parts))
        given = {key: value for key, value in query.items() if value not in (None, "")}
        return place + (f"?{urlencode(given)}" if given else "")

    def back(self, address: str, otherwise: str) -> str:
        """An address that came with a form or a link, if it is one of ours."""
        return self.root + (address if is_own_path(address) else otherwise)

    def asset(self, name: str) -> str:
        return f"{self.root}/static/{name}?v={_VERSIONS[name]}"


async def render(asked: RequestContext, template: str, *, here: str, status: int = 200, **given: Any) -> Response:
    """A page of the dashboard, for callers that may read; `here` is its place in the navigation."""
    if not asked.caller.may(Scope.READ):
        # No route leads here: this holds for those that are still to be written.
        raise Problem(403, "forbidden", "this page needs the scope 'read'", needed=Scope.READ.value)
    now = await clock(await asked.store.ready())
    frame = Frame(asked.request, asked.caller, asked.access)
    return _html(template, status, frame=frame, here=here, now=now, label=_label(asked), **given)


def render_bare(request: Request, template: str, *, status: int, **given: Any) -> Response:
    """A page for whoever is not known, or when the database is not there."""
    frame = given.pop("frame", None) or Frame(request)
    return _html(template, status, frame=frame, here="", now=datetime.now(UTC), label="", **given)


def see(asked: RequestContext, path: str, *parts: Any, **query: Any) -> Response:
    """To another page, after something was done."""
    return RedirectResponse(Frame(asked.request).url(path, *parts, **query), 303)


def seen(asked: RequestContext, back: str | None, *, done: str, otherwise: str) -> Response:
    """Back to the page of ours whose address the form had, or else to another one."""
    path, _, query = (back if back is not None and is_own_path(back) else otherwise).partition("?")
    kept = "&".join(each for each in query.split("&") if each and not each.startswith("done="))
    queries = "&".join(each for each in (kept, f"done={done}" if done else "") if each)
    return RedirectResponse(Frame(asked.request).root + path + (f"?{queries}" if queries else ""), 303)


def parameter(asked: RequestContext, name: str) -> str:
    """A parameter of the address, "" when it is not there; one that is there twice is refused."""
    values = asked.request.query_params.getlist(name)
    if len(values) > 1:
        raise Problem(422, "bad-request", f"query: {name!r} is there twice")
    if values and "\0" in values[0]:
        raise Problem(422, "bad-request", f"query: {name!r} holds a NUL character")
    return values[0] if values else ""


def _html(template: str, status: int, **context: Any) -> Response:
    page = _environment.get_template(template).render(context)
    # JSON may hold half of a surrogate pair, which UTF-8 has no bytes for.
    return HTMLResponse(page.encode("utf-8", "replace"), status)


def _label(asked: RequestContext) -> str:
    config = asked.store.config
    return config.safe_dsn + (f" · {config.schema}" if config.schema != "public" else "")


# -- what templates say ----------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:,.0f}".replace(",", _GROUP)


def count(value: CappedCount) -> str:
    return number(value.count) + ("+" if value.capped else "")


def brief(seconds: float) -> str:
    """In its largest unit: `3 min`, `2 d`."""
    for size, unit in _BRIEF:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return "0 s"


def ago(moment: datetime, now: datetime) -> str:
    if not is_readable(moment):
        return UNREADABLE
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{brief(seconds)} ago" if seconds > 0 else f"in {brief(-seconds)}"


def took(seconds: float | None) -> str:
    if seconds is None:
        return _NONE
    return f"{seconds * 1000:.0f} ms" if 0 <= seconds < 1 else format_duration(seconds)


def size(value: int) -> str:
    for unit, name in _BYTES:
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value} bytes"


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc(moment: datetime) -> str:
    return UNREADABLE if not is_readable(moment) else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def pretty(text: str | None) -> str:
    """Stored JSON as people read it; what is broken, or was cut, as it is."""
    if text is None:
        return ""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def facts(text: str | None) -> str:
    """The data of an event, as a line: `step charge · attempt 1`; what is no object as it is."""
    try:
        told = json.loads(text or "null")
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        return text or ""
    return " · ".join(f"{key} {each if isinstance(each, str) else json.dumps(each)}" for key, each in told.items())


def failure(text: str | None) -> dict[str, str] | None:
    """A stored error as people read it: `what`, and the `traceback`; None for what is not one."""
    try:
        told = json.loads(text or "null")
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or not isinstance(told.get("message"), str):
        return None
    what = f"{told.get('type') or 'Error'}: {told['message']}"
    return {"what": what, "traceback": str(told.get("traceback") or "")}


def lately(seconds: float) -> str:
    """`hour`, `10 min`: what stands behind "the last"."""
    return {3600.0: "hour", 60.0: "minute"}.get(seconds) or brief(seconds)


def short(text: str | None, most: int = 140) -> str:
    """One line of it."""
    line = " ".join((text or "").split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _versions() -> dict[str, str]:
    """What a file's address ends with, so that browsers may keep it for good."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:12] for file in STATIC.iterdir()}


def _made() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        # Always, whatever a file is called: everything that is shown was written by somebody else.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (
        ago,
        brief,
        count,
        facts,
        failure,
        iso,
        format_duration,
        lately,
        number,
        pretty,
        short,
        size,
        took,
        utc,
    )
    made.filters.update({each.__name__: each for each in filters}, readable=is_readable)
    return made


_VERSIONS = _versions()
_environment = _made()
