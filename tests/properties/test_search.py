"""Any filter finds what a plain look at every run finds, page by page and newest first."""

import random
import re
from datetime import timedelta

import pytest

import pgqrs
from pgqrs.db.views import search
from pgqrs.filters import RunFilter
from rig.history import random_past, text, write

# Runs that were made up: nobody executed them, and they have no messages.
pytestmark = pytest.mark.breaks("I1", "I4", "I8", "I12")

SEEDS = range(4)


def plainly(wanted: RunFilter, run, now) -> bool:
    """The filter as one would explain it."""

    def moment(value):
        return now - value if isinstance(value, timedelta) else value

    def is_lower(a, b):
        return a is not None and a < b

    lowered = str.maketrans({chr(c): chr(c + 32) for c in range(65, 91)})
    pattern = None if wanted.workflow is None else ".*".join(map(re.escape, wanted.workflow.split("*")))
    checks = [
        not wanted.statuses or run.status in wanted.statuses,
        pattern is None or re.fullmatch(pattern, run.workflow),
        wanted.created_after is None or run.created_at >= moment(wanted.created_after),
        wanted.created_before is None or run.created_at < moment(wanted.created_before),
        wanted.completed_after is None
        or (run.completed_at is not None and run.completed_at >= moment(wanted.completed_after)),
        wanted.completed_before is None or is_lower(run.completed_at, moment(wanted.completed_before)),
        all(name in run.attributes and text(run.attributes[name]) == v for name, v in wanted.attributes.items()),
        wanted.error_signature is None or run.error_signature == wanted.error_signature,
        wanted.parent_run_id is None or run.parent_run_id == wanted.parent_run_id,
        wanted.last_error_contains is None
        or wanted.last_error_contains.translate(lowered) in (run.last_error or "").translate(lowered),
        wanted.idempotency_key is None or run.idempotency_key == wanted.idempotency_key,
        wanted.worker_id is None or run.worker_id == wanted.worker_id,
        wanted.waiting_for is None or run.waiting_for == wanted.waiting_for,
        wanted.deleted is None or (run.deleted_at is not None) == wanted.deleted,
    ]
    return all(checks)


def random_filter(rng: random.Random, now) -> RunFilter:
    def moment():
        ago = timedelta(minutes=rng.randrange(500))
        return rng.choice([ago, now - ago])

    choices = {
        "status": lambda: rng.sample(["PENDING", "running", "PAUSED", "SUCCESS", "error", "CANCELLED"], rng.randint(1, 3)),
        "workflow": lambda: rng.choice(["mail", "billing.*", "billing*", "*", "*.refund", "billing_x", "b*x", "nobody*"]),
        "created_after": moment,
        "created_before": moment,
        "completed_after": moment,
        "completed_before": moment,
        "attributes": lambda: rng.choice([{"customer": "c1"}, {"customer": "c2", "n": 5}, {"ok": True}, {"n": None}, {"customer": "%"}]),
        "error_signature": lambda: rng.choice(["TimeoutError-1", "ValueError-2", "Timeout%"]),
        "parent_run_id": lambda: rng.randint(1, 4),
        "last_error_contains": lambda: rng.choice(["TIMEOUT", "100%", "%", "_", "wrong_", "no answer", "\\", "über", "Über", "ärger"]),
        "idempotency_key": lambda: f"key-{rng.randrange(40)}",
        "worker_id": lambda: rng.randrange(3),
        "waiting_for": lambda: rng.choice(["approval", "signal a"]),
    }  # fmt: skip
    names = rng.sample(list(choices), rng.choice([0, 1, 1, 1, 2, 2, 3]))
    return RunFilter(
        **{name: choices[name]() for name in names}, deleted=rng.choice([False, False, False, True, None])
    )


@pytest.fixture
async def admin(store):
    return pgqrs.admin(store)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_filter_finds_what_a_plain_look_finds(store, admin, clock, seed, monkeypatch):
    # Windows of both kinds, few workflows and many.
    monkeypatch.setattr(search, "SMALL_WINDOW", [10_000, 40, 0, 10][seed])
    monkeypatch.setattr(search, "MOST_WORKFLOWS", [20, 2, 0, 20][seed])
    rng = random.Random(seed)
    past = random_past(rng, clock.now(), 400)
    await write(store, past)

    for _ in range(100):
        wanted = random_filter(rng, clock.now())
        expected = [run.run_id for run in reversed(past) if plainly(wanted, run, clock.now())]
        # Small pages, but not dozens of them.
        limit = rng.choice([1_000, 3 + len(expected) // 4])
        found, cursor = [], None
        while True:
            page = await admin.runs(wanted, limit=limit, cursor=cursor)
            found += [summary.run_id for summary in page]
            cursor = page.next_cursor
            if cursor is None:
                break

        assert found == expected, str(wanted)
        assert await admin.count_runs(wanted) == pgqrs.CappedCount(len(expected), capped=False)


def test_a_filter_is_the_same_after_it_was_written_down():
    rng = random.Random(7)
    now = pgqrs.ManualClock().now()

    for _ in range(500):
        wanted = random_filter(rng, now)

        assert RunFilter.parse(str(wanted)) == wanted
