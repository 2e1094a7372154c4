"""`pgqrs worker run shop.flows` from the project's folder: modules there are found, as uvicorn and celery find them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pgqrs
from rig.terminal import Program

PGQRS = Path(sys.executable).parent / "pgqrs"
PRICES = "AMOUNT = 5\n"
FLOWS = """
import pgqrs
from shop.prices import AMOUNT


@pgqrs.workflow
async def order(ctx) -> int:
    return await ctx.step("charge", lambda: AMOUNT)


everything = {"order": order}


def publish(event):
    print("published", event.event_type, flush=True)
"""


@pytest.fixture
def project(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/prices.py").write_text(PRICES)
    (tmp_path / "shop/flows.py").write_text(FLOWS)
    return tmp_path


@pytest.fixture
def pgqrs_here(project):
    """The installed command, whose own folder is not the project's."""

    def run(*words, **environment):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PGQRS_")}
        given = {**kept, "PGQRS_DSN": f"sqlite:///{project / 'app.db'}", **environment}
        return subprocess.run(
            [PGQRS, *words], cwd=project, env=given, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.mark.parametrize(
    ("words", "environment"),
    [
        (["worker", "run", "shop.flows"], {}),
        (["worker", "run", "shop.flows:order"], {}),
        (["worker", "run", "shop.flows:everything"], {}),
        (["--app", "shop.flows:everything", "worker", "run"], {}),
        (["worker", "run"], {"PGQRS_APP": "shop.flows"}),
    ],
    ids=" ".join,
)
async def test_a_worker_serves_a_module_of_the_project(project, pgqrs_here, words, environment):
    async with pgqrs.connect(f"sqlite:///{project / 'app.db'}") as store:
        await store.create_workflow("order")
        run_id = await pgqrs.workflow("order").trigger().execute(store)
        done = pgqrs_here(*words, "--drain", **environment)

        assert done.returncode == 0, done.stderr
        assert (await pgqrs.workflow("order").get_run(run_id, store)).output() == 5


async def test_events_are_published_by_a_function_of_the_project(project, pgqrs_here):
    async with pgqrs.connect(f"sqlite:///{project / 'app.db'}"):
        pass
    done = pgqrs_here("outbox", "dispatch", "shop.flows:publish", "--once")

    assert done.returncode == 0, done.stderr


def test_dev_serves_and_watches_a_module_of_the_project(project):
    with Program("dev", "shop.flows", "--no-dashboard", cwd=project) as dev:
        dev.until(r"worker     started \(pid \d+\), serving order")
        file = project / "shop/prices.py"
        before = file.stat().st_mtime_ns
        file.write_text("AMOUNT = 6\n")
        os.utime(file, ns=(before + 1_000_000, before + 1_000_000))
        dev.until(r"reloaded: worker \d+ in place of \d+, serving order")


def test_the_projects_module_wins_over_an_installed_one_of_the_same_name(project, pgqrs_here):
    elsewhere = project / "elsewhere/shop"
    elsewhere.mkdir(parents=True)
    (elsewhere / "__init__.py").touch()
    (elsewhere / "flows.py").write_text("raise RuntimeError('not this one')")
    done = pgqrs_here("worker", "run", "shop.flows", "--drain", PYTHONPATH=str(elsewhere.parent))

    assert done.returncode == 0, done.stderr


def test_a_module_that_is_nowhere_is_told_with_the_folder_that_was_looked_in(project, pgqrs_here):
    done = pgqrs_here("worker", "run", "shop.flaws", "--drain")

    assert done.returncode == 2
    assert f"there is no module 'shop.flaws' in {str(project)!r} or on Python's path" in done.stderr


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("\nimport nosuchmodule\n", "line 2: ModuleNotFoundError: No module named 'nosuchmodule'"),
        ("import json\njson.loads('oh')\n", "line 2: JSONDecodeError: Expecting value: line 1 column 1 (char 0)"),
        ("a = 1\nb = = 2\n", "line 2: SyntaxError: invalid syntax"),
    ],
)
@pytest.mark.parametrize("words", [("worker", "run"), ("outbox", "dispatch")])
def test_an_application_that_cannot_be_imported_is_told_with_its_file_and_line(
    pgqrs_here, project, code, told, words
):
    (project / "shop/prices.py").write_text(code)

    for app in ("shop.flows", "shop/prices.py"):
        done = pgqrs_here(*words, app)
        assert done.stderr.splitlines()[-1].startswith(
            f"pgqrs: cannot import the application '{app}': shop/prices.py, {told}"
        )
        assert (done.returncode, "unexpected" in done.stderr, "Traceback" in done.stderr) == (2, False, False)

    assert "Traceback" in pgqrs_here("-v", *words, "shop.flows").stderr
