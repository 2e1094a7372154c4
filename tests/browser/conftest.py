"""A real Chromium before a real server on a filled SQLite file; one of each for all tests of a module.

Playwright leaves an event loop running in the thread of the tests: so the browser ends with its module, and everything
else that is asynchronous has a thread of its own.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self, TypeVar

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

import pgqrs
from browser.filling import FLOWS, fill
from pgqrs.api.store import Store
from rig.http import opened

T = TypeVar("T")
CHROMIUM = os.environ.get("PGQRS_TEST_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
# A page that takes longer than this on a busy machine is broken, not slow.
PATIENCE = 50_000


class Served:
    """The dashboard of a store, served by a thread; `do` runs a coroutine where the store lives."""

    def __init__(self, config: pgqrs.Config, **options: Any) -> None:
        self._config = config
        self._options = options
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="served", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait(60)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *_: object) -> None:
        # Streams end by themselves; a browser would keep them open.
        self.do(self.app.state.watcher.close())
        self.server.should_exit = True
        self._thread.join(30)

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - told to whoever waits for it
            self._error = error
            self._started.set()
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self.store: Store = await pgqrs.connect_with(self._config, install=True)
        self.app = opened(self.store, **self._options)
        options = uvicorn.Config(self.app, port=0, log_level="error", timeout_graceful_shutdown=1, lifespan="off")
        self.server = uvicorn.Server(options)
        # Signals are the test runner's.
        with suppress(AttributeError):
            self.server.install_signal_handlers = lambda: None  # type: ignore[method-assign]
        serving = asyncio.create_task(self.server._serve())
        while not self.server.started:
            await asyncio.sleep(0.01)
            if serving.done():
                break
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        self._started.set()
        await serving
        await self.store.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    if not os.path.exists(CHROMIUM):  # noqa: PTH110
        if os.environ.get("CI"):
            pytest.fail(f"there is no Chromium at {CHROMIUM}: apt-get install chromium, or set PGQRS_TEST_CHROMIUM")
        pytest.skip(f"there is no Chromium at {CHROMIUM}: apt-get install chromium, or set PGQRS_TEST_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-background-networking", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> pgqrs.Config:
    config = pgqrs.Config(f"sqlite:///{tmp_path_factory.mktemp('filled') / 'app.db'}")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(fill(config))).result()
    return config


@pytest.fixture(scope="module")
def served(filled: pgqrs.Config) -> Iterator[Served]:
    """With actions, for whoever reaches it; a worker serves its workflows meanwhile."""
    with Served(filled, read_only=False) as served:
        yield served


class Watched:
    """A page and everything that went wrong on it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._told)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.set_default_timeout(PATIENCE)

    def _told(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} {message.location.get('url', '')}")

    def open(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page

    @property
    def foreign(self) -> list[str]:
        return [each for each in self.requests if not each.startswith((self.url, "data:"))]

    def check(self) -> None:
        """Nothing on the console (a broken policy is told there), and nobody else was asked for anything."""
        # Until the stream is there the script polls; a browser says so on the console, and nobody minds.
        told = [each for each in self.errors if "/stream" not in each]
        assert (told, self.foreign) == ([], [])


def watched(context: BrowserContext, url: str) -> Watched:
    return Watched(context.new_page(), url)


@pytest.fixture
def browse(chromium: Browser, served: Served) -> Iterator[Any]:
    """Opens a page in a context of its own: `browse()`, `browse(java_script_enabled=False)`."""
    contexts: list[BrowserContext] = []

    def begin(url: str | None = None, **options: Any) -> Watched:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        contexts.append(context)
        return watched(context, url or served.url)

    yield begin
    for context in contexts:
        context.close()


@pytest.fixture
def worker(served: Served) -> Iterator[None]:
    """Somebody executes what the test starts."""

    async def start() -> Any:
        made = await pgqrs.worker("tester", concurrency=10).workflows(FLOWS).create(served.store)
        return made, asyncio.create_task(made.poll_forever())

    async def stop(made: Any, task: Any) -> None:
        made.stop()
        await task
        await made.close()

    made, task = served.do(start())
    yield
    served.do(stop(made, task))
