"""Manners of the whole command line: help, hints, formats, prompts, pipes, signals, terminals."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pgqrs
from pgqrs.api.operations.json_view import to_json
from pgqrs.cli import completion, exit_codes, output, reference, state
from pgqrs.cli.command_tree import nodes
from pgqrs.cli.demo.seed_data import fill
from pgqrs.cli.examples import EXAMPLES
from pgqrs.db.tables import runs as table
from rig.terminal import COLOUR, Program

ROOT = Path(__file__).parent.parent.parent
NODES = {node.name.removeprefix("pgqrs").strip(): node for node in nodes()}
LEAVES = {path: node for path, node in NODES.items() if not node.is_group}
LISTS = {"list", "steps", "events", "dead", "next", "slots", "peek", "failures", "show"}
LOOKING = sorted(path for path in LEAVES if path.split()[-1] in {*LISTS, "get", "stats"})

flow = pgqrs.workflow("flow")


def pgqrs_command(*words, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "pgqrs", *words],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment}, check=False,
    )  # fmt: skip


# -- help ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_and_every_option_says_what_it_is_for(path):
    node = LEAVES[path]

    assert node.help
    assert [each.names for each in node.parameters if each.is_option and not each.help] == []


def test_every_command_has_an_example():
    assert set(EXAMPLES) == set(LEAVES)


@pytest.mark.parametrize("path", LEAVES)
def test_the_examples_can_be_called_so(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").touch()

    for example in EXAMPLES[path]:
        calls = [part for part in _calls(shlex.split(example)) if part[0] == "pgqrs"]
        assert calls, example
        for _, *words in calls:
            depth = 2 if " ".join(words[:2]) in LEAVES else 1
            LEAVES[" ".join(words[:depth])].command.make_context("pgqrs", words[depth:])


def _calls(words):
    """The commands of a pipe, without settings before them and files after them."""
    found = [[]]
    for word in words:
        if word == "|":
            found.append([])
        elif found[-1] or "=" not in word:
            found[-1].append(word)
    return [call[: call.index(">")] if ">" in call else call for call in found]


def test_the_reference_is_that_of_the_commands():
    assert (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8") == reference.page(), (
        "run: python -m pgqrs.cli.reference"
    )


def test_help_imports_nothing_that_takes_long():
    program = """
import sys
sys.argv = ["pgqrs", "--help"]
from pgqrs.cli import main
try:
    main()
except SystemExit:
    print(*sorted({"asyncio", "msgspec", "rich", "sqlite3", "pgqrs.api", "pgqrs.engine"} & set(sys.modules)), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == ""
    assert all(f"  {path.split()[0]} " in done.stdout for path in LEAVES)


@pytest.mark.parametrize(
    ("words", "near"),
    [
        (["rnu", "list"], "run"),
        (["run", "lst"], "list"),
        (["run", "list", "--stauts", "error"], "--status"),
        (["queue", "prge", "x"], "purge"),
        (["why", "2"], "'pgqrs run why'"),
        (["approve", "2"], "'pgqrs run approve'"),
        (["queue", "why", "2"], "'pgqrs run why'"),
        (["run", "doctor"], "'pgqrs doctor'"),
        (["restrat", "2"], "'pgqrs run restart'"),
    ],
)
def test_near_misses_are_suggested(words, near):
    done = pgqrs_command(*words)

    assert done.returncode == 2
    assert near in done.stderr.splitlines()[-1]


def test_a_verb_that_several_nouns_have_names_each_of_them():
    done = pgqrs_command("pause", "x")

    assert all(f"'pgqrs {noun} pause'" in done.stderr for noun in ("run", "workflow", "queue", "schedule"))


def test_a_word_that_is_like_no_command_suggests_none():
    done = pgqrs_command("xylophone")

    assert done.returncode == 2
    assert "Did you mean" not in done.stderr


# -- errors --------------------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("words", "code", "what", "way"),
    [
        (["run", "trigger", "nowhere"], 4, "no workflow named 'nowhere'", "pgqrs workflow create nowhere"),
        (["run", "trigger", "flwo"], 4, "did you mean 'flow'", "pgqrs workflow list"),
        (["queue", "get", "nowhere"], 4, "no queue named 'nowhere'", "pgqrs queue create nowhere"),
        (["schedule", "get", "nowhere"], 4, "no schedule named 'nowhere'", "pgqrs schedule list"),
        (["run", "get", "999"], 4, "no run 999", "pgqrs run list"),
        (["run", "result", "1"], 7, "run 1 failed", "pgqrs run why 1"),
        (["run", "trigger", "flow", "2", "--key", "k"], 5, "belongs to run 1", "pgqrs run get 1"),
        (["run", "list", "-o", "xml"], 2, "there is no format 'xml'", None),
    ],
)
async def test_an_error_says_what_is_wrong_and_which_command_helps(store, command, words, code, what, way):
    await store.create_workflow("flow")
    await flow.trigger(1, idempotency_key="k").execute(store)

    async def fails(ctx, params):
        raise pgqrs.PermanentError("no")

    worker = await pgqrs.consumer("w", 0, "flow").handler(fails).create(store)
    await worker.run_until_idle()
    await worker.close()

    said = await command(*words)

    assert said.code == code
    assert what in said.err
    assert (f"  try: {way}" in said.err) if way else "try:" not in said.err


def test_a_database_that_is_away_names_the_way_out():
    done = pgqrs_command("run", "list", PGQRS_DSN="postgresql://ann:S3cr3t@127.0.0.1:1/x", PGQRS_RETRY_SECONDS="0")

    assert done.returncode == 9
    assert "try: pgqrs config show" in done.stderr
    assert "S3cr3t" not in done.stderr


def test_the_unexpected_is_one_line_and_with_v_its_trace(monkeypatch, capsys):
    error = ValueError("no \x1b[2J wonder")

    exit_codes.tell(error)
    short = capsys.readouterr().err
    monkeypatch.setattr(state, "_state", state.State(verbose=True))
    exit_codes.tell(error)
    long = capsys.readouterr().err

    assert short == "pgqrs: unexpected ValueError: no \\x1b[2J wonder; -v shows where\n"
    assert "pgqrs: unexpected ValueError" in long


def test_every_exit_code_is_explained():
    assert sorted(exit_codes.MEANINGS) == [*range(10), 130]


# -- formats -------------------------------------------------------------------------------------------------

ARGUMENTS = {
    "run": "1",
    "workflow": "order",
    "worker": "1",
    "queue": "emails",
    "schedule": "hourly-report",
}


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("path", LOOKING)
async def test_every_command_that_looks_has_every_format(live_store, command, path, tmp_path, monkeypatch):
    monkeypatch.setenv("PGQRS_TOKENS", str(tmp_path / "pgqrs.tokens"))
    await fill(live_store, runs=8)
    if path == "token list":
        await command("token", "create", "ann", "--scope", "read")
    words = [*path.split(), *([ARGUMENTS[path.split()[0]]] if LEAVES[path].parameters[0].required else [])]

    as_json = await command(*words, "-o", "json")
    as_lines = await command(*words, "-o", "jsonl")
    as_ids = await command(*words, "-o", "ids")
    as_table = await command(*words)

    assert [each.code for each in (as_json, as_lines, as_ids, as_table)] == [0] * 4, as_json.err + as_ids.err
    is_list = path.split()[-1] in LISTS
    found = as_json.json["items"] if is_list else [as_json.json]
    assert found
    # Ages grow while we look.
    assert len([json.loads(line) for line in as_lines.out.splitlines()]) == len(found)
    assert len(as_ids.out.split("\n")) - 1 == len(found)
    assert as_table.out


async def test_json_is_the_body_of_the_api(store, command):
    await store.create_workflow("flow")
    run_id = await flow.trigger({"n": 1}, attributes={"a": "b"}).execute(store)
    db = await store.ready()

    got = await command("run", "get", run_id, "-o", "json")
    listed = await command("run", "list", "-o", "json")
    assert got.json == to_json(await table.get(db, run_id))
    assert listed.json == {"items": to_json(await pgqrs.admin(store).runs()), "next_cursor": None}

    acted = await command("run", "pause", run_id, "-o", "json")
    assert acted.json == to_json(await table.get(db, run_id))
    assert "is paused" in acted.err


@pytest.mark.backends("sqlite")
async def test_words_stay_out_of_data(store, command):
    await store.create_queue("tasks")

    said = await command("queue", "pause", "tasks", "-o", "json")

    assert (said.code, said.out) == (0, "")
    assert "queue tasks is paused" in said.err


# -- terminals -----------------------------------------------------------------------------------------------

HOSTILE = "\x1b]0;owned\x07 \x9b2J \u202eevil\u2066 \x7f :warning: [red]x[/] \u2028end"


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    "words",
    [
        ["run", "list"],
        ["run", "get", "1"],
        ["run", "get", "1", "-o", "json"],
        ["run", "list", "-o", "jsonl"],
        ["run", "steps", "1"],
        ["run", "events", "1"],
        ["run", "why", "1"],
        ["run", "watch", "1"],
        ["run", "result", "1"],
        ["run", "result", "2"],
        ["failures"],
        ["queue", "list"],
        ["worker", "list"],
    ],
)
async def test_what_users_wrote_cannot_command_a_terminal(store, config, words):
    await store.create_workflow("flow")
    await flow.trigger_many([HOSTILE, "fine"], attributes={"who": HOSTILE}).execute(store)

    async def handler(ctx, params):
        if params == "fine":
            return HOSTILE
        await ctx.step("look", lambda: HOSTILE)
        raise pgqrs.PermanentError(HOSTILE)

    worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
    await worker.run_until_idle()
    await worker.close()

    with Program(*words, at_terminal=True, PGQRS_DSN=config.dsn) as program:
        program.end()
    plain = COLOUR.sub(b"", program.seen)

    assert plain.strip()
    assert re.findall(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", plain) == []
    assert not {"\x9b", "\u202e", "\u2066", "\u2028"} & set(plain.decode())


@pytest.mark.backends("sqlite")
async def test_pictures_and_markup_stay_text_at_a_terminal(store, config):
    await store.create_workflow("flow")
    await flow.trigger(None).execute(store)
    await flow.pause(1, store, reason=":warning: [red]x[/]")

    with Program("run", "list", at_terminal=True, PGQRS_DSN=config.dsn) as program:
        assert program.end() == 0

    assert ":warning: [red]x[/]" in COLOUR.sub(b"", program.seen).decode()
    assert b"\x1b[33mPAUSED" in program.seen


@pytest.mark.backends("sqlite")
async def test_a_terminal_without_colour_is_left_alone(store, config):
    await store.create_workflow("flow")
    await flow.trigger(None).execute(store)

    with Program("run", "list", "--no-color", at_terminal=True, PGQRS_DSN=config.dsn) as program:
        assert program.end() == 0

    assert b"\x1b" not in program.seen


def test_json_keeps_its_value_whatever_is_escaped():
    value = {HOSTILE: [HOSTILE, "\U000e0041", "plain ü"]}

    shown = output.dumps(value)

    assert json.loads(shown) == value
    assert "plain ü" in shown
    assert not {"\x7f", "\x9b", "\u202e", "\U000e0041"} & set(shown)


# -- prompts and progress ------------------------------------------------------------------------------------


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 1, 3), ("y\n", 0, 0), ("\x03", 130, 3)])
async def test_a_terminal_is_asked_before_what_is_hard_to_undo(store, config, answer, code, left):
    await store.create_workflow("flow")
    await flow.trigger_many([None] * 3).execute(store)

    with Program("run", "cancel", "--status", "pending", at_terminal=True, PGQRS_DSN=config.dsn) as program:
        program.until(r"cancel 3 run\(s\)\?")
        program.send(answer)
        assert program.end() == code

    assert (await pgqrs.admin(store).count_runs(status="pending")).count == left


@pytest.mark.backends("sqlite")
async def test_long_work_shows_a_bar_where_somebody_sees_it(store, config):
    await store.create_workflow("flow")
    await flow.trigger_many([None] * 6).execute(store)

    done = pgqrs_command(
        "run", "cancel", "--workflow", "flow", "--status", "pending", "--dry-run", PGQRS_DSN=config.dsn
    )
    with Program("run", "cancel", "--workflow", "flow", "--yes", at_terminal=True, PGQRS_DSN=config.dsn) as program:
        assert program.end() == 0

    assert "━" not in done.stdout + done.stderr
    assert "━" in program.text
    assert "6/6" in program.text


# -- pipes and signals ---------------------------------------------------------------------------------------


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    ours, its = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pgqrs", "schema", "sql"],
            stdout=its,
            stderr=subprocess.PIPE,
            check=False,
            cwd=tmp_path,
        )
    finally:
        os.close(its)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.backends("sqlite")
async def test_ctrl_c_is_130(store, config):
    await store.create_workflow("flow")
    await flow.trigger(None).execute(store)

    with Program("run", "watch", "1", PGQRS_DSN=config.dsn) as program:
        program.until("created")
        program.signal(signal.SIGINT)
        assert program.end() == 130

    assert "Traceback" not in program.text


# -- completion ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("pgqrs q", ["queue"]),
        ("pgqrs run re", ["result", "reject", "resume", "reset", "restore", "restart", "retry-children"]),
        ("pgqrs -d sqlite:///x.db run list --sta", ["--status"]),
        ("pgqrs run list $(touch owned) --sta", ["--status"]),
    ],
)
def test_completion_knows_the_tree_and_runs_nothing(line, found, tmp_path):
    script = tmp_path / "completion.bash"
    script.write_text(completion.script("bash"))
    words = " ".join(shlex.quote(word) for word in line.split(" "))
    program = f"""
source {shlex.quote(str(script))}
PATH=
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_pgqrs
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["/bin/bash", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.split() == found
    assert (done.stderr, sorted(tmp_path.iterdir())) == ("", [script])


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_a_completion_script_never_calls_the_program(shell):
    script = completion.script(shell)

    assert "eval" not in script
    assert not re.search(r"\$\((?!compgen)|`|\bpgqrs\s+(run|queue)\s+\w+\s*\)", script)


def test_an_unknown_shell_is_refused():
    assert pgqrs_command("completion", "csh").returncode == 2
