"""`ctx.map`: one child per item, so many at a time; when one ends, the next begins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from pgqrs.engine.ctx.children import ChildRun, spawn
from pgqrs.engine.ctx.steps import apart
from pgqrs.engine.ctx.wait import WaitAnswer, Waiter
from pgqrs.engine.replay.branches import Branch, current_branch
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.engine.replay.suspension import Wait
from pgqrs.errors import ConfigError
from pgqrs.text import step_ids


def check_limit(limit: int | None) -> None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigError(f"`limit` of ctx.map must be a positive whole number, got {limit!r}")


async def map_(
    run_pass: RunPass, workflow: str, items: list[Any], limit: int | None, *, return_exceptions: bool
) -> list[Any]:
    """How many begin together is decided once: a replay finds it in the record of each `spawn`."""
    answers: dict[int, WaitAnswer] = {}
    running: dict[int, Waiter] = {}
    waiters: list[Waiter] = []
    begun = 0
    most = len(items) if limit is None else limit
    while len(answers) < len(items):
        if begun < len(items) and len(running) < most:
            children = await _begin(run_pass, workflow, items[begun : begun + most - len(running)])
            waiters += (results := [child.result() for child in children])
            running |= {begun + number: result for number, result in enumerate(results)}
            begun += len(children)
        ended = await _ended(run_pass, running, is_any=begun < len(items))
        answers |= ended
        for number in ended:
            del running[number]
    await run_pass.order.turn(*(each.place.step_id for each in waiters))
    errors = [answer.error for answer in answers.values() if answer.error is not None]
    if return_exceptions:
        inorder = [answers[number] for number in range(len(items))]
        return [answer.value if answer.error is None else answer.error for answer in inorder]
    if errors:
        run_pass.failures.failed_together(errors)
    return [answers[number].given(run_pass) for number in range(len(items))]


async def _begin(run_pass: RunPass, workflow: str, items: list[Any]) -> list[ChildRun]:
    return await spawn(run_pass, run_pass.place(step_ids.SPAWN, does=True), workflow, items)


async def _ended(run_pass: RunPass, running: dict[int, Waiter], *, is_any: bool) -> dict[int, WaitAnswer]:
    """Those that have ended; waits for one, or for all when no other is to begin."""
    answers = {number: await waiter.replayed() for number, waiter in running.items()}
    ended = {number: answer for number, answer in answers.items() if answer is not None}
    began = run_pass.claim.steps.get(run_pass.branch().next_id(step_ids.SPAWN)) if is_any else None
    if began is not None and began.sequence is not None:
        # An earlier pass began the next ones when it had got these, and no others.
        sequences = {number: run_pass.claim.steps[running[number].place.step_id].sequence or 0 for number in ended}
        earlier = {number: answer for number, answer in ended.items() if sequences[number] < began.sequence}
        if earlier:
            return await _in_turn(run_pass, running, earlier)
    rest = {number: waiter for number, waiter in running.items() if number not in ended}
    if not rest:
        return await _in_turn(run_pass, running, ended)
    await run_pass.leave_behind()
    run_pass.in_flight.begin()
    waits: list[Wait] = []
    looking = _looked(list(rest.values()), current_branch.get())
    for number, looked in zip(rest, await apart(run_pass, looking, "map"), strict=True):
        if isinstance(looked, Wait):
            waits.append(replace(looked, is_any=is_any))
        else:
            ended[number] = looked
    if waits and not (is_any and ended):
        await run_pass.resting.wait(*waits)
    return await _in_turn(run_pass, running, ended)


async def _in_turn(
    run_pass: RunPass, running: dict[int, Waiter], ended: dict[int, WaitAnswer]
) -> dict[int, WaitAnswer]:
    """The next ones begin when it is the turn of these: a branch that is cancelled before that begins none."""
    await run_pass.order.turn(*(running[number].place.step_id for number in ended))
    return ended


async def _looked(waiters: list[Waiter], branch: Branch | None) -> list[WaitAnswer | Wait]:
    """Together, so that the children's ends are read in one query."""
    return await asyncio.gather(*(waiter.look(branch) for waiter in waiters))
