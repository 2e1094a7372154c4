"""How long an end may take: every budget of a stop, each with its reason.

Those who stop processes are not patient: docker and most supervisors kill after ten seconds. Nothing is lost when a
budget is used up: what was not handed back comes back when its lease ends.
"""

from __future__ import annotations

# -- code of users -------------------------------------------------------------------------------------------

# What is at work when a worker, a consumer or a dispatcher is stopped may finish within this, unless its user says
# otherwise; then it is handed back.
GRACE_SECONDS = 10.0
# A plain handler of a queue runs in a thread, which cannot be cancelled: the consumer waits so long for its end. Less
# than QUEUE_FAREWELL_SECONDS, within which what came of it is also settled.
THREAD_SECONDS = 4.0

# -- a database that may not answer --------------------------------------------------------------------------

# A worker waits so long for what it asked before it was told to stop, and once more for handing back and signing off.
# Both together stay below the ten seconds of a supervisor.
WORKER_FAREWELL_SECONDS = 3.0
# One call of an end that must not keep the process; its error is not worth more than a line of the log.
LAST_CALL_SECONDS = 5.0
# A handler of a queue that ends waits so long for its last turn: what is done is archived, the rest is returned.
QUEUE_FAREWELL_SECONDS = 5.0
# A cancelled `dequeue` waits so long until its messages are handed back, and then leaves that to a task: its caller
# wants to go on. A consumer that closes waits as long for such tasks.
DEQUEUE_HAND_BACK_SECONDS = 1.0
# A store that closes waits so long for the calls on its connections to PostgreSQL; then it drops them.
POOL_CLOSE_SECONDS = 5.0
# And so long for its last hints: never needed, so not worth more.
LAST_HINTS_SECONDS = 2.0
# A direct call signs off within this; its caller waits for the result meanwhile.
DIRECT_CALL_FAREWELL_SECONDS = 5.0

# -- processes -----------------------------------------------------------------------------------------------

# What `pgqrs serve` is answering when it is told to stop may finish within this. Whole seconds: uvicorn's own.
SERVE_DRAIN_SECONDS = 1
# The dispatcher beside the worker of `pgqrs dev` gets so long: you saved a file, and wait for the new code.
DEV_DISPATCHER_SECONDS = 2.0
# `pgqrs dev` and `pgqrs demo` kill a process that they told to end after this: longer than handing back takes.
SUBPROCESS_SECONDS = 3.0
# A process of theirs whose parent has ended is told to end, and after this is ended: a database that is away must not
# keep it.
ORPHAN_SECONDS = 8.0
