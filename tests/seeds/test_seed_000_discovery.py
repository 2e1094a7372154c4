"""Seed 000, sections 5.1 and 5.2: decorated workflows are discovered, everywhere or in one module."""

import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

import pgqrs
from pgqrs import connect, consumer, discover_workflows, workflow

# -- what the examples take for granted ------------------------------------------------------------------


@dataclass
class ZipParams:
    bucket: str
    prefix: str


@dataclass
class ZipResult:
    archive_path: str
    file_count: int


@dataclass
class EmailParams:
    to: str


@dataclass
class EmailResult:
    sent: bool


# -- section 5.1 as written; a function, so that each test decorates anew --------------------------------


def decorated():
    # Annotate workflow handlers
    @workflow(name="zip_files")
    async def zip_files_handler(ctx, params: ZipParams) -> ZipResult:
        # Implementation...
        return ZipResult(f"/{params.bucket}.zip", 1)

    @workflow(name="send_emails")
    async def send_emails_handler(ctx, params: EmailParams) -> EmailResult:
        # Implementation...
        return EmailResult("@" in params.to)

    return zip_files_handler, send_emails_handler


# Auto-discovery
async def main():
    store = await connect("postgres://localhost/mydb")

    # Discover all decorated workflows
    workflows = discover_workflows()

    # Register all
    for name, handler in workflows.items():
        await store.create_workflow(name)

        await consumer("worker-1", 8080, name) \
            .handler(handler) \
            .create(store)  # fmt: skip


# -- what they promise -----------------------------------------------------------------------------------


def test_the_names_of_section_5_1_can_be_imported():
    from pgqrs import discover_workflows, workflow_decorator

    assert callable(workflow_decorator)
    assert callable(discover_workflows)


async def test_every_decorated_workflow_is_discovered_and_gets_its_worker(mydb):
    decorated()
    await main()

    registered = {(w.name, w.port, w.queue) for w in await pgqrs.admin(mydb).workers()}
    assert registered == {("worker-1", 8080, "zip_files"), ("worker-1", 8080, "send_emails")}


async def test_what_was_discovered_executes_with_its_own_types(mydb):
    decorated()
    await main()
    zip_run = await workflow("zip_files").trigger(ZipParams("photos", "2024")).execute(mydb)
    email_run = await workflow("send_emails").trigger(EmailParams("ann@example.org")).execute(mydb)

    for name, handler in discover_workflows().items():
        worker = await consumer("worker-2", 8081, name).handler(handler).create(mydb)
        await worker.run_until_idle()
        await worker.close()

    assert (await workflow("zip_files").get_run(zip_run, mydb)).output() == ZipResult("/photos.zip", 1)
    assert (await workflow("send_emails").get_run(email_run, mydb)).output() == EmailResult(sent=True)


@pytest.fixture
def myapp(monkeypatch):
    """A package with a module of workflows: one decorated, one plain function, one of another module's."""
    zip_files, _elsewhere = decorated()
    package, module = ModuleType("myapp"), ModuleType("myapp.workflows")
    module.zip_files_handler = zip_files
    module.not_a_workflow = lambda ctx: None
    package.workflows = module
    monkeypatch.setitem(sys.modules, "myapp", package)
    monkeypatch.setitem(sys.modules, "myapp.workflows", module)


async def test_discovery_in_a_module_finds_that_modules_workflows_only(myapp, mydb):
    # Discover workflows in specific module only
    from myapp import workflows

    workflows = discover_workflows(workflows)

    assert list(workflows) == ["zip_files"]
    await mydb.create_workflow("zip_files")
    run_id = await workflow("zip_files").trigger(ZipParams("photos", "2024")).execute(mydb)
    worker = await consumer("worker-1", 8080, "zip_files").handler(workflows["zip_files"]).create(mydb)
    await worker.run_until_idle()
    await worker.close()
    assert (await workflow("zip_files").get_run(run_id, mydb)).status == "SUCCESS"


async def test_one_worker_may_serve_a_whole_module(myapp, mydb):
    from myapp import workflows

    worker = await pgqrs.worker("worker-1").workflows(workflows).create(mydb)
    run_id = await workflow("zip_files").trigger(ZipParams("photos", "2024")).execute(mydb)
    await worker.run_until_idle()
    await worker.close()

    assert (await workflow("zip_files").get_run(run_id, mydb)).output() == ZipResult("/photos.zip", 1)
