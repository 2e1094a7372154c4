"""The model of proof/model: walks agree with it on every database, and it notices what does not."""

from dataclasses import replace

import pytest

import pgqrs
from pgqrs.db import claims, lifecycle, settling
from pgqrs.db.tables import messages
from proof.model import walk
from proof.model.world import World

# Walks of some hundred operations; more of them, and other seeds, are what `make proof LAYERS=model` is for.
SEEDS = {"sqlite": range(5), "postgres": range(2), "turso": range(1)}


@pytest.fixture
async def open_world():
    worlds = []

    async def opened(config):
        worlds.append(await World.open(config))
        return worlds[-1]

    yield opened
    for world in worlds:
        await world.store.close()


@pytest.fixture
async def world(open_world):
    return await open_world(pgqrs.Config("sqlite://:memory:"))


async def test_walks_agree_with_the_model_and_with_each_other(backend, config, open_world, world):
    where = config if backend == "postgres" else replace(config, dsn=f"{backend}://:memory:")
    other = await open_world(where)
    for seed in SEEDS[backend]:
        here = await walk.walk(other, f"test-{seed}", every=5)
        there = await walk.walk(world, f"test-{seed}", every=50)

        assert here.diverged == "", "\n".join(walk.told((await walk.shortest(other, here.path)).path))
        assert here.operations == walk.LENGTH
        assert here.digest == there.digest


async def nothing(*_args, **_options):
    return None


async def all_of(_db, fences, **_options):
    return {(*fence,) for fence in fences}


BREAKAGES = {
    "cancel does not take the message away": (lifecycle, "delete_messages", nothing),
    "nobody wakes a parent": (lifecycle, "wake_parents", nothing),
    "no fence on steps and ends": (settling, "hold", all_of),
    "runs that lost their workers are left": (claims, "some_are_lost", nothing),
    "an extension is forgotten": (messages, "extend", lambda _db, fences, **_: _ids(fences)),
}


async def _ids(fences):
    return {message_id for message_id, _ in fences}


@pytest.mark.parametrize("breakage", BREAKAGES)
async def test_what_is_broken_is_noticed_and_made_short(world, monkeypatch, breakage):
    monkeypatch.setattr(*BREAKAGES[breakage])

    for seed in range(20):
        found = await walk.walk(world, f"broken-{seed}")
        if found.diverged:
            break
    short = await walk.shortest(world, found.path)

    assert found.diverged
    assert short.diverged
    assert len(short.path) <= 8


async def test_a_path_without_its_beginning_leaves_out_what_refers_to_it(world):
    done = await walk.walk(world, "path")

    half = await walk.again(world, done.path[100:], closely=True)

    assert half.diverged == ""
    assert 0 < half.operations < 100
