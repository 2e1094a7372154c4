"""`pgqrs demo`: what it shows is true, and nothing of it stays behind."""

import asyncio
import re
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

import pgqrs
from pgqrs.cli.demo import shop
from pgqrs.cli.demo.scripted import Expected, Scene, mistakes
from pgqrs.cli.demo.seed_data import fill
from pgqrs.cli.subprocesses import NO_DASHBOARD, Process, environment_of
from pgqrs.types import RunStatus
from rig.terminal import Program, until_gone

STARTED = r"worker     started \(pid (\d+)\), (\d+) workflows registered"


def demo(tmp_path, *words, **how):
    return Program("demo", "--no-dashboard", *words, TMPDIR=str(tmp_path), **how)


# -- by itself -----------------------------------------------------------------------------------------------


def test_without_a_terminal_it_plays_by_itself_and_ends_well(tmp_path):
    with demo(tmp_path) as program:
        assert program.end() == 0, program.text

    said = program.text
    # What is told of a run at once and what in two lines depends on when somebody looked.
    for told in (
        r"run \d+  order   .*charge failed: TimeoutError, retry",
        r"run \d+  order   .*charge ok \(attempt 2\)",
        r"run \d+  order   .*waiting for approval",
        r"run \d+  import_feed   .*parse failed: PermanentError: feed.csv, row 3",
        r"run \d+  import_feed   .*FAILED",
        r"run \d+  trip   .*cancel_hotel ok",
        r"run \d+  trip   .*undone",
        r"run \d+  gallery   .*done: ",
        r"run \d+  report   .*done: ",
    ):
        assert re.search(told, said), told
    killed, crashed = re.search(
        r"worker (\d+) killed \(SIGKILL\) while run (\d+) was inside step 'ship'", said
    ).groups()
    assert re.search(
        rf"worker (?!{killed})\d+ started: run {crashed} resumed, 2 steps replayed from the database, 'ship' run again",
        said,
    )
    assert "no invariant is broken" in said
    assert "\x1b" not in said


def shown_on(page):
    """The lines that a page shows of the demo."""
    text = (Path(__file__).parent.parent.parent / page).read_text(encoding="utf-8")
    [block] = [
        each for each in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL) if "SIGKILL" in each
    ]
    return [line for line in block.splitlines() if line != "..." and not line.startswith("$ ")]


def test_the_pages_show_what_the_demo_prints(tmp_path):
    with Program("demo", TMPDIR=str(tmp_path), PGQRS_TOKENS="") as program:
        assert program.end() == 0, program.text

    printed = program.text
    for page in ("README.md", "docs/tutorial/two-minutes.md"):
        lines = shown_on(page)
        assert len(lines) == 9
        for line in lines:
            # Which facts share a line depends on when they were looked at; times, processes and numbers differ.
            start, *facts = line.split("   ") if line.startswith("[") else [line]
            for fact in facts or [""]:
                text = re.escape(re.sub(r"^\[[\d:]+\] ", "", start)).replace(r"8Jq\.\.\.", r"\S+")
                said = re.sub(r"(?<=in\\ )\d+", r"[\\d.]+", re.escape(fact))
                wanted = re.sub(r"\d+", r"\\d+", text) + (f"   .*{said}" if fact else "")
                # On a busy machine a look may come after the retry, and finds what became of it.
                assert re.search(wanted, printed) or ("retry in" in fact and "charge ok (attempt 2)" in printed), (
                    page,
                    wanted,
                    printed,
                )
        history, *runs = [int(each) for each in re.findall(r"(?:history +|run )(\d+)", "\n".join(lines))]
        # The history takes the first numbers.
        assert history < min(runs) <= history + 3, page


def test_nothing_of_it_stays_behind(tmp_path):
    with demo(tmp_path) as program:
        pid = int(program.until(STARTED).group(1))
        second = int(program.until(r"worker (\d+) started: run").group(1))
        assert program.end() == 0, program.text

    until_gone(pid)
    until_gone(second)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_interrupts_it_leaves_nothing_behind(tmp_path, number, code):
    with demo(tmp_path) as program:
        pid = int(program.until(STARTED).group(1))
        program.signal(number)
        assert program.end() == code, program.text

    until_gone(pid)
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in program.text


def test_a_worker_does_not_outlive_a_demo_that_was_killed(tmp_path):
    with demo(tmp_path) as program:
        pid = int(program.until(STARTED).group(1))
        program.signal(signal.SIGKILL)
        program.end()

    until_gone(pid)


async def test_a_database_that_is_kept_is_sound_and_alive(tmp_path):
    with demo(tmp_path, "--keep") as program:
        assert await asyncio.to_thread(program.end) == 0, program.text

    file = re.search(r"kept       (\S+)", program.text).group(1)
    assert f"PGQRS_DSN=sqlite:///{file} pgqrs run list" in program.text
    async with pgqrs.connect(f"sqlite:///{file}") as store:
        admin = pgqrs.admin(store)
        assert await admin.check_invariants() == []
        assert len(await admin.runs(status="paused")) >= 5
        assert len({group.error_signature for group in await admin.failures()}) >= 2


def test_the_dashboard_is_said_to_be_missing_where_it_is(tmp_path, monkeypatch):
    # Beside the package: whoever has the web extra has starlette, too.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        # As if it were not installed: who looks for it finds nothing.
        "import sys\nsys.modules['starlette'] = None\n"
    )
    (tmp_path / "tmp").mkdir()
    with Program("demo", TMPDIR=str(tmp_path / "tmp"), PYTHONPATH=str(tmp_path / "site")) as program:
        program.until(r"dashboard  " + re.escape(NO_DASHBOARD))
        program.signal(signal.SIGINT)
        assert program.end() == 130


# -- by hand -------------------------------------------------------------------------------------------------


def test_on_a_terminal_you_hold_the_keys(tmp_path):
    with demo(tmp_path, at_terminal=True) as program:
        pid = int(program.until(STARTED).group(1))
        program.until("waiting for approval")
        program.send("a")
        program.until("approved by you")
        program.send("c")
        program.until(rf"worker {pid} killed \(SIGKILL\)")
        second = int(program.until(r"worker (\d+) started: what is under way goes on").group(1))
        program.send("r")
        program.until(r"run (\d+)  order   reserve ok")
        program.send("q")
        assert program.end() == 0, program.text

    until_gone(second)
    assert list(tmp_path.iterdir()) == []
    assert "no invariant is broken" in program.text
    # The other screen is left, and the cursor is back.
    assert program.seen.rfind(b"\x1b[?1049l") > program.seen.rfind(b"\x1b[?1049h")
    assert program.seen.rfind(b"\x1b[?25h") > program.seen.rfind(b"\x1b[?25l")


def test_ctrl_c_at_a_terminal_gives_it_back(tmp_path):
    with demo(tmp_path, at_terminal=True) as program:
        pid = int(program.until(STARTED).group(1))
        program.until("c kill -9 the worker")
        program.send("\x03")
        assert program.end() == 130, program.text

    until_gone(pid)
    assert list(tmp_path.iterdir()) == []
    assert program.seen.rfind(b"\x1b[?1049l") > program.seen.rfind(b"\x1b[?1049h")


def test_on_a_terminal_it_plays_by_itself_when_asked(tmp_path):
    with demo(tmp_path, "--play", at_terminal=True) as program:
        assert program.end() == 0, program.text

    assert "'ship' run again" in program.text


# -- what must be true ---------------------------------------------------------------------------------------


@pytest.fixture
async def played(store, clock, tmp_path, monkeypatch):
    """A stage after a play in this process: an order that shipped, with what its steps wrote down."""
    ledger = tmp_path / "ledger"
    monkeypatch.setenv(shop.LEDGER, str(ledger))

    async def pace(seconds, what):
        clock.advance(seconds)

    worker = await pgqrs.worker("w").workflows(pgqrs.discover_workflows(shop)).create(store)
    large = await shop.order.trigger("anvil", 30).execute(store)
    crashed = await shop.order.trigger("feather", 20).execute(store)
    gallery = await shop.gallery.trigger(4).execute(store)
    with shop.paced(pace):
        await worker.run_until_idle()
    await worker.close()
    with ledger.open("a") as file:
        file.write(f"ship {crashed} 1\n")
    done = RunStatus.SUCCESS
    scene = Scene(
        {large: Expected(done, "with anvil"), crashed: Expected(done, "with feather")}, large, crashed, gallery
    )
    return SimpleNamespace(store=store, ledger=ledger), scene


async def test_a_play_that_ended_as_it_should_has_no_mistakes(played):
    assert await mistakes(*played) == []


@pytest.mark.backends("sqlite")
async def test_a_run_that_ended_otherwise_is_named(played):
    stage, scene = played
    scene.expected[scene.large] = Expected(RunStatus.ERROR, "with anvil")
    scene.expected[scene.crashed] = Expected(RunStatus.SUCCESS, "with a drum")
    scene.expected[999] = Expected(RunStatus.SUCCESS, "")

    found = await mistakes(stage, scene)

    assert len(found) == 3
    assert f"run {scene.large} order ended in SUCCESS" in found[0]
    assert f"run {scene.crashed} order ended in SUCCESS" in found[1]
    assert found[2] == "run 999 is gone"


@pytest.mark.backends("sqlite")
async def test_a_step_that_ran_once_too_often_is_named(played):
    stage, scene = played
    with stage.ledger.open("a") as file:
        file.write(f"charge {scene.crashed} 1\n")

    [found] = await mistakes(stage, scene)

    assert "'charge': 2" in found


# -- a past --------------------------------------------------------------------------------------------------


async def test_a_past_has_everything_that_a_dashboard_shows(store):
    filled = await fill(store, runs=40)

    admin = pgqrs.admin(store)
    assert filled.runs == (await admin.count_runs()).count >= 40
    waiting = await admin.runs(status="paused", limit=500)
    assert sum(run.waiting_for == "approval" for run in waiting) == 3
    assert sum((run.waiting_for or "").startswith("sleep until") for run in waiting) >= 2
    groups = await admin.failures(since=pgqrs.ManualClock().now())
    assert {group.workflow for group in groups} == {"order", "import_feed"}
    assert len(await admin.dead_letters("emails")) == 1
    assert (await admin.queue_metrics("sms")).paused
    counts = await admin.outbox.counts()
    assert counts.published > 0
    assert counts.pending > 0
    assert [each.is_paused for each in await pgqrs.schedules(store).list()] == [False, True, False]
    assert await admin.runs(status="cancelled")
    steps = await admin.steps((await admin.runs(workflow="order", status="success"))[0].run_id)
    assert all(step.completed_at > step.started_at for step in steps if step.step_id in ("reserve", "charge", "ship"))


@pytest.mark.backends("sqlite")
async def test_the_same_seed_gives_the_same_past(store, connect, tmp_path):
    async def past(name, seed):
        config = pgqrs.Config(f"sqlite:///{tmp_path / name}")
        async with pgqrs.connect_with(config, clock=pgqrs.ManualClock()) as made:
            await fill(made, seed=seed, runs=30)
            # Of two schedules that are due at once either may be the first: ids are not compared.
            found = [
                (run.workflow, run.status, run.created_at, run.last_error, run.attributes)
                for run in await pgqrs.admin(made).runs(limit=500)
                # When a child begins among others is up to the worker.
                if run.parent_run_id is None
            ]
            return sorted(found, key=repr)

    first, second, other = await past("a.db", 1), await past("b.db", 1), await past("c.db", 2)

    assert first == second
    assert first != other


@pytest.mark.backends("sqlite")
async def test_a_past_can_be_given_to_a_store_that_is_in_use(live_store):
    await fill(live_store, runs=5)

    [newest] = await pgqrs.admin(live_store).runs(limit=1)
    assert newest.status in set(RunStatus)


async def test_a_past_needs_a_file():
    async with pgqrs.connect("sqlite://:memory:") as store:
        with pytest.raises(pgqrs.ConfigError, match="give fill a store on a file"):
            await fill(store)


# -- processes -----------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
async def test_a_worker_that_cannot_begin_says_why(config, tmp_path):
    (tmp_path / "broken.py").write_text("import pgqrs\n\ndef oops(:\n")
    with (tmp_path / "log").open("wb") as log:
        process = Process.start(
            "worker-of", str(tmp_path / "broken.py"), environment=environment_of(config), output=log, own_session=True
        )
        told = await process.told()
        await process.stop()

    assert "SyntaxError" in told["failed"]
    assert str(tmp_path / "broken.py") in told["failed"]
    assert "runpy" not in told["failed"]
    assert str(tmp_path / "broken.py") in told["files"]


def test_a_secret_is_in_no_argument():
    config = pgqrs.Config("postgresql://ann:S3cr3t@localhost/x")

    assert environment_of(config)["PGQRS_DSN"] == config.dsn


@pytest.mark.backends("sqlite")
async def test_settings_come_out_as_they_went_in(config, monkeypatch):
    wanted = config.with_changes(lease_seconds=7.5, maintenance=False, audit="full", outbox="failed", max_attempts=9)
    for name, value in environment_of(wanted).items():
        monkeypatch.setenv(name, value)

    assert pgqrs.Config() == wanted
