"""The linter: every rule by the code that its page shows, and what must not be found."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pgqrs.cli.app import tree
from pgqrs.lint import lint_files, lint_source, python_files
from pgqrs.lint.output import shown
from pgqrs.lint.rules import RULES

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/reference/lint.md").read_text(encoding="utf-8")
RULE = re.compile(r"^## (PGQ\d+): (.*?)$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SNIPPET = re.compile(r"^```py\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENTED = {code: (title, SNIPPET.findall(text)) for code, title, text in RULE.findall(PAGE)}


def codes(source):
    return [finding.code for finding in lint_source(source)]


def in_body(line, *, imports="", kind="async def"):
    return f"import pgqrs\n{imports}\n@pgqrs.workflow\n{kind} flow(ctx, params):\n    {line}\n"


def test_every_rule_is_on_its_page_and_no_other():
    assert {code: title for code, (title, _) in DOCUMENTED.items()} == {rule.code: rule.title for rule in RULES}


@pytest.mark.parametrize("code", list(DOCUMENTED))
def test_the_page_shows_code_that_breaks_a_rule_and_code_that_does_not(code):
    bad, good = DOCUMENTED[code][1]

    assert codes(bad) == [code]
    assert codes(good) == []


@pytest.mark.parametrize(
    ("code", "imports", "line"),
    [
        ("PGQ101", "import datetime", "return datetime.datetime.utcnow()"),
        ("PGQ101", "import datetime as d", "return d.date.today()"),
        ("PGQ101", "from time import time as clock", "return clock()"),
        ("PGQ101", "import time", "await ctx.step('a', fetch, time.time())"),
        ("PGQ101", "import time", "return [await ctx.step('a', fetch) for _ in range(int(time.time()))]"),
        ("PGQ102", "from random import shuffle", "shuffle(params)"),
        ("PGQ102", "import secrets", "return secrets.token_hex()"),
        ("PGQ102", "import numpy as np", "return np.random.default_rng()"),
        ("PGQ103", "from uuid import uuid4 as new", "return str(new())"),
        ("PGQ104", "import os", "return os.environ.get('HOME')"),
        ("PGQ104", "from os import environ as e", "return e['HOME']"),
        ("PGQ104", "import os", "return os.getenv('HOME')"),
        ("PGQ105", "", "open(params)"),
        ("PGQ105", "from pathlib import Path", "return Path(params).read_text()"),
        ("PGQ105", "import urllib.request", "urllib.request.urlopen(params)"),
        ("PGQ105", "import subprocess as sp", "sp.run(['ls'])"),
        ("PGQ105", "import httpx", "return await httpx.AsyncClient().get(params)"),
        ("PGQ106", "import threading", "threading.Thread(target=print).start()"),
        ("PGQ106", "from concurrent.futures import ProcessPoolExecutor", "ProcessPoolExecutor()"),
        ("PGQ107", "import time", "time.sleep(5)"),
        ("PGQ108", "import asyncio", "await asyncio.wait(params, return_when=asyncio.FIRST_COMPLETED)"),
        ("PGQ110", "from queue import PriorityQueue as Jobs", "jobs = Jobs()"),
        ("PGQ110", "import queue", "jobs = queue.SimpleQueue()"),
        ("PGQ111", "import asyncio", "await asyncio.wait_for(ctx.wait_for('go'), 5)"),
        ("PGQ111", "import asyncio", "await asyncio.wait_for(ctx.step('a', fetch), timeout=5)"),
        ("PGQ111", "import asyncio", "async with asyncio.timeout(5):\n        await ctx.step('a', fetch)"),
        ("PGQ111", "from asyncio import timeout_at", "async with timeout_at(5):\n        await ctx.sleep(9)"),
        ("PGQ111", "import anyio", "with anyio.move_on_after(5):\n        await ctx.sleep(9)"),
        ("PGQ111", "import asyncio", "await asyncio.wait(params, timeout=5)"),
        ("PGQ201", "", "ctx.sleep(5)"),
        ("PGQ201", "", "return ctx.step('a', fetch)"),
        ("PGQ201", "", "later = ctx.step('a', fetch)"),
        ("PGQ201", "", "if ctx.step('a', fetch):\n        pass"),
        ("PGQ201", "", "return 1 + ctx.step('a', fetch)"),
        ("PGQ201", "", "return await ctx.step('b', fetch, f'{ctx.step(1, fetch)}')"),
        ("PGQ201", "", "return ctx.step('a', fetch).name"),
        ("PGQ201", "", "return ctx.step('a', fetch)['name']"),
        ("PGQ201", "", "ctx.first(ctx.sleep(5), ctx.wait_for('go'))"),
        ("PGQ201", "", "child = await ctx.spawn('other')\n    child.result()"),
        ("PGQ201", "@pgqrs.step\nasync def fetch(): ...", "fetch()"),
        ("PGQ201", "@pgqrs.step\ndef fetch(): ...", "return fetch() or 1"),
        ("PGQ201", "@pgqrs.workflow\nasync def other(n): ...", "other(3)"),
        ("PGQ202", "", "return [await ctx.step('a', fetch, x) for x in {1, 2}]"),
        ("PGQ203", "", "return await ctx.step('a', lambda: (x for x in params))"),
        ("PGQ203", "", "return {'f': lambda: 1}"),
        ("PGQ203", "import threading", "await ctx.spawn('other', threading.Lock())"),
    ],
)
def test_found_under_whatever_name_it_was_imported(code, imports, line):
    assert set(codes(in_body(line, imports=imports))) == {code}


@pytest.mark.parametrize(
    ("imports", "line"),
    [
        ("", "return ctx.first(ctx.wait_for('x'), lambda: ctx.sleep(9))"),
        ("", "return ctx.first(late=ctx.sleep(9))"),
        ("", "ctx.gather(ctx.step('a', fetch), return_exceptions=True)"),
        ("", "ctx.gather(*[ctx.step('a', fetch, each) for each in params])"),
        ("", "ctx.gather(*(ctx.step('a', fetch, each) for each in params))"),
        ("", "ctx.gather(*[lambda: ctx.sleep(1), ctx.sleep(2)][:2], *(ctx.sleep(3),))"),
        ("", "child = ctx.spawn('other')\n    return ctx.first(child.result(), lambda: ctx.sleep(9))"),
        ("@pgqrs.step\ndef fetch(): ...", "ctx.gather(fetch(), fetch)"),
        ("@pgqrs.workflow\ndef other(n): ...", "ctx.gather(other(1))"),
    ],
)
def test_calls_in_place_of_functions_are_found_in_plain_bodies(imports, line):
    assert codes(in_body(line, imports=imports, kind="def")) == ["PGQ206"]


@pytest.mark.parametrize(
    ("kind", "imports", "line"),
    [
        ("def", "", "return ctx.first(lambda: ctx.wait_for('x'), lambda: ctx.sleep(9))"),
        ("def", "", "ctx.gather(*(lambda each=each: ctx.step('a', fetch, each) for each in params))"),
        ("def", "", "ctx.gather(work(ctx), parts[0])"),
        ("def", "@pgqrs.step\ndef fetch(): ...", "ctx.gather(fetch, fetch)"),
        ("def", "", "ctx.step('a', fetch, ctx.step('b', fetch))"),
        ("async def", "", "await ctx.first(ctx.wait_for('x'), ctx.sleep(9))"),
        ("async def", "", "await ctx.gather(*[ctx.step('a', fetch, each) for each in params])"),
    ],
)
def test_functions_and_awaited_calls_are_not_found(kind, imports, line):
    assert codes(in_body(line, imports=imports, kind=kind)) == []


@pytest.mark.parametrize(
    ("imports", "line"),
    [
        ("import asyncio", "await ctx.step('a', lambda: asyncio.wait_for(fetch(), 5))"),
        ("import asyncio", "gate = asyncio.Semaphore(3)"),
        ("import asyncio", "await asyncio.wait(params)"),
        ("import asyncio", "await asyncio.wait(params, timeout=None)"),
        # Given to a step, not called here.
        ("import time", "return await ctx.step('a', time.time)"),
        ("import time", "return await ctx.step('a', lambda: time.time())"),
        ("import random", "dice = random.Random(7)"),
        ("import uuid", "return uuid.uuid5(uuid.NAMESPACE_URL, 'a')"),
        ("from datetime import datetime", "return datetime.fromisoformat(params)"),
        # Names of the function's own.
        ("import random", "random = await ctx.random()\n    return random.choice"),
        ("import time", "for time in params:\n        time.time()"),
        # Somebody else's names.
        ("", "return params.time() or ctx.now"),
        ("from mine import time", "return time.time()"),
        ("", "return await ctx.step('sort', sort, lambda row: row.key)"),
        ("", "print('again'); ctx.log.info('again')"),
        ("import asyncio", "await asyncio.gather(ctx.step('a', fetch), ctx.step('b', fetch))"),
        ("import asyncio", "task = asyncio.create_task(ctx.step('a', fetch))\n    await task"),
        ("", "for name in set(params):\n        ctx.log.info(name)"),
        ("", "names = set(params)\n    names = sorted(names)\n    [await ctx.step('a', fetch, n) for n in names]"),
        ("", "try:\n        await ctx.sleep(1)\n    except BaseException:\n        print('going')\n        raise"),
        ("", "try:\n        tidy()\n    except BaseException:\n        pass"),
    ],
)
def test_what_is_the_same_on_each_replay_is_not_found(imports, line):
    assert codes(in_body(line, imports=imports)) == []


@pytest.mark.parametrize(
    "source",
    [
        "from pgqrs import workflow as w\nimport time\n@w(name='x')\ndef f(): return time.time()",
        "from pgqrs.decorators import workflow\nimport time\n@workflow\ndef f(): return time.time()",
        "import pgqrs, time\nasync def f(ctx, p): return time.time()\npgqrs.consumer('w', 0, 'x').handler(f)",
        "import pgqrs, time\ndef f(): return time.time()\npgqrs.worker('w').workflows({'x': f})",
        "import time\nasync def f(ctx, p):\n    await ctx.step('a', g)\n    return time.time()",
        "import time\nfrom pgqrs import PyWorkflow\ndef f(run: PyWorkflow):\n    run.step('a', g)\n    return time.time()",
        # Functions inside of the body that are part of it.
        "import time\nasync def f(ctx):\n  async def one(n):\n    await ctx.step('a', g)\n    time.time()\n  await ctx.gather(one(1))",
        "import time\nasync def f(ctx):\n  def now():\n    return time.time()\n  await ctx.step('a', g, now())",
    ],
)
def test_bodies_are_found_however_they_are_written(source):
    assert codes(source) == ["PGQ101"]


@pytest.mark.parametrize(
    "source",
    [
        "import pgqrs, time\n@pgqrs.step\ndef f(ctx): return time.time()",
        "import pgqrs, time\n@pgqrs.step(id='x')\nasync def f(ctx):\n    await ctx.emit('a', g)\n    return time.time()",
        "import time\ndef f(ctx): return time.time()",
        "import time\nasync def f(ctx):\n  def body():\n    return time.time()\n  await ctx.step('a', body)",
        "import time\ndef workflow(f): return f\n@workflow\ndef f(): return time.time()",
    ],
)
def test_steps_and_other_functions_are_left_alone(source):
    assert codes(source) == []


@pytest.mark.parametrize(
    ("imports", "line"),
    [
        ("", "await ctx.step('a', lambda: ctx.sleep(5))"),
        ("", "await ctx.step('a', lambda: ctx.step('b', fetch))"),
        ("", "await ctx.transaction('a', lambda tx: ctx.wait_for('go'))"),
        ("", "await ctx.step('a', lambda: ctx.first(x, y))"),
        ("", "child = await ctx.spawn('other')\n    await ctx.step('a', lambda: child.result())"),
        ("", "async def pay():\n        await ctx.pause('approve')\n    await ctx.step('a', pay)"),
        (
            "",
            "def pay():\n        def inner():\n            ctx.map('w', [1])\n        inner()\n    await ctx.step('a', pay)",
        ),
        ("def pay(ctx, n): ctx.spawn('other')", "await ctx.step('a', pay, ctx, 3)"),
        ("@pgqrs.step\nasync def pay(ctx): await ctx.sleep(1)", "await pay(ctx)"),
    ],
)
def test_a_wait_is_found_in_the_body_of_a_step(imports, line):
    assert codes(in_body(line, imports=imports)) == ["PGQ205"]


@pytest.mark.parametrize(
    ("imports", "line"),
    [
        ("", "await ctx.step('a', lambda: ctx.emit('paid', 1))"),
        ("", "await ctx.step('a', lambda: ctx.progress(1, 2) or ctx.now() or ctx.uuid())"),
        ("", "await ctx.step('a', lambda: future.result())"),
        ("", "child = await ctx.spawn('other')\n    return await child.result()"),
        ("", "async def both():\n        await ctx.sleep(1)\n    await ctx.gather(both(), ctx.step('a', fetch))"),
        ("def sleep(queue): queue.sleep(5)", "await ctx.step('a', sleep, params)"),
        ("@pgqrs.step\ndef pay(): ...", "return await ctx.step('a', lambda: pay())"),
        ("@pgqrs.step\ndef pay(): ...", "task = pay()\n    return await task"),
        ("@pgqrs.workflow\nasync def other(n): ...", "return await other(3)"),
        ("", "return (await ctx.step('a', fetch)).name or (await ctx.step('b', fetch))[0]"),
    ],
)
def test_what_a_step_may_do_and_what_is_awaited_is_not_found(imports, line):
    assert codes(in_body(line, imports=imports)) == []


def test_a_finding_is_ignored_where_a_comment_says_so():
    line = "import time\nasync def f(ctx):\n    await ctx.step('a', g)\n    return time.time()"

    assert codes(f"{line}  # pgqrs: ignore[PGQ101]") == []
    assert codes(f"{line}  # pgqrs: ignore[PGQ102, PGQ101] - only shown to people") == []
    assert codes(f"{line}  # pgqrs: ignore") == []
    assert codes(f"{line}  # pgqrs: ignore[PGQ102]") == ["PGQ101"]


def test_nothing_is_found_in_our_examples_documents_and_the_seeds(tmp_path):
    for number, (name, code) in enumerate(_documented_code()):
        (tmp_path / f"{number}_{name}.py").write_text(code, encoding="utf-8")
    files = list(python_files([ROOT / "examples", ROOT / "tests/seeds", tmp_path]))
    # The guide to testing shows what a test must find.
    findings = [each for each in lint_files(files) if (each.code, "testing.py" in each.path) != ("PGQ102", True)]

    assert shown(findings, "text") == ""
    assert len(files) > 30


def _documented_code():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for code in re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            # Pages await at the top, which a module may not.
            lines = "".join(f"    {line}\n" for line in code.splitlines())
            yield page.stem, f"async def page():\n{lines}    pass\n" if "await " in code else code


# -- as a command ------------------------------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(tree(), ["lint", *arguments])


def test_the_command_tells_what_it_found_by_its_exit_code(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(in_body("return time.time()", imports="import time"), encoding="utf-8")
    good = tmp_path / "good.py"
    good.write_text("raise SystemExit('imported')\n", encoding="utf-8")

    found, nothing, wrong = run(str(tmp_path)), run(str(good)), run(str(tmp_path / "missing.py"))

    assert (found.exit_code, nothing.exit_code, wrong.exit_code) == (8, 0, 2)
    said = f"{bad}:5:12 PGQ101 time.time() in a workflow body; use ctx.now(), which is on record\n"
    assert found.stdout == said
    assert (nothing.stdout, nothing.stderr) == ("", "nothing found in 1 files\n")


def test_findings_for_programs_and_for_github():
    findings = lint_source(in_body("return time.time()", imports="import time"), "a,b.py")

    assert json.loads(shown(findings, "json")) == [
        {
            "path": "a,b.py",
            "line": 5,
            "column": 12,
            "code": "PGQ101",
            "title": "wall clock",
            "message": "time.time() in a workflow body",
            "instead": "use ctx.now(), which is on record",
        }
    ]
    assert shown(findings, "github") == (
        "::error file=a%2Cb.py,line=5,col=12,title=PGQ101::"
        "time.time() in a workflow body; use ctx.now(), which is on record"
    )
    assert json.loads(shown([], "json")) == []
