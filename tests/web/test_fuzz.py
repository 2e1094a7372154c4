"""Hostile requests to every route: refused or answered, never a 500. `make fuzz COUNT=100000` does it for longer."""

import pytest

import pgqrs
from pgqrs.web.application import endpoints
from rig.fuzz import Fuzzer
from rig.lengths import by_length
from web.fuzz import furnish, fuzz

COUNTS = by_length(
    short={"sqlite": 300, "postgres": 200, "turso": 100},
    long={"sqlite": 1_500, "postgres": 1_000, "turso": 300},
)


async def test_no_request_gets_more_than_a_refusal(live_store, backend):
    await furnish(live_store)

    statuses = await fuzz(live_store, count=COUNTS[backend], seed=7)

    print(statuses)
    # Some of it gets through, or only the first checks were tried.
    assert statuses[200] + statuses[201] > COUNTS[backend] / 10
    assert set(statuses) <= {200, 201, 202, 400, 404, 405, 409, 410, 413, 415, 421, 422, 431, 401, 403}, statuses
    assert await pgqrs.admin(live_store).check_invariants() == []


def test_every_route_is_asked():
    fuzzer = Fuzzer(1)
    asked = {tuple(each[:2]) for each in fuzzer._operations}

    assert asked == {(each.method, each.path) for each in endpoints(dashboard=False) if each.path != "/stream"}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_makes_the_same_requests(seed):
    one, other = Fuzzer(seed), Fuzzer(seed)

    assert [one.request() for _ in range(200)] == [other.request() for _ in range(200)]
