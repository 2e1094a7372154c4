"""The threads of plain handlers and steps."""

import asyncio
import os
import signal

from pgqrs.engine.threads import in_thread


async def test_a_forked_child_starts_threads_of_its_own():
    await in_thread(int)  # from now on one is idle, in the parent only

    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(asyncio.run(in_thread(int)))
    _, status = await asyncio.to_thread(os.waitpid, child, 0)

    assert status == 0
