"""The demo by itself: a crash inside a step, a retry, an approval, a saga, and what must be true at the end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pgqrs.api.operations.admin import admin
from pgqrs.api.operations.run_actions import answer_wait
from pgqrs.api.schedules import schedules
from pgqrs.api.workflow import discover_workflows
from pgqrs.cli.demo import shop
from pgqrs.cli.demo.stage import DemoFailed, Stage
from pgqrs.db.tables import runs as table
from pgqrs.types import ENDED, RunStatus

SCHEDULE = "demo-report"


@dataclass(frozen=True, slots=True)
class Expected:
    """How a run has to end: its status, and what its output or its error has to hold."""

    status: RunStatus
    holds: str


@dataclass(slots=True)
class Scene:
    """The runs of the play, and how each has to end."""

    expected: dict[int, Expected] = field(default_factory=dict)
    large: int = 0
    crashed: int = 0
    gallery: int = 0


async def open_scene(stage: Stage) -> Scene:
    """Everything that a shop does, at once."""
    scene = Scene()
    done, failed = RunStatus.SUCCESS, RunStatus.ERROR
    scene.large = await _trigger(stage, "order", sku="anvil", euros=240, trouble="timeout")
    scene.gallery = await _trigger(stage, "gallery", pictures=4)
    scene.expected = {
        scene.large: Expected(done, "with anvil"),
        scene.gallery: Expected(done, "4"),
        await _trigger(stage, "reminder", customer="ann", seconds=2.0): Expected(done, "Dear ann"),
        await _trigger(stage, "trip", city="Lisbon"): Expected(done, "no car is left in Lisbon"),
        await _trigger(stage, "import_feed", file="feed.csv", rows=9, bad_row=3): Expected(failed, "feed.csv, row 3"),
    }
    await schedules(stage.store).create(SCHEDULE, "report", every=3)
    return scene


async def play(stage: Stage) -> int:
    """0 when every run has ended as it should, although a worker was killed in the midst of one."""
    scene = await open_scene(stage)
    try:
        await stage.until(lambda: _waits_for_approval(stage, scene.large))
        await _crash(stage, scene)
        await answer_wait(stage.store, scene.large, {"approved": True}, actor="demo")
        stage.tell(f"run {scene.large}  order   approved by the demo")
        await stage.until(lambda: _all_ended(stage, scene))
        await stage.until(lambda: _schedule_has_fired(stage))
    except DemoFailed:
        await _tell_why(stage, scene)
        raise
    await schedules(stage.store).pause(SCHEDULE)
    wrong = await mistakes(stage, scene)
    for each in wrong:
        stage.say("wrong", each)
    if wrong:
        return 1
    stage.say("checked", f"{len(scene.expected)} runs ended as they should, no invariant is broken")
    stage.say(
        "", f"run {scene.crashed}: 'reserve' and 'charge' ran once, 'ship' twice, and its parcel is on record once"
    )
    stage.say("done", f"in {stage.seconds:.1f} s")
    return 0


async def _trigger(stage: Stage, name: str, **params: Any) -> int:
    known = discover_workflows(shop)[name]
    return int(await known.trigger(**params, attributes={"customer": "demo"}).execute(stage.store))


async def _crash(stage: Stage, scene: Scene) -> None:
    """A run inside a step, its worker killed, another one started: the run goes on from its last step."""
    scene.crashed = run_id = await _trigger(stage, "order", sku="feather", euros=20)
    scene.expected[run_id] = Expected(RunStatus.SUCCESS, "with feather")
    await stage.until(lambda: _has_begun(stage, "ship", run_id, times=1))
    killed = stage.kill_worker()
    stage.tell(f"worker {killed} killed (SIGKILL) while run {run_id} was inside step 'ship'")
    before = await _recorded(stage, run_id)
    await stage.start_worker()
    await stage.until(lambda: _has_begun(stage, "ship", run_id, times=2), untold=run_id)
    resumed = f"run {run_id} resumed, {before} steps replayed from the database, 'ship' run again"
    stage.tell(f"worker {stage.pid} started: {resumed}")


async def _recorded(stage: Stage, run_id: int) -> int:
    steps = await table.steps_in_brief(await stage.store.ready(), [run_id])
    return len(steps[run_id])


# -- what is waited for --------------------------------------------------------------------------------------


async def _waits_for_approval(stage: Stage, run_id: int) -> bool:
    run = await table.get(await stage.store.ready(), run_id)
    return run.waiting_for == "approval"


async def _has_begun(stage: Stage, step: str, run_id: int, *, times: int) -> bool:
    return sum(entry[:2] == (step, run_id) for entry in shop.read_ledger(stage.ledger)) >= times


async def _all_ended(stage: Stage, scene: Scene) -> bool:
    rows = await table.several(await stage.store.ready(), list(scene.expected))
    return all(row.status in ENDED for row in rows)


async def _schedule_has_fired(stage: Stage) -> bool:
    fired = await schedules(stage.store).slots(SCHEDULE)
    ids = [slot.run_id for slot in fired if slot.run_id is not None]
    rows = await table.several(await stage.store.ready(), ids) if ids else []
    return any(row.status is RunStatus.SUCCESS for row in rows)


async def _tell_why(stage: Stage, scene: Scene) -> None:
    for row in await table.several(await stage.store.ready(), list(scene.expected)):
        if row.status not in ENDED:
            stage.say("stuck", f"run {row.run_id} {row.workflow}: {await stage.reason(row.run_id)}")


# -- what must be true ---------------------------------------------------------------------------------------


async def mistakes(stage: Stage, scene: Scene) -> list[str]:
    """What is not as it should be, asked of the database and of what the steps wrote down themselves."""
    found = [
        *await _wrong_ends(stage, scene),
        *await _wrong_effects(stage, scene),
        *await _wrong_events(stage, scene),
    ]
    return found + [str(each) for each in await admin(stage.store).check_invariants()]


async def _wrong_ends(stage: Stage, scene: Scene) -> list[str]:
    found = []
    rows = {row.run_id: row for row in await table.several(await stage.store.ready(), list(scene.expected))}
    for run_id, expected in scene.expected.items():
        row = rows.get(run_id)
        if row is None:
            found.append(f"run {run_id} is gone")
            continue
        said = f"{row.output or ''} {row.last_error or ''}"
        if row.status is not expected.status or expected.holds not in said:
            found.append(f"run {run_id} {row.workflow} ended in {row.status} with {said.strip()[:200]!r}")
    children = await admin(stage.store).runs(parent_run_id=scene.gallery)
    if [child.status for child in children] != [RunStatus.SUCCESS] * 4:
        found.append(f"the children of run {scene.gallery} ended in {[str(child.status) for child in children]}")
    return found


async def _wrong_effects(stage: Stage, scene: Scene) -> list[str]:
    """A step that is on record is not run again; the one that was cut off is."""
    began = Counter(entry[:2] for entry in shop.read_ledger(stage.ledger))
    wanted = {"reserve": 1, "charge": 1, "ship": 2}
    counted = {step: began[step, scene.crashed] for step in wanted}
    return [] if counted == wanted else [f"run {scene.crashed} began its steps {counted} times, not {wanted}"]


async def _wrong_events(stage: Stage, scene: Scene) -> list[str]:
    """Whatever was run again, each parcel is told of once."""
    waiting = await admin(stage.store).outbox.unpublished(limit=1_000)
    told = Counter(event.run_id for event in waiting if event.type == "order.shipped")
    counted = [told[scene.large], told[scene.crashed]]
    return [] if counted == [1, 1] else [f"the outbox tells of {counted} parcels, not of one each"]
