"""`ctx.map`: one child per item, so many at a time; when one ends, the next begins."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from pgqrs.engine.branches import Branch, current_branch
from pgqrs.engine.children import Child, spawn
from pgqrs.engine.execution import Execution, Wait
from pgqrs.engine.steps import apart
from pgqrs.engine.waiting import Answer, Waiter
from pgqrs.errors import ConfigError


def check_limit(limit: int | None) -> None:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise ConfigError(f"`limit` of ctx.map must be a positive whole number, got {limit!r}")


async def map_(
    execution: Execution, workflow: str, items: list[Any], limit: int | None, *, return_exceptions: bool
) -> list[Any]:
    """How many begin together is decided once: a replay finds it in the record of each `spawn`."""
    answers: dict[int, Answer] = {}
    running: dict[int, Waiter] = {}
    waiters: list[Waiter] = []
    begun = 0
    most = len(items) if limit is None else limit
    while len(answers) < len(items):
        # A replay finds how many began together: fewer than there is room for by now, and then the next ones.
        while begun < len(items) and len(running) < most:
            children = await _begin(execution, workflow, items[begun : begun + most - len(running)])
            waiters += (results := [child.result() for child in children])
            running |= {begun + number: result for number, result in enumerate(results)}
            begun += len(children)
        ended = await _ended(execution, running, is_any=begun < len(items))
        answers |= ended
        for number in ended:
            del running[number]
    await execution.turn(*(each.place.step_id for each in waiters))
    errors = [answer.error for answer in answers.values() if answer.error is not None]
    if return_exceptions:
        inorder = [answers[number] for number in range(len(items))]
        return [answer.value if answer.error is None else answer.error for answer in inorder]
    if errors:
        execution.failed_together(errors)
    return [answers[number].given(execution) for number in range(len(items))]


async def _begin(execution: Execution, workflow: str, items: list[Any]) -> list[Child]:
    return await spawn(execution, execution.place("spawn", does=True), workflow, items)


async def _ended(execution: Execution, running: dict[int, Waiter], *, is_any: bool) -> dict[int, Answer]:
    """Those that have ended; waits for one, or for all when no other is to begin."""
    answers = {number: await waiter.replayed() for number, waiter in running.items()}
    ended = {number: answer for number, answer in answers.items() if answer is not None}
    began = execution.claim.steps.get(execution.branch().next_id("spawn")) if is_any else None
    if began is not None and began.sequence is not None:
        # An earlier pass began the next ones when it had got these, and no others.
        sequences = {number: execution.claim.steps[running[number].place.step_id].sequence or 0 for number in ended}
        earlier = {number: answer for number, answer in ended.items() if sequences[number] < began.sequence}
        if earlier:
            return await _in_turn(execution, running, earlier)
    rest = {number: waiter for number, waiter in running.items() if number not in ended}
    if not rest:
        return await _in_turn(execution, running, ended)
    await execution.leave_behind()
    execution.begin()
    waits: list[Wait] = []
    looking = _looked(list(rest.values()), current_branch.get())
    for number, looked in zip(rest, await apart(execution, looking, "map"), strict=True):
        if isinstance(looked, Wait):
            waits.append(replace(looked, is_any=is_any))
        else:
            ended[number] = looked
    if waits and not (is_any and ended):
        await execution.resting.wait(*waits)
    return await _in_turn(execution, running, ended)


async def _in_turn(execution: Execution, running: dict[int, Waiter], ended: dict[int, Answer]) -> dict[int, Answer]:
    """The next ones begin when it is the turn of these: a branch that is cancelled before that begins none."""
    await execution.turn(*(running[number].place.step_id for number in ended))
    return ended


async def _looked(waiters: list[Waiter], branch: Branch | None) -> list[Answer | Wait]:
    """Together, so that the children's ends are read in one query."""
    return await asyncio.gather(*(waiter.look(branch) for waiter in waiters))
