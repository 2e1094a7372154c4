"""`pgqrs dev`: an application while it is written."""

import os
import signal

import pytest

import pgqrs
from pgqrs.cli.commands.dev import Files
from rig.terminal import Program, until_gone

STARTED = r"worker     started \(pid (\d+)\)"

APP = """
import asyncio
from pathlib import Path

import pgqrs


async def first() -> int:
    with Path("effects").open("a") as file:
        file.write("first\\n")
    return 1


async def second() -> str:
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return "VERSION"


@pgqrs.workflow(name="flow")
async def flow(ctx):
    await ctx.step("first", first)
    return await ctx.step("second", second)
"""


@pytest.fixture
def app(tmp_path):
    """Writes the application's file, never twice with the same times."""
    file = tmp_path / "app.py"

    def write(text):
        before = file.stat().st_mtime_ns if file.exists() else 0
        file.write_text(text)
        if file.stat().st_mtime_ns <= before:
            os.utime(file, ns=(before + 1_000_000, before + 1_000_000))

    write(APP.replace("VERSION", "old"))
    return write


@pytest.fixture
def dev(app, tmp_path):
    programs = []

    def start(*words, **environment):
        programs.append(Program("dev", "app.py", "--no-dashboard", *words, cwd=tmp_path, **environment))
        return programs[-1]

    yield start
    for each in programs:
        each.__exit__()


async def _store(tmp_path):
    return await pgqrs.connect(f"sqlite:///{tmp_path / 'pgqrs.db'}")


async def _triggered(tmp_path):
    async with await _store(tmp_path) as store:
        return await pgqrs.workflow("flow").trigger(None).execute(store)


async def test_a_file_is_served_and_its_runs_are_told(dev, tmp_path):
    program = dev()
    program.until(STARTED)
    assert "database   sqlite:///pgqrs.db (made just now)" in program.text
    run_id = await _triggered(tmp_path)
    program.until(rf"run {run_id}  flow .*first ok")
    (tmp_path / "go").touch()

    program.until(rf'run {run_id}  flow .*second ok   done: "old"')


async def test_a_run_in_progress_continues_from_its_last_step_with_the_new_code(dev, app, tmp_path):
    program = dev()
    before = int(program.until(STARTED).group(1))
    run_id = await _triggered(tmp_path)
    program.until("first ok")

    app(APP.replace("VERSION", "new"))
    program.until(rf"reloaded: worker \d+ in place of {before}")
    program.until(rf"run {run_id}  flow   resumed by worker \d+, 1 step replayed from the database")
    (tmp_path / "go").touch()

    program.until(rf'run {run_id}  flow .*done: "new"')
    assert (tmp_path / "effects").read_text() == "first\n"
    until_gone(before)


async def test_a_file_that_cannot_be_loaded_is_shown_and_the_old_worker_goes_on(dev, app, tmp_path):
    (tmp_path / "go").touch()
    program = dev()
    pid = int(program.until(STARTED).group(1))

    app("def oops(:\n")
    program.until(rf"SyntaxError[\s\S]*app.py cannot be loaded; worker {pid} goes on with the code before it")
    run_id = await _triggered(tmp_path)
    program.until(rf'run {run_id}  flow .*done: "old"')
    app(APP.replace("VERSION", "new"))
    program.until(rf"reloaded: worker \d+ in place of {pid}")

    run_id = await _triggered(tmp_path)
    program.until(rf'run {run_id}  flow .*done: "new"')


def test_a_file_that_cannot_be_loaded_at_first_is_tried_again(dev, app):
    app("import nowhere_to_be_found\n")
    program = dev()
    program.until(r"ModuleNotFoundError[\s\S]*cannot be loaded; no worker yet; save to try again")

    app(APP)

    program.until(STARTED)


def test_a_neighbour_that_was_missing_is_found_when_it_comes(dev, app, tmp_path):
    app("import neighbour_of_app\n" + APP)
    program = dev()
    program.until("no worker yet")

    (tmp_path / "neighbour_of_app.py").write_text("")

    program.until(STARTED)


def test_a_change_of_an_imported_file_reloads(dev, app, tmp_path):
    (tmp_path / "neighbour_of_app.py").write_text("")
    app("import neighbour_of_app\n" + APP)
    program = dev()
    program.until(STARTED)

    (tmp_path / "neighbour_of_app.py").write_text("x = 1\n")

    program.until("reloaded")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_stops_it_stops_everything(dev, number, code):
    program = dev()
    pid = int(program.until(STARTED).group(1))

    program.signal(number)

    assert program.end() == code, program.text
    until_gone(pid)
    assert "Traceback" not in program.text


def test_a_worker_does_not_outlive_it(dev):
    program = dev()
    pid = int(program.until(STARTED).group(1))

    program.signal(signal.SIGKILL)

    until_gone(pid)


async def test_the_routes_of_an_outbox_are_served(dev, app, tmp_path):
    app("""
import pgqrs


@pgqrs.workflow(name="flow")
async def flow(ctx):
    await ctx.emit("order.shipped", {"n": 7})


def dispatcher(store):
    return pgqrs.dispatcher(store).to(lambda event: print("published", event.type, event.payload))
""")
    program = dev()
    program.until(STARTED)

    await _triggered(tmp_path)

    program.until(r"published order.shipped \{'n': 7\}")


async def test_what_the_application_logs_is_shown(dev, app, tmp_path):
    app("""
import logging

import pgqrs


@pgqrs.workflow(name="flow")
async def flow(ctx):
    ctx.log.info("a word from the run")
    logging.getLogger("shop").info("a word from the shop")
    raise pgqrs.PermanentError("no")
""")
    program = dev()
    program.until(STARTED)

    await _triggered(tmp_path)

    program.until("FAILED: PermanentError: no")
    program.until("a word from the run")
    program.until("a word from the shop")


@pytest.mark.parametrize(
    ("dsn", "hint"),
    [("turso:///x.db", "Turso lets one process at a time"), ("sqlite://:memory:", "needs a file")],
)
def test_a_database_for_one_process_is_refused(dev, dsn, hint):
    program = dev(PGQRS_DSN=dsn)

    assert program.end() == 2
    assert hint in program.text


def test_a_file_that_is_not_there_is_named(tmp_path):
    with Program("dev", "nowhere.py", cwd=tmp_path) as program:
        assert program.end() == 2

    assert "there is no file 'nowhere.py'" in program.text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.backends("postgres")
def test_the_tables_are_made_on_a_server_only_when_asked(dev, config):
    named = {"PGQRS_DSN": config.dsn, "PGQRS_SCHEMA": config.schema}

    refused = dev(**named)
    assert refused.end() == 9
    assert "pgqrs install" in refused.text
    made = dev("--install", **named)
    made.until(STARTED)

    assert f"schema     {config.schema}, its tables are there now" in made.text


# -- what is watched -----------------------------------------------------------------------------------------


def _touch(file):
    state = file.stat()
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000))


def test_a_save_is_told_once_and_when_it_stands_still(tmp_path):
    file = tmp_path / "app.py"
    file.write_text("a")
    files = Files([str(file)])
    assert files.have_changed() is False

    _touch(file)

    assert [files.have_changed() for _ in range(3)] == [False, True, False]


def test_a_file_that_is_moved_away_and_back_is_one_save(tmp_path):
    file = tmp_path / "app.py"
    file.write_text("a")
    files = Files([str(file)])

    file.unlink()
    away = files.have_changed()
    file.write_text("ab")
    found = [files.have_changed() for _ in range(3)]

    assert (away, found) == (False, [False, True, False])


def test_what_changed_before_it_was_watched_is_not_lost(tmp_path):
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("a")
    second.write_text("b")
    files = Files([str(first)])

    _touch(first)
    files.watch([str(second)])

    assert [files.have_changed() for _ in range(2)] == [False, True]
