"""Gathering: while one write is under way the next items gather, then go together. Idle there is no delay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from pgqrs.engine.replay.task_factory import outside
from pgqrs.error_copies import copy_of
from pgqrs.errors import ConnectionFailed

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Makes one call of many small ones; each caller gets its own result or its own error.

    `write` takes the items and gives a result for each, in their order; it writes all of them or none. One at a time
    is under way. Whoever comes while nothing is makes the call itself, for its own item alone: no task, no wait. A
    batch that fails is written again item by item, so that a poison item hurts only itself; unless the connection
    broke, which is everybody's. The item of a caller that was cancelled before it was sent is not written.
    """

    def __init__(self, write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]], *, most: int) -> None:
        self._write = write
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._under_way = False
        self._gathered: list[tuple[Item, asyncio.Future[Result]]] = []
        self._task: asyncio.Task[None] | None = None

    async def add(self, item: Item) -> Result:
        """Returns when it is written."""
        if asyncio.get_running_loop() is not self._loop:
            # Another thread's loop: what gathers here cannot wake it.
            return (await self._write([item]))[0]
        if self._under_way:
            future: asyncio.Future[Result] = self._loop.create_future()
            self._gathered.append((item, future))
            return await future
        self._under_way = True
        try:
            return (await self._write([item]))[0]
        finally:
            self._go_on()

    def _go_on(self) -> None:
        if self._gathered:
            # A task of nobody's: the callers may be cancelled, one by one, without a loss to the others.
            self._task = outside(self._run())
        else:
            self._under_way = False

    async def _run(self) -> None:
        try:
            while self._gathered:
                batch = self._gathered[: self._most]
                del self._gathered[: self._most]
                await self._write_together([each for each in batch if not each[1].done()])
        finally:
            # Ended from outside (the loop is going down): whoever still waits must not wait for ever.
            for _, future in self._gathered:
                future.cancel()
            self._gathered.clear()
            self._under_way = False

    async def _write_together(self, batch: Sequence[tuple[Item, asyncio.Future[Result]]]) -> None:
        if not batch:
            return
        try:
            results = await self._write([item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who wait
            if len(batch) == 1 or isinstance(error, ConnectionFailed):
                _refuse([future for _, future in batch], error)
                return
            for each in batch:
                await self._write_together([] if each[1].done() else [each])
        except BaseException:
            for _, future in batch:
                future.cancel()
            raise
        else:
            for (_, future), result in zip(batch, results, strict=True):
                if not future.done():
                    future.set_result(result)


def _refuse(futures: Sequence[asyncio.Future[Result]], error: Exception) -> None:
    for future in futures:
        if not future.done():
            future.set_exception(copy_of(error))
