"""The pictures of docs/images, from the demo's data: `PYTHONPATH=tests python -m browser.screenshots`."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import sync_playwright

import pgqrs
from browser.conftest import CHROMIUM, Served
from pgqrs.cli.demo import shop
from pgqrs.cli.demo.seed_data import fill
from pgqrs.types import RunStatus

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDE, PHONE = {"width": 1200, "height": 760}, {"width": 360, "height": 740}
# Of the parts of a long page that a reader of the documentation needs.
MOST_HEIGHT = 900


async def _filled(config: pgqrs.Config) -> None:
    async with pgqrs.connect_with(config, install=True) as store:
        await fill(store, hours=1.2, runs=260)


async def _staffed(served: Served) -> Callable[[], Awaitable[None]]:
    """Somebody is there; and how they leave."""
    made = await pgqrs.worker("shop-2", concurrency=20).workflows(shop).create(served.store)
    working = asyncio.create_task(made.poll_forever())

    async def leave() -> None:
        made.stop()
        await working
        await made.close()

    return leave


def _smaller(file: Path) -> None:
    """With a palette, where Pillow is there: a third of the size, and nobody sees a difference."""
    with suppress(ModuleNotFoundError):
        from PIL import Image

        with Image.open(file) as image:
            image.convert("RGB").quantize(200).save(file, optimize=True)


async def _kinds(served: Served) -> dict[str, str]:
    """A page of each kind."""
    admin = pgqrs.admin(served.store)
    failed, *_ = await admin.runs(status=RunStatus.ERROR, limit=1)
    waiting = [run for run in await admin.runs(status=RunStatus.PAUSED, limit=50) if run.attempt]
    step = (await admin.steps(failed.run_id))[-1].step_id
    names = [each.workflow for each in (await admin.stats()).live]
    counts = {name: (await admin.workflow_metrics(name, window=86_400)).ended.count for name in names}
    busiest = max(counts, key=lambda name: counts[name])
    schedule = (await pgqrs.schedules(served.store).list())[0].name
    queues = [each.queue for each in (await admin.stats()).queues if each.dead] or names
    return {
        "overview": "/",
        "runs": "/runs",
        "run": f"/runs/{failed.run_id}?step={step}",
        "run-waiting": f"/runs/{waiting[0].run_id}",
        "inbox": "/inbox",
        "failures": "/failures?since=1h",
        "workflows": "/workflows",
        "workflow": f"/workflows/{busiest}",
        "queues": "/queues",
        "queue": f"/queues/{queues[0]}",
        "workers": "/workers",
        "schedules": "/schedules",
        "schedule": f"/schedules/{schedule}",
        "outbox": "/outbox",
        "system": "/system",
        "confirm": f"/runs/{waiting[0].run_id}/confirm/cancel",
        "login": "/login",
    }


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # So that no path of this machine is in the pictures.
        os.chdir(folder)
        config = pgqrs.Config("sqlite:///demo.db")
        asyncio.run(_filled(config))
        tokens = Path(folder) / "tokens"
        with (
            Served(config, read_only=False) as served,
            Served(config, tokens=tokens) as door,
            sync_playwright() as playwright,
        ):
            browser = playwright.chromium.launch(
                executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking", "--disable-gpu"]
            )
            leave = served.do(_staffed(served))
            for name, path in served.do(_kinds(served)).items():
                for theme, size, suffix in (("light", WIDE, ""), ("dark", WIDE, ""), ("light", PHONE, "-phone")):
                    context = browser.new_context(viewport=size, color_scheme=theme)
                    page = context.new_page()
                    page.goto((door if name == "login" else served).url + path)
                    page.wait_for_selector("html[data-ready]")
                    height = min(page.evaluate("document.documentElement.scrollHeight"), MOST_HEIGHT)
                    page.set_viewport_size({**size, "height": max(height, 400)})
                    file = IMAGES / f"{name}-{theme}{suffix}.png"
                    page.screenshot(path=file)
                    _smaller(file)
                    context.close()
            browser.close()
            served.do(leave())


if __name__ == "__main__":
    main()
