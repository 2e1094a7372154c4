"""From the thread of a plain handler to the event loop and back: what it asks for is awaited there, in its branch."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from pgqrs.engine.ctx.wait import Waiter
from pgqrs.engine.replay.branches import Branch, current_body, current_branch, handled_error, handled_here
from pgqrs.engine.replay.run_pass import RunPass
from pgqrs.errors import InvalidTransition, NotAllowedInStep

# True while `first` asks a plain handler's functions which waits they are about: then a wait is not begun.
only_named_waits: contextvars.ContextVar[bool] = contextvars.ContextVar("pgqrs_only_named", default=False)


def in_root(root: Branch, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls a plain handler, in the thread that is its own."""
    root.thread = threading.get_ident()
    return function(*args, **kwargs)


def branch_here() -> Branch | None:
    """The part of the handler whose thread this is; None in a thread that the handler started by itself.

    Such a thread may have the context variables of a part: `asyncio.to_thread` and `copy_context` give it these.
    """
    branch = current_branch.get()
    return branch if branch is not None and branch.thread == threading.get_ident() else None


def _handled_in(thread: int | None) -> BaseException | None:
    """The error that another thread is handling: the handler, whose `except` block waits for threads of its own."""
    found: Any = sys._current_exceptions().get(thread or 0)  # noqa: SLF001 - there is no other way
    # Python 3.11 gives three values.
    error: BaseException | None = found[1] if isinstance(found, tuple) else found
    return error


def awaited(verb: Callable[[], Any], run_pass: RunPass, loop: asyncio.AbstractEventLoop) -> Any:
    """What the verb gives, called and awaited on the event loop in the branch that asks here."""
    if current_body.get() is not None:
        return verb()
    branch, only_named, handled = branch_here(), only_named_waits.get(), handled_here()
    if branch is None and handled is None:
        handled = _handled_in(run_pass.root.thread)

    async def asked_there() -> Any:
        current_branch.set(branch)
        handled_error.set(handled)
        asked = verb()
        return asked if only_named and isinstance(asked, Waiter) else await asked

    return over_there(asked_there(), run_pass, loop)


def over_there(work: Coroutine[Any, Any, Any], run_pass: RunPass, loop: asyncio.AbstractEventLoop) -> Any:
    """On the event loop, as a task that is no branch of the handler's."""
    if run_pass.is_on_its_loop():
        # Waiting for the loop would stop it, and all runs of this worker with it.
        work.close()
        raise NotAllowedInStep(
            "the context of a plain workflow waits for what it is asked, and an async function cannot: call it in "
            "the workflow itself, or make the step a plain def"
        )
    if loop.is_closed():
        work.close()
        raise InvalidTransition("the call that executed this run has ended, and its context cannot be used any more")

    async def kept() -> tuple[Any, Exception | None]:
        # As a value: a future that is waited for in another thread gives some errors, TimeoutError among them, as
        # another object of their class. The handler must get the very error that was recorded.
        try:
            return await work, None
        except Exception as error:  # noqa: BLE001 - raised again below
            return None, error

    context = contextvars.copy_context()
    context.run(current_branch.set, None)
    try:
        result, error = context.run(asyncio.run_coroutine_threadsafe, kept(), loop).result()
    except concurrent.futures.CancelledError:
        # An Exception, unlike the cancellation it stands for: no handler's `except` is to see it.
        run_pass.check_usable()
        raise asyncio.CancelledError from None
    # Not above: a handler may raise a CancelledError of concurrent.futures, too, and that is its own.
    if error is not None:
        raise error
    return result
