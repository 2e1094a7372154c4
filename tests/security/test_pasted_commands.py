"""Commands that people copy: pasted into a shell, each passes exactly the names that it shows, and does nothing else."""

import ast
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import pgqrs
from pgqrs import errors
from pgqrs.api.run import Run
from pgqrs.cli import app as commands
from pgqrs.cli import exit_codes
from pgqrs.cli.command_tree import nodes
from pgqrs.db.queries import Query
from pgqrs.db.tables import runs as table
from pgqrs.text.names import checked_step_name
from pgqrs.text.shell import command, quoted
from pgqrs.web import app
from pgqrs.web.auth.access import Caller, Scope
from rig.asgi import Browser
from rig.command_line import invoke
from rig.shells import arguments_of, hostile_names

SOURCE = Path(pgqrs.__file__).parent
NAMES = hostile_names(2_000, seed=16)
# What a table can hold, but no queue, workflow or schedule is allowed to be called.
POISON = [*NAMES[:60:3], *NAMES[60::100]]
flow = pgqrs.workflow("flow")


def _is_signal_name(name):
    try:
        return bool(checked_step_name(name))
    except pgqrs.ConfigError:
        return False


# -- the one place where commands are made -------------------------------------------------------------------


# bash always, and those of the others that are here.
@pytest.mark.parametrize("shell", ["bash", *filter(shutil.which, ("zsh", "ksh"))])
def test_a_shell_passes_on_every_value_as_it_is(tmp_path, shell):
    lines = [command("run signal", 5, name) for name in NAMES]

    found = arguments_of(lines, tmp_path / "here", shell=shell)

    wanted = [["run", "signal", *(["--"] if name.startswith("-") else []), "5", name] for name in NAMES]
    assert found == wanted
    printable = [n for n, name in enumerate(NAMES) if name.isprintable()]
    assert len(printable) > 300
    assert [shlex.split(lines[n])[1:] for n in printable] == [wanted[n] for n in printable]


def test_a_command_is_one_printable_line():
    lines = [command("run signal", 5, name, reason=name) for name in NAMES]

    assert [line for line in lines if not line.isprintable()] == []


def test_a_shell_that_does_not_know_the_form_for_control_characters_executes_nothing(tmp_path):
    """dash passes some names on wrongly; no name makes it do anything."""
    lines = [command("run signal", 5, name) for name in NAMES]

    assert len(arguments_of(lines, tmp_path / "sh", shell="dash")) == len(NAMES)


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish_passes_on_what_is_printable_and_executes_nothing(tmp_path):
    """The finding: fish takes a backslash before a quote for part of the text, and the rest of a name was executed."""
    printable = [name for name in NAMES if name.isprintable()][:500]
    others = [name for name in NAMES if not name.isprintable()][:40]

    found = arguments_of([command("run signal", 5, name) for name in printable], tmp_path / "all", shell="fish")

    assert [words[-1] for words in found] == printable
    assert len(printable) == 500
    for name in others:
        # As a line by itself, which it refuses.
        pasted = [shutil.which("fish"), "--no-config", "-c", f"pgqrs; {command('run signal', 5, name)}"]
        done = subprocess.run(pasted, cwd=tmp_path, capture_output=True, check=False, timeout=60)
        assert b"Expected a variable name after this $" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["all"]


def test_options_hold_their_value_whatever_it_begins_with(tmp_path):
    lines = [command("run list", cursor=name) for name in NAMES]

    assert arguments_of(lines, tmp_path / "bash") == [["run", "list", f"--cursor={name}"] for name in NAMES]


def test_bytes_that_are_no_text_come_back_and_a_nul_does_not(tmp_path):
    lines = [command("queue dead", name) for name in ("\udcff", "a\0b", "")]

    assert arguments_of(lines, tmp_path / "bash") == [["queue", "dead", each] for each in ("\udcff", "a\ufffdb", "")]


def test_zsh_would_not_take_a_word_for_a_path():
    assert quoted("=ls") == "'=ls'"


def test_no_command_is_put_together_anywhere_else():
    verbs = "|".join({node.name.split()[1] for node in nodes() if " " in node.name})
    command_and_value = re.compile(rf"pgqrs ({verbs})( [a-z-]+)*[ =]\0")
    found = []
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                text = "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                found += [(file.name, text)] if command_and_value.search(text) else []
    for file in SOURCE.rglob("*.html"):
        text = re.sub(r"\{\{.*?\}\}", "\0", file.read_text(encoding="utf-8"))
        found += [(file.name, each.group()) for each in command_and_value.finditer(text)]

    assert found == []


# -- `why`: the fix is pasted, and carried out ---------------------------------------------------------------


@pytest.fixture(scope="module")
def tree():
    return commands.tree()


@pytest.fixture
def paste(store, config, tree, monkeypatch, tmp_path):
    """Carries out a line that was pasted: a shell says what the words are, and the real command line gets them."""
    monkeypatch.setenv("PGQRS_DSN", config.dsn)
    monkeypatch.setenv("PGQRS_SCHEMA", config.schema)
    count = iter(range(1_000))

    async def carry_out(line, *more):
        [words] = arguments_of([line], tmp_path / f"pasted{next(count)}")
        return await invoke(tree, [*more, *words], monkeypatch)

    return carry_out


@pytest.fixture
def execute(store):
    async def work(handler):
        worker = await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)
        await worker.run_until_idle()
        await worker.close()
        # Another one is there, so that nobody is missed.
        await pgqrs.consumer("w", 0, "flow").handler(handler).create(store)

    return work


def filled_in(line):
    """With a value in the place of its placeholder, as a person writes it."""
    return f"{line.removesuffix(' PAYLOAD')} null" if line.endswith(" PAYLOAD") else line.replace("DATA", "null")


SIGNALS = [name for name in hostile_names(400, seed=3) if _is_signal_name(name)][::10]


@pytest.mark.several_processes
async def test_the_fix_of_a_run_that_waits_for_a_signal_sends_that_signal(store, execute, paste):
    await store.create_workflow("flow")

    async def waiting(ctx, name: str) -> str:
        await ctx.wait_for(name)
        return name

    runs = {await flow.trigger(name).execute(store): name for name in SIGNALS}
    await execute(waiting)
    for run_id in runs:
        why = await (await flow.get_run(run_id, store)).why()
        assert why.cause == "waiting_for_signal"
        said = await paste(filled_in(why.fix))
        assert said.code == 0, (why.fix, said)
    await execute(waiting)

    ended = {run_id: (await flow.get_run(run_id, store)).output() for run_id in runs}
    assert len(SIGNALS) > 15
    assert ended == runs


HOSTILE = "$(touch owned) `touch owned` ';touch owned;' \x1b[2J"


async def _failing(ctx):
    raise pgqrs.PermanentError(HOSTILE)


async def _pausing(ctx):
    await ctx.pause(HOSTILE)


async def _before(ctx):
    await ctx.step("one", dict)
    await ctx.sleep(60)


async def _after(ctx):
    await ctx.step("two", dict)


@pytest.fixture
async def run_id(store):
    await store.create_workflow("flow")
    return await flow.trigger().execute(store)


async def _is_ready_after_its_fix(store, run_id, paste, cause):
    before = await (await flow.get_run(run_id, store)).why()
    said = await paste(filled_in(before.fix), "--yes")

    assert before.cause == cause
    assert said.code == 0, said
    assert (await (await flow.get_run(run_id, store)).why()).cause == "ready"


@pytest.mark.several_processes
@pytest.mark.parametrize(("cause", "handler"), [("failed", _failing), ("waiting_for_person", _pausing)])
async def test_the_fix_of_a_run_that_stopped_gets_it_going(store, run_id, execute, paste, cause, handler):
    await execute(handler)

    await _is_ready_after_its_fix(store, run_id, paste, cause)


@pytest.mark.several_processes
@pytest.mark.parametrize(
    ("cause", "verb"), [("paused", flow.pause), ("cancelled", flow.cancel), ("deleted", flow.delete)]
)
async def test_the_fix_of_a_run_that_a_person_stopped_gets_it_going(store, run_id, paste, cause, verb):
    await pgqrs.consumer("w", 0, "flow").handler(_after).create(store)
    await verb(run_id, store, reason=HOSTILE)

    await _is_ready_after_its_fix(store, run_id, paste, cause)


@pytest.mark.several_processes
async def test_the_fix_of_a_parked_run_gets_it_going(store, run_id, execute, paste):
    await execute(_before)
    await flow.resume(run_id, store)
    await execute(_after)

    await _is_ready_after_its_fix(store, run_id, paste, "parked")


# -- rows that were written past the library -----------------------------------------------------------------

_RENAMES = {
    noun: Query(f"poison_{noun}", f"update {table} set {column} = :new where {column} = :old")
    for noun, table, column in (
        ("queue", "pgqrs_queues", "name"),
        ("workflow", "pgqrs_workflows", "name"),
        ("schedule", "pgqrs_schedules", "name"),
        ("step", "pgqrs_workflow_steps", "step_id"),
        ("worker", "pgqrs_workers", "hostname"),
    )
}
_FAILED_LOOK = Query("poison_look", "update pgqrs_schedules set last_error = 'broken'")
_TRIED_OFTEN = Query("poison_attempts", "update pgqrs_messages set attempts = max_attempts where run_id is null")
_NOT_TRIED = Query("poison_no_attempts", "update pgqrs_messages set attempts = 0 where run_id is null")


@pytest.fixture
async def poisoned(store, execute, clock):
    """A run that waits for a signal, one whose queue is paused, a dead letter and a schedule that cannot be read;
    a function that gives all of them, and their worker, another name."""
    for name in ("flow", "other"):
        await store.create_workflow(name)
    await store.create_queue("tasks")
    await pgqrs.schedules(store).create("nightly", "flow", every=3600)
    await (await store.producer("tasks")).enqueue({})
    runs = [await flow.trigger().execute(store), await pgqrs.workflow("other").trigger().execute(store)]

    async def handler(ctx):
        await ctx.wait_for("go")

    await execute(handler)
    await pgqrs.admin(store).pause_queue("other")
    await store.database.execute(_FAILED_LOOK)
    clock.advance(61)
    now = {"step": "wait_for:go", "queue": "other", "workflow": "other", "schedule": "nightly", "worker": "w"}

    async def rename(name):
        for noun, old in now.items():
            new = f"wait_for:{name}" if noun == "step" else name
            await store.database.execute(_RENAMES[noun], old=old, new=new)
            now[noun] = new
        return [await Run(await table.get(await store.ready(), run_id), store).why() for run_id in runs]

    return rename


@pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))
async def test_why_and_doctor_quote_names_that_no_api_would_have_let_in(store, poisoned, tmp_path):
    lines, wanted = [], []
    for name in POISON:
        dashes = ["--"] if name.startswith("-") else []
        signal, paused = await poisoned(name)
        found = {each.code: each for each in (await pgqrs.admin(store).doctor()).findings}
        if not {"@", "#"} & set(name):
            lines.append(signal.fix)
            approval = ["run", "approve", str(signal.run_id)]
            signalled = ["run", "signal", *dashes, str(signal.run_id), name, "PAYLOAD"]
            wanted.append(approval if "approv" in name.lower() else signalled)
        lines += [paused.fix, found["paused_queues"].fix, found["schedules"].fix]
        wanted += 2 * [["queue", "resume", *dashes, name]] + [["schedule", "get", *dashes, name]]

    assert arguments_of(lines, tmp_path / "bash") == wanted


@pytest.mark.backends("sqlite")
@pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))
@pytest.mark.parametrize(("made", "code"), [(_TRIED_OFTEN, "dead_letters"), (_NOT_TRIED, "unserved")])
async def test_doctor_quotes_the_names_of_plain_queues(store, clock, tmp_path, made, code):
    await store.create_queue("tasks")
    await (await store.producer("tasks")).enqueue({})
    clock.advance(600)
    await store.database.execute(made)
    old, lines = "tasks", []
    for name in POISON:
        await store.database.execute(_RENAMES["queue"], old=old, new=name)
        old = name
        [finding] = [each for each in (await pgqrs.admin(store).doctor()).findings if each.code == code]
        lines.append(finding.fix)

    before = ["a", "consumer", "of", "queue"] if code == "unserved" else ["queue", "dead"]
    dashes = [["--"] if name.startswith("-") and code == "dead_letters" else [] for name in POISON]
    assert arguments_of(lines, tmp_path / "bash") == [
        [*before, *dash, name] for dash, name in zip(dashes, POISON, strict=True)
    ]


@pytest.mark.backends("sqlite")
@pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))
async def test_the_dashboard_copies_the_command_as_it_is(store, poisoned, tmp_path):
    async def reader(request):
        return Caller("ann", frozenset({Scope.READ}))

    browser = Browser(app(store, authorize=reader))
    lines, wanted = [], []
    for name in POISON:
        for why in await poisoned(name):
            page = await browser.get(f"/runs/{why.run_id}")
            assert page.status == 200
            lines += [each for each in page.document.attributes("data-copy") if not each.isdecimal()]
            wanted.append(why.fix)

    assert lines == wanted
    assert len(arguments_of(lines, tmp_path / "bash")) == len(lines)


@pytest.mark.backends("sqlite")
@pytest.mark.breaks(*(f"I{n}" for n in range(1, 30)))
async def test_a_terminal_shows_the_command_as_it_is(store, poisoned, config, tree, monkeypatch, tmp_path):
    monkeypatch.setenv("PGQRS_DSN", config.dsn)
    lines, wanted = [], []
    for name in POISON[::8]:
        for why in await poisoned(name):
            said = await invoke(tree, ["run", "why", why.run_id], monkeypatch)
            lines += re.findall(r"^to get it going: (.*)$", said.out, re.MULTILINE)
            wanted.append(why.fix)
        doctor = await invoke(tree, ["doctor"], monkeypatch)
        lines += re.findall(r"^ +fix: (pgqrs schedule .*)$", doctor.out, re.MULTILINE)
        wanted.append(command("schedule get", name))

    assert lines == wanted


# -- what an error advises -----------------------------------------------------------------------------------


def test_what_an_error_advises_names_what_is_missing(tmp_path):
    lines = [
        exit_codes.way_out(kind(name)) for name in NAMES for kind in (errors.QueueNotFound, errors.WorkflowNotFound)
    ]
    found = arguments_of(lines, tmp_path / "bash")

    assert [words[-1] for words in found] == [name for name in NAMES for _ in range(2)]


def test_what_an_error_advises_holds_no_name_in_a_comment():
    """An interactive zsh knows no comments: it would expand what stands there."""
    advised = [exit_codes.way_out(errors.NoActiveWorker(name)) for name in NAMES]

    assert set(advised) == {"pgqrs worker run YOUR_APP"}
