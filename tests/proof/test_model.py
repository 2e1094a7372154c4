"""The model of proof/model: walks agree with it on every database, and it notices what does not."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

import pgqrs
from pgqrs.db.runs import claims, settlement, transitions
from pgqrs.db.tables import messages
from proof import model
from proof.model import walk
from proof.model.world import World
from proof.order import Order

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
        assert here.answers == there.answers


async def nothing(*_args, **_options):
    return None


async def all_of(_db, fences, **_options):
    return {(*fence,) for fence in fences}


BREAKAGES = {
    "cancel does not take the message away": (transitions, "delete_messages", nothing),
    "nobody wakes a parent": (transitions, "wake_parents", nothing),
    "no fence on steps and ends": (settlement, "hold", all_of),
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


async def test_a_walk_answers_the_same_whatever_walks_came_before_it(open_world, world):
    other = await open_world(pgqrs.Config("sqlite://:memory:"))
    await walk.walk(other, "before", length=20)

    here = await walk.walk(world, "now")
    there = await walk.walk(other, "now")

    assert here.diverged == there.diverged == ""
    assert here.answers == there.answers


def prove(order, monkeypatch, command=""):
    """Run three walks of each process of the layer on each backend, or what a printed command says."""
    given = dict(part.split("=") for part in command.split() if "=" in part)
    assert not command or given["LAYERS"] == "model"
    monkeypatch.setattr(model, "WANTED", 3 * walk.LENGTH * model.PROCESSES)
    monkeypatch.setattr(walk, "SHRINK_SECONDS", 1)
    monkeypatch.setenv("CASE", given.get("CASE", ""))
    on = tuple(given["ON"].split(",")) if command else order.on
    return list(model.prove(replace(order, on=on, seed=int(given.get("SEED", order.seed)))))


@pytest.fixture
def order(tmp_path):
    return Order(on=("sqlite", "turso"), seed=7, folder=tmp_path)


def turso_is_late(world, _walks):
    return timedelta(seconds=world.store.config.backend == "turso")


def turso_drifts(world, walks):
    """Be late from the third walk on, so that one walk alone does not show it."""
    return timedelta(seconds=world.store.config.backend == "turso" and walks > 2)


@pytest.mark.parametrize("lateness", [turso_is_late, turso_drifts])
def test_a_seeded_difference_is_reported_and_the_printed_command_shows_it(order, monkeypatch, capsys, lateness):
    forget, walks = World.forget, Counter()

    def late(self):
        self.clock.advance(lateness(self, walks[self]).total_seconds())
        walks[self] += 1
        forget(self)

    monkeypatch.setattr(World, "forget", late)
    *_, found = prove(order, monkeypatch)
    told = capsys.readouterr().out
    *_, again = prove(order, monkeypatch, found.command)
    told_again = capsys.readouterr().out

    assert not found.good
    assert f"repeat with: {found.command}" in told
    assert "sqlite answers" in told
    assert not again.good
    assert [line for line in told.splitlines() if "answers" in line] == [
        line for line in told_again.splitlines() if "answers" in line
    ]


def test_without_a_difference_all_walks_are_answered_alike(order, monkeypatch, capsys):
    rows = prove(order, monkeypatch)

    assert [row.good for row in rows] == [True] * 3, capsys.readouterr().out


def test_a_divergence_is_reported_and_the_printed_command_shows_it(order, monkeypatch, capsys):
    monkeypatch.setattr(transitions, "delete_messages", nothing)
    sqlite = replace(order, on=("sqlite",))
    [found] = prove(sqlite, monkeypatch)
    told = capsys.readouterr().out
    [again] = prove(sqlite, monkeypatch, found.command)

    assert not found.good
    assert f"repeat with: {found.command}" in told
    assert not again.good
