"""How often a caller may add to the work."""

import pytest

import pgqrs
from pgqrs.web import RateLimit
from pgqrs.web.auth.access import Caller, Scope
from pgqrs.web.problems import Problem
from pgqrs.web.server import rate_limit
from rig import http


@pytest.fixture
def now(monkeypatch):
    """Seconds that pass when the test says so."""

    class Clock:
        seconds = 100.0

        def monotonic(self):
            return self.seconds

    clock = Clock()
    monkeypatch.setattr(rate_limit, "time", clock)
    return clock


def _refused(rate, caller="ann"):
    try:
        rate.take(caller)
    except Problem as problem:
        return int(problem.headers["retry-after"])
    return 0


def test_a_burst_then_a_steady_rate(now):
    rate = RateLimit(2.0, burst=3)
    assert [_refused(rate) for _ in range(4)] == [0, 0, 0, 1]
    now.seconds += 0.5
    assert [_refused(rate) for _ in range(2)] == [0, 1]
    now.seconds += 3600
    assert [_refused(rate) for _ in range(4)] == [0, 0, 0, 1]


def test_a_slow_rate_says_how_long_to_wait(now):
    rate = RateLimit(0.1, burst=1)

    assert [_refused(rate), _refused(rate)] == [0, 10]


def test_callers_do_not_pay_for_each_other(now):
    rate = RateLimit(1.0, burst=1)

    assert [_refused(rate, name) for name in ("ann", "bob", "ann")] == [0, 0, 1]


def test_those_who_are_long_gone_are_forgotten(now, monkeypatch):
    monkeypatch.setattr(rate_limit, "MOST_CALLERS", 10)
    rate = RateLimit(1.0, burst=1)
    for number in range(100):
        now.seconds += 10
        rate.take(f"caller {number}")

    assert len(rate._left) <= 10


def test_nought_means_no_limit(now):
    rate = RateLimit(0)

    assert not any(_refused(rate) for _ in range(5_000))


@pytest.mark.parametrize("given", [(-1.0, 1), (float("nan"), 1), (1.0, 0)])
def test_a_limit_that_cannot_be_meant_is_refused(given):
    with pytest.raises(pgqrs.ConfigError):
        RateLimit(*given)


@pytest.mark.backends("sqlite")
async def test_what_adds_work_is_limited_and_what_looks_is_not(store, furnished):
    limited = [each for each in http.endpoints(dashboard=False) if each.limited]
    assert {each.path.rpartition("/")[2] for each in limited} == {"runs", "{name}", "messages", "trigger"}
    for endpoint in limited:
        async with http.client(store, rate=RateLimit(0.001, burst=2)) as client:
            path = http.filled(endpoint, **furnished)
            body = {"json": {"workflow": "flow"}} if path.endswith("/runs") else {}
            answers = [await client.post(path, **body) for _ in range(3)]
            assert [each.status_code for each in answers][2] == 429
            assert int(answers[2].headers["retry-after"]) >= 1
            assert all(each.status_code < 300 for each in answers[:2]), answers[0].text
            assert (await client.get("/api/v1/runs")).status_code == 200


@pytest.mark.backends("sqlite")
async def test_each_caller_has_their_own(store, furnished):
    async def authorize(request):
        return Caller(request.headers["x-user"], frozenset(Scope))

    async with http.client(store, authorize=authorize, rate=RateLimit(0.001, burst=1)) as client:

        async def status(name):
            return (
                await client.post("/api/v1/runs", json={"workflow": "flow"}, headers={"x-user": name})
            ).status_code

        assert [await status(name) for name in ("ann", "ann", "bob")] == [201, 429, 201]
