"""Handlers of plain queues: what a function wants to be given, read once from its signature."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from pgqrs.api.message import Message, PlainMessage
from pgqrs.db.tables.messages import Lease
from pgqrs.engine.definitions.signature import signature_of, types_of
from pgqrs.engine.threads import start_thread
from pgqrs.errors import ConfigError
from pgqrs.serialization import decode
from pgqrs.shutdown_budgets import THREAD_SECONDS

if TYPE_CHECKING:
    from pgqrs.api.consumer import Consumer


def caller_of(handler: Callable[[Any], Any], consumer: Consumer) -> Callable[[Lease], Awaitable[object]]:
    """Calls the handler with a delivery: as a Message, or as its payload when its parameter has another type."""
    wanted = _wanted_type(handler)
    if inspect.iscoroutinefunction(_function(handler)):
        if wanted is Message:
            return lambda lease: handler(Message(consumer, lease))
        return lambda lease: handler(decode(lease.payload, wanted))
    loop = asyncio.get_running_loop()
    if wanted is Message:
        return lambda lease: _in_thread(handler, PlainMessage(Message(consumer, lease), loop))
    return lambda lease: _in_thread(handler, decode(lease.payload, wanted))


def _wanted_type(handler: Callable[[Any], Any]) -> Any:
    if not callable(handler):
        raise ConfigError(f"a handler is a function that takes a message, not {handler!r}")
    try:
        signature = signature_of(handler)
        signature.bind(None)
    except ValueError:  # a builtin that does not say what it takes
        return Message
    except TypeError:
        raise ConfigError(f"the handler {handler!r} must take one argument: the message, or its payload") from None
    hint = types_of(inspect.unwrap(_function(handler))).get(next(iter(signature.parameters)), Any)
    return Message if hint is Any else hint


def _function(handler: Any) -> Any:
    """What is behind a partial, or an object that can be called."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler if inspect.isroutine(handler) or inspect.isclass(handler) else handler.__call__


async def _in_thread(handler: Callable[[Any], Any], argument: Any) -> Any:
    """The result; a thread cannot be cancelled, so the end waits for it a while."""
    running = asyncio.wrap_future(start_thread(handler, argument))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait({running}, timeout=THREAD_SECONDS)
        if running.done() and not running.cancelled():
            return running.result()
        raise
