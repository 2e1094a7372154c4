"""Workers: who is there, who fell silent, what each serves and holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from pgqrs.api.operations.admin import admin
from pgqrs.api.operations.metrics import LIVE_LEASES
from pgqrs.db.views.run_details import workers_shown
from pgqrs.types import WorkerInfo, WorkerStatus
from pgqrs.web.auth.access import Scope
from pgqrs.web.pages.confirm import Confirmation, PageAction, endpoints_of
from pgqrs.web.pages.rendering import render
from pgqrs.web.pagination import cut_for
from pgqrs.web.problems import Problem
from pgqrs.web.routing import Endpoint, RequestContext

SHOWN = 200


@dataclass(frozen=True, slots=True)
class WorkerListRow:
    worker: WorkerInfo
    # ready, silent or stopped.
    state: str
    serves: str
    facts: str

    @property
    def can_be_stopped(self) -> bool:
        return self.state == "ready" and self.worker.can_be_told_to_stop


async def show(asked: RequestContext) -> Response:
    found = await workers_shown(await asked.store.ready(), limit=SHOWN, cut=cut_for(SHOWN, texts=1))
    live_within = LIVE_LEASES * asked.store.config.lease_seconds
    return await render(
        asked,
        "workers.html",
        here="workers",
        workers=[WorkerListRow(each, _state(each, live_within), _serves(each), _facts(each.info)) for each in found],
        shown=SHOWN,
        stop=STOP,
        release=RELEASE,
    )


def _state(worker: WorkerInfo, live_within: float) -> str:
    if worker.status is WorkerStatus.STOPPED:
        return "stopped"
    return "ready" if worker.heartbeat_age_seconds <= live_within else "silent"


def _serves(worker: WorkerInfo) -> str:
    prefixes = worker.info.get("prefixes") or ()
    served = [f"{prefix}*" for prefix in prefixes] or worker.info.get("handlers") or [worker.queue or ""]
    return ", ".join(map(str, served))


def _facts(info: dict[str, Any]) -> str:
    """What it says of itself beside what it serves."""
    told = [(name, info[name]) for name in ("pid", "version", "slots") if info.get(name) is not None]
    return ", ".join(f"{name} {value}" for name, value in told)


async def _ask_stop(asked: RequestContext) -> Confirmation:
    return Confirmation(
        f"Tell worker {_worker(asked)} to stop?",
        ("It takes nothing more, finishes what it has, and ends. Whoever started it may start it again.",),
    )


async def _stop(asked: RequestContext) -> None:
    await admin(asked.store).stop_worker(_worker(asked))


async def _ask_release(asked: RequestContext) -> Confirmation:
    return Confirmation(
        f"Free at once all that worker {_worker(asked)} holds?",
        ("For one that is gone: if it still works, its work is done by somebody else, too.",),
    )


async def _release(asked: RequestContext) -> None:
    await admin(asked.store).release_worker_messages(_worker(asked))


def _worker(asked: RequestContext) -> int:
    worker_id: int = asked.path("worker_id")
    if worker_id >= 2**63:
        raise Problem(404, "worker-not-found", f"there is no worker {worker_id}")
    return worker_id


STOP = PageAction("worker.stop", "/workers/{worker_id:int}", "Stop", _ask_stop, _stop)
RELEASE = PageAction(
    "worker.release", "/workers/{worker_id:int}", "Release", _ask_release, _release, is_destructive=True
)

ENDPOINTS = (
    Endpoint("GET", "/workers", show, Scope.READ, "Workers", page=True),
    *endpoints_of([STOP, RELEASE], here="workers"),
)
