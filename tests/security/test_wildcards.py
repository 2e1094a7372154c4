"""`workflow:****...Z` must not stop the process: wildcards are matched without backtracking."""

import itertools
import os
import random
import subprocess
import sys

import pytest

import pgqrs
from pgqrs.filters import MOST_ATTRIBUTES, MOST_FILTER
from pgqrs.text.wildcards import matches
from rig import http

LONGEST = "a" * 255
HOSTILE = ["*" * 254 + "Z", "a*" * 127 + "Z", "*a" * 127, "*" + "ab*" * 84]


def _by_trying_everything(pattern, text):
    """The meaning of a pattern, with no thought for speed."""
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(_by_trying_everything(pattern[1:], text[place:]) for place in range(len(text) + 1))
    return text[:1] == pattern[0] and _by_trying_everything(pattern[1:], text[1:])


def test_a_pattern_means_what_trying_everything_finds():
    letters = random.Random(20)
    texts = ["".join(each) for size in range(5) for each in itertools.product("ab", repeat=size)]
    patterns = ["".join(each) for size in range(5) for each in itertools.product("ab*", repeat=size)]
    patterns += ["".join(letters.choices("ab*", k=8)) for _ in range(200)]
    for pattern in patterns:
        for text in texts:
            assert matches(pattern, text) is _by_trying_everything(pattern, text), (pattern, text)


def test_every_other_character_stands_for_itself():
    assert matches("a.b*", "a.bc")
    assert not matches("a.b*", "axbc")
    assert not matches("[a-z]*", "abc")
    assert matches("*", "")
    assert not matches("ab*ba", "aba")


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_pattern_does_not_stop_the_process(pattern, config):
    """In a process of its own: a match that holds the interpreter cannot be timed out from inside."""
    program = (
        "import asyncio, sys, pgqrs\n"
        "async def ask():\n"
        "    async with pgqrs.connect(sys.argv[1]) as store:\n"
        "        await store.create_workflow(sys.argv[2])\n"
        "        print(len(await pgqrs.admin(store).runs(f'workflow:{sys.argv[3]}')))\n"
        "asyncio.run(ask())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, config.dsn, LONGEST, pattern],
        capture_output=True,
        text=True,
        timeout=60,
        env=dict(os.environ),
        check=False,
    )

    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


@pytest.mark.backends("sqlite")
async def test_the_api_answers_a_hostile_pattern(store):
    await store.create_workflow(LONGEST)
    run_id = await pgqrs.workflow(LONGEST).trigger(None).execute(store)
    async with http.client(store) as client:
        for pattern in HOSTILE:
            answer = await client.get("/api/v1/runs", params={"workflow": pattern})
            assert answer.status_code == 200
        found = await client.get("/api/v1/runs", params={"workflow": "a" * 100 + "*" * 100 + "a" * 55})

    assert [each["run_id"] for each in found.json()["items"]] == [run_id]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x" * (MOST_FILTER + 1), "characters; use at most 65,536"),
        (" ".join(f"attr:a{n}=1" for n in range(MOST_ATTRIBUTES + 1)), "at most 50 attributes"),
        ("text:" + "x" * 1_001, "use at most 1,000"),
        ('"\\' * 30_000, "a quotation mark without its partner"),
    ],
)
def test_a_filter_beyond_its_limits_is_refused_with_a_short_word(text, said):
    with pytest.raises(pgqrs.ConfigError, match=said) as raised:
        pgqrs.RunFilter.parse(text)

    assert len(str(raised.value)) < 500


def test_a_filter_at_its_limits_is_read():
    attributes = {f"{n:03}" + '"' * 97: "=" * 200 for n in range(MOST_ATTRIBUTES)}
    wanted = pgqrs.RunFilter(attributes=attributes, last_error_contains="\\" * 1_000)

    assert pgqrs.RunFilter.parse(str(wanted)) == wanted
