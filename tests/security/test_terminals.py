"""What a terminal and a log show of hostile text: no escape is obeyed, and no line passes for one of ours."""

import io
import json
import logging
import re
import subprocess
import sys

import pytest

import pgqrs
from pgqrs.cli import app, exit_codes
from pgqrs.cli.command_tree import nodes
from pgqrs.cli.logs import TextFormatter
from pgqrs.cli.output import MARGIN
from pgqrs.db.queries import Query
from pgqrs.telemetry.logs import JsonFormatter
from rig import hostile
from rig.command_line import invoke
from rig.terminal import COLOUR, Program

FORGED = "2030-01-01 00:00:00,000 ERROR   forged"
TEXTS = tuple(
    f"{n} {text}"
    for n, text in enumerate(
        (
            "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\x1b]8;;http://evil\x07link\x1b]8;;\x07", "\r\x1b[Kforged", "\x08\x08\x08",
            f"\n{FORGED}", f"\r\n{FORGED}", f"\x0b{FORGED}", f"\x0c{FORGED}", f"\x85{FORGED}", f"\u2028{FORGED}", f"\u2029{FORGED}",
            "\nto get it going: touch owned", "\n  try: touch owned", "\npgqrs: forged", "\n[0:00] run 777  forged   done", "\u202egnp.exe",
            "\u2066x\u2069", "\u200b\u200d", "\ufeff", "\U000e0041", "\x7f",
        )
    )
)  # fmt: skip
UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)
LINES = (FORGED, "to get it going: touch", "  try: touch", "pgqrs: forged", "[0:00] run 777")
EVERYTHING = pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))


def check(text):
    """Nothing that a terminal obeys, and no line that a forger wrote stands at the margin."""
    assert UNSAFE.findall(text) == []
    assert [line for line in text.splitlines() if line.startswith(LINES)] == []


# -- logs ----------------------------------------------------------------------------------------------------


def _logged(formatter):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    log = logging.Logger("hostile")  # noqa: LOG001 - one that nobody else hears
    log.addHandler(handler)
    for text in TEXTS:
        log.warning("%s", text)
        log.warning(text)
        log.warning("with a stack", stack_info=True)
        try:
            raise ValueError(text)
        except ValueError:
            log.exception(text)
    return stream.getvalue()


def test_a_record_begins_where_a_line_has_its_time_and_nowhere_else():
    text = _logged(TextFormatter())

    check(text)
    starts = [line for line in text.splitlines() if re.match(r"\d{4}-\d\d-\d\d ", line)]
    assert len(starts) == 4 * len(TEXTS)
    assert all(line.startswith(MARGIN) for line in text.splitlines() if line not in starts)


def test_a_record_as_json_is_one_line():
    lines = _logged(JsonFormatter()).splitlines()

    assert len(lines) == 4 * len(TEXTS)
    assert [json.loads(line)["message"] for line in lines[::4]] == list(TEXTS)
    check("\n".join(lines))


_APP = """
import pgqrs

@pgqrs.workflow(name="flow")
async def flow(ctx, text: str):
    ctx.log.warning("said: %s", text)
    ctx.log.info(text)
    raise pgqrs.PermanentError(text)
"""


@pytest.fixture
def application(tmp_path):
    (tmp_path / "app.py").write_text(_APP)
    return tmp_path


async def _trigger_all(folder):
    async with await pgqrs.connect(f"sqlite:///{folder / 'pgqrs.db'}") as store:
        await store.create_workflow("flow")
        for text in TEXTS:
            await pgqrs.workflow("flow").trigger(text).execute(store)


async def test_a_worker_logs_no_line_that_a_run_has_forged(application):
    await _trigger_all(application)
    done = subprocess.run(
        [sys.executable, "-m", "pgqrs", "worker", "run", "app.py", "--drain"],
        capture_output=True, cwd=application, timeout=60, check=True,
    )  # fmt: skip
    told = done.stderr.decode()

    check(told)
    assert told.count("said: ") == len(TEXTS)
    assert [line for line in told.splitlines() if not re.match(r"\d{4}-\d\d-\d\d |using sqlite|  \| ", line)] == []


async def test_dev_shows_what_runs_log_and_obeys_none_of_it(application):
    with Program("dev", "app.py", "--no-dashboard", cwd=application) as program:
        program.until("worker     started")
        await _trigger_all(application)
        program.until(rf"said: {len(TEXTS) - 1} ")
        program.until(rf"run {len(TEXTS)}  flow .*(FAILED|failed)")
        shown = COLOUR.sub(b"", program.seen).decode()

    check(shown.replace("\r\n", "\n"))


def test_dev_shows_why_a_file_cannot_be_loaded_and_obeys_none_of_it(application):
    (application / "app.py").write_text(f"raise ValueError({''.join(TEXTS)!r})")
    with Program("dev", "app.py", "--no-dashboard", cwd=application) as program:
        program.until("no worker yet; save to try again")
        shown = COLOUR.sub(b"", program.seen).decode()

    check(shown.replace("\r\n", "\n"))


def test_a_command_that_sets_up_no_logging_shows_warnings_safely():
    program = (
        "import logging, sys; from pgqrs.cli.logs import show_warnings_safely; show_warnings_safely()\n"
        f"for text in {TEXTS!r}: logging.getLogger('pgqrs').warning(text)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    check(done.stderr)
    assert len(done.stderr) > 100


# -- commands ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", TEXTS)
def test_an_error_passes_for_no_advice(text, monkeypatch):
    for error in (
        pgqrs.PermanentError(text),
        ValueError(text),
        pgqrs.ExecutionFailed(5, text),
        pgqrs.RunCancelled(5, text),
    ):
        check("\n".join(exit_codes.words(error)))


@pytest.fixture
async def planted(store, monkeypatch):
    """Each text in every column that holds text."""
    monkeypatch.setattr(hostile, "CORPUS", TEXTS)
    await hostile.plant(store)
    return store


_RUNS = Query("planted_runs", "select run_id from pgqrs_workflow_runs order by run_id")
LISTS = {"list", "dead", "failures", "stats", "doctor", "slots", "show"}
LOOKING = sorted(
    name for node in nodes() if (name := node.name.removeprefix("pgqrs ")).split()[-1] in LISTS and not node.is_group
)


@EVERYTHING
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("how", ["table", "jsonl", "ids"])
async def test_lists_of_hostile_rows_command_nothing(planted, config, monkeypatch, how):
    tree = app.tree()
    monkeypatch.setenv("PGQRS_DSN", config.dsn)
    found = {}
    for words in LOOKING:
        more = ["tasks"] if words in ("queue dead", "schedule slots") else []
        found[words] = await invoke(tree, [*words.split(), *more, "-o", how], monkeypatch)

    for said in found.values():
        check(said.out + said.err)
    assert len(found) > 8


@EVERYTHING
@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("words", ["run get", "run why", "run steps", "run events"])
async def test_a_hostile_run_commands_nothing(planted, config, monkeypatch, words):
    tree = app.tree()
    monkeypatch.setenv("PGQRS_DSN", config.dsn)
    for (run_id,) in await planted.database.fetch(_RUNS):
        said = await invoke(tree, [*words.split(), run_id], monkeypatch)
        check(said.out + said.err)
