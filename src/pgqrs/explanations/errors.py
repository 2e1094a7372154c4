"""The errors of pgqrs: what each means, why it happens, and what to do."""

from __future__ import annotations

ERRORS: dict[str, tuple[str, str, str]] = {
    "pgqrs-error": (
        "Something that pgqrs noticed itself; the message says what.",
        "All other errors are kinds of this one: catching it catches them all.",
        "Read the message; it names the thing and the way out.",
    ),
    "config-error": (
        "A setting, a name or an argument cannot be right. Nothing was written.",
        "A DSN, a variable, a line of [tool.pgqrs], a name with characters that may not be in it.",
        "Correct what the message names. `pgqrs config show` says where each setting comes from.",
    ),
    "invalid-arguments": (
        "The arguments do not fit the parameters of the workflow. Nothing was triggered.",
        "A misspelt or missing name, a value of another type, an argument that the code does not take (any more).",
        "Correct the argument that the message names. A worker tells what its workflows take when it starts.",
    ),
    "connection-failed": (
        "The database cannot be reached, or the connection broke. If `ambiguous`, the call may be carried out.",
        "The server is down or refuses, the file is locked by a long transaction, the disk is full or read-only.",
        "`pgqrs doctor` tells what it can reach. Workers go on trying by themselves; what was acknowledged is safe.",
    ),
    "schema-not-installed": (
        "The tables of pgqrs are not in this database, or not in this schema.",
        "A new PostgreSQL database, another --schema than usual, a DSN of another database.",
        "Run `pgqrs install` with the same DSN and schema, or connect with install=True.",
    ),
    "schema-mismatch": (
        "The tables are of another version, or another shape, than this code works with.",
        "pgqrs was upgraded and the tables were not, or the other way round; or other hands or programs made them.",
        (
            "Older tables: `pgqrs install`. Newer ones: upgrade pgqrs here. Another program's: "
            "set another PGQRS_SCHEMA. `pgqrs schema verify` names what is missing."
        ),
    ),
    "store-promoted": (
        "`pgqrs promote` has moved all that was in this file to PostgreSQL; it is not used any more.",
        "A process still has the old DSN.",
        "Set PGQRS_DSN, or what you connect with, to the database that the message names; start the process again.",
    ),
    "not-found": (
        "Something was named that does not exist.",
        "A misspelt name, an id of another database, or retention has deleted it.",
        "Look at the list: `pgqrs queue list`, `pgqrs workflow list`, `pgqrs run list`.",
    ),
    "queue-not-found": (
        "There is no queue of that name.",
        "It was never created in this database, or its name is misspelt.",
        "`pgqrs queue create NAME`, or store.create_queue(...). `pgqrs queue list` shows those that are there.",
    ),
    "workflow-not-found": (
        "There is no workflow of that name.",
        "No worker with its code has ever started here, and nobody created it; or its name is misspelt.",
        "Start a worker that has its code, or `pgqrs workflow create NAME`. `pgqrs workflow list` shows them all.",
    ),
    "schedule-not-found": (
        "There is no schedule of that name.",
        "It was deleted, or its name is misspelt.",
        "`pgqrs schedule list` shows those that are there; `pgqrs schedule create` makes one.",
    ),
    "run-not-found": (
        "There is no run of that id, or it is a run of another workflow.",
        "The id is one of another database, or retention has deleted the run for good.",
        "`pgqrs run list` finds runs; `pgqrs run get ID` looks at one whatever its workflow is.",
    ),
    "run-deleted": (
        "The run was there, and somebody deleted it before it ended.",
        "`pgqrs run delete`, with the reason that the message shows.",
        "`pgqrs run restore ID` takes that back, until retention removes it for good.",
    ),
    "no-active-worker": (
        "The run was not triggered: nobody is there who would execute it, and the trigger asked to be told.",
        "require_worker=True or Config(require_workers=True), and no live worker serves the workflow.",
        "Start one with `pgqrs worker run APP`, or trigger without require_worker: the run then waits for one.",
    ),
    "idempotency-conflict": (
        "The idempotency key belongs to another run: one of another workflow, or with another input.",
        "Two different requests were given one key; or the code that makes the input has changed between two tries.",
        "Use a key for each request. To free a key, delete the run that has it.",
    ),
    "invalid-transition": (
        "The thing is not in a state that allows this; nothing was changed.",
        "An ended run cannot be cancelled; a live one cannot be restarted; a queue with messages cannot be deleted.",
        "`pgqrs run get ID` shows its status and its allowed_actions.",
    ),
    "already-completed": (
        "The run has ended in SUCCESS: there is nothing to restart.",
        "A restart, or a direct call, of a run that has its result already.",
        "Take the result: `pgqrs run result ID`. To run it again from the start: `pgqrs run reset ID`.",
    ),
    "step-failed": (
        "Stands in for the error of a step whose class this program cannot find or cannot build.",
        "The class is local to a function, was removed, or is one of a module that the program does not import.",
        "Catch StepFailed and look at its `kind` and `attributes`, or define the class at the top level of a module.",
    ),
    "not-recorded": (
        "A handler used an attribute of a step's error that is not in the record.",
        "The value cannot be stored (a response, a socket, a class without annotation), or is too large.",
        "Read the attribute inside the step; raise an error with the data that the handler needs, or return it.",
    ),
    "outcome-unknown": (
        "A step that must not run twice began in an earlier attempt, and how that ended is unknown.",
        "Its policy says `retry_unknown=False`, and the worker died, lost its lease or ran into the step's timeout.",
        "Find out whether the step did its work; then restart the run, or catch OutcomeUnknown in the workflow.",
    ),
    "execution-failed": (
        "The run that was waited for has ended in ERROR.",
        "Its handler raised a PermanentError, or failed in each of max_attempts attempts.",
        "`pgqrs run get ID` shows the error. Once fixed: `pgqrs run restart ID`, or `retry-children` of its parent.",
    ),
    "run-cancelled": (
        "The run that was waited for was cancelled.",
        "Somebody cancelled it, or its parent; the message has the reason.",
        "`pgqrs run events ID` tells who. `pgqrs run restart ID` continues where it stopped.",
    ),
    "wait-timeout": (
        "What was waited for did not happen in time. It may still happen.",
        "The timeout is over; the run goes on, or does not move.",
        "`pgqrs run why ID` says why it does not move. Wait again, with a longer timeout.",
    ),
    "serialization-error": (
        "A value would not come back as it went in; `path` says where it is. Nothing was written.",
        "NaN, a lone surrogate, a NUL character, a type that is not known, a stored text of another type.",
        "Pass plain data, a dataclass, an attrs, msgspec or pydantic class: see docs/reference/values.md.",
    ),
    "payload-too-large": (
        "The encoded value is larger than max_payload_bytes. Nothing was written.",
        "An input, a result or a message of more than 2 MiB, unless the setting says otherwise.",
        "Store it elsewhere and pass a reference; or raise PGQRS_MAX_PAYLOAD_BYTES.",
    ),
    "lease-lost": (
        "Another consumer or worker has leased the message, or it is gone; nothing was written.",
        "The process stood still for longer than its lease, the database was away, or somebody cancelled the run.",
        "Nothing: whoever holds it goes on. If it happens often: a longer lease_seconds, or shorter steps.",
    ),
    "publish-failed": (
        "A receiver did not take an event of the outbox.",
        "It answered with an error, not at all, or its address is one that may not be called.",
        "The dispatcher tries again by itself. `pgqrs outbox dead` shows what it gave up; `outbox replay`.",
    ),
    "non-determinism": (
        "A replay asked for different steps than the recorded ones. The run is parked and nothing of it is lost.",
        "Its code has changed, or depends on the clock, chance, sets, globals or the order of completion.",
        (
            "Deploy the code it began with, then `pgqrs run resume ID`. If the code has not changed: fix what "
            "`pgqrs lint` or `assert_deterministic` finds, then `pgqrs run reset ID`."
        ),
    ),
    "permanent-error": (
        "A handler said that trying again will not help; the run ends in ERROR.",
        "Your code raised it.",
        "Mend what the message names, then `pgqrs run restart ID`.",
    ),
    "not-allowed-in-step": (
        "A wait, a step or a child run was asked for inside the body of a step; the run ends in ERROR.",
        "A step's body called `ctx.sleep`, `ctx.wait_for`, `ctx.spawn`, `ctx.step` or a decorated workflow.",
        "Move the call out of the step, into the body of the workflow. Deploy that, then `pgqrs run restart ID`.",
    ),
    "transient-error": (
        "A handler asked to be tried again later.",
        "Your code raised it; `retry_after` says when, else the usual backoff does.",
        "Nothing: it is tried again until max_attempts.",
    ),
    "pause-error": (
        "A handler asked to wait for something outside.",
        "Your code raised it; the run is PAUSED.",
        "`pgqrs run resume ID` lets it go on.",
    ),
    "unexpected": (
        "Something that pgqrs did not raise on purpose.",
        "An error of your own code, of a library, or a bug of ours.",
        "The traceback says where. If it is in pgqrs, please report it.",
    ),
}
