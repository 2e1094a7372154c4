"""What errors, the causes of `why` and the doctor's checks mean, why they happen, and what to do.

For `pgqrs explain` and docs/reference/errors.md. The code of an error is `errors.code_of` it, that of a cause the
word that `why` gives, that of a check the word that the doctor gives. They stay the same.
"""

from __future__ import annotations

from typing import NamedTuple


class Explanation(NamedTuple):
    """A code, and three sentences for people."""

    code: str
    # error, cause, check (of doctor), invariant or rule (of lint)
    kind: str
    means: str
    happens: str
    do: str


_ERRORS: dict[str, tuple[str, str, str]] = {
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

_CAUSES: dict[str, tuple[str, str, str]] = {
    "deleted": (
        "The run was deleted: no worker can take it.",
        "`pgqrs run delete`, or a bulk deletion.",
        "`pgqrs run restore ID`, until retention removes it for good.",
    ),
    "succeeded": (
        "The run has ended in SUCCESS.",
        "Its handler returned.",
        "Nothing. `pgqrs run result ID` prints what it returned.",
    ),
    "cancelled": (
        "The run was cancelled.",
        "Somebody cancelled it or its parent.",
        "`pgqrs run restart ID` continues where it stopped; `retry-children` does so with its cancelled children.",
    ),
    "failed": (
        "The run has ended in ERROR.",
        "Its handler failed in each of its attempts, or for good.",
        "Fix the cause, then `pgqrs run restart ID`, or `pgqrs run retry-children ID` if it failed because of those.",
    ),
    "dead_letter": (
        "The run has ended in ERROR because its worker was lost in every attempt.",
        "Something in it kills the process: memory, a crash in a library, a machine that goes away.",
        "Look at the workers' logs at its attempts; then `pgqrs run restart ID`.",
    ),
    "queue_paused": (
        "Nothing is taken from its queue.",
        "`pgqrs queue pause` or `pgqrs workflow pause`.",
        "`pgqrs queue resume NAME`.",
    ),
    "leased": (
        "A worker is at work on it, and renews its lease.",
        "A step takes its time.",
        "Nothing. `pgqrs run steps ID` shows how far it is.",
    ),
    "holder_silent": (
        "A worker holds it, and has not been heard of for three leases.",
        "The process is gone, stands still, or cannot reach the database.",
        "Nothing: another worker takes over when the lease ends. Sooner: `pgqrs worker release WORKER`.",
    ),
    "no_worker": (
        "No worker that is registered serves its workflow.",
        "None has been started with its code, or those that were have stopped.",
        "`pgqrs worker run APP`, with an application that has the workflow.",
    ),
    "workers_stale": (
        "The workers of its workflow never said goodbye, but have not been heard of for three leases.",
        "They were killed, or cannot reach the database.",
        "Start them again: `pgqrs worker run APP`.",
    ),
    "no_handler": (
        "Workers take its workflow by its prefix, but have no code for it.",
        "The code that has it is not deployed there yet, or was renamed.",
        "Deploy the code. After no_handler_grace_seconds the run ends in ERROR; `pgqrs run restart ID` then.",
    ),
    "parked": (
        "Its code asks for different steps than the recorded ones.",
        "The handler was changed while the run was under way, or is not deterministic.",
        (
            "Deploy the code that it began with, then `pgqrs run resume ID`. To restart it from scratch: "
            "`pgqrs run reset ID`. More: `pgqrs explain non-determinism`."
        ),
    ),
    "paused": (
        "Somebody paused it.",
        "`pgqrs run pause`, with the reason that is shown.",
        "`pgqrs run resume ID`.",
    ),
    "waiting_for_children": (
        "It waits for runs that it spawned.",
        "They have not ended yet.",
        "`pgqrs run why CHILD` asks the same of the first of them.",
    ),
    "waiting_for_signal": (
        "It waits for a signal, perhaps up to a deadline.",
        "ctx.wait_for(NAME) in its handler.",
        "`pgqrs run signal ID NAME`, or `pgqrs run approve ID`.",
    ),
    "waiting_for_person": (
        "It waits for a person.",
        "ctx.pause(...) or a PauseError in its handler.",
        "`pgqrs run resume ID`, with --step and --data where it asks for an answer.",
    ),
    "asleep": (
        "It sleeps until the time that is shown.",
        "ctx.sleep(...) in its handler.",
        "Nothing: it wakes by itself. Sooner: `pgqrs run resume ID`.",
    ),
    "backing_off": (
        "It failed, and is tried again at the time that is shown.",
        "An error that may go away by itself.",
        "Wait, or fix the cause. `pgqrs run resume ID` starts the next attempt now.",
    ),
    "scheduled": (
        "It is to begin later.",
        "It was triggered with --at or --in, or a worker had no code for it a moment ago.",
        "Nothing.",
    ),
    "lease_expired": (
        "Its worker's lease ran out.",
        "The worker was lost, or stood still.",
        "Nothing: the next worker that looks takes it; after its last attempt it ends in ERROR.",
    ),
    "ready": (
        "It is due, and waits for a free worker.",
        "The workers have as many runs as they may, or have not looked yet.",
        "Nothing; if it takes long, more workers or a higher --concurrency.",
    ),
}


# What the doctor looks at.
_CHECKS: dict[str, tuple[str, str, str]] = {
    "database": (
        "Which database it is, and whether it answers.",
        "It is down, refuses, is a standby, or of a version that nobody mends any more.",
        "Correct PGQRS_DSN, start the server, or upgrade it.",
    ),
    "schema": (
        "Whether every table, column and index is there.",
        "`pgqrs install` was not run after an upgrade, or somebody changed the tables.",
        "`pgqrs install`; if something is missing at the right version, restore it from a backup.",
    ),
    "durability": (
        "Whether what is acknowledged survives a crash of the machine.",
        "fsync or synchronous_commit is off, or the database is in memory.",
        "Switch them on. A large write-ahead log of SQLite: end the transaction that reads it.",
    ),
    "clock": (
        "Whether this machine and the server agree on the time.",
        "No NTP, or a machine that slept. The server's clock decides on leases and schedules.",
        "Set both clocks by NTP.",
    ),
    "encryption": (
        "Whether the connection to another machine is encrypted.",
        "The server has no certificate, or the DSN says sslmode=disable.",
        "Add ?sslmode=verify-full to the DSN.",
    ),
    "autovacuum": (
        "Whether PostgreSQL cleans up after leases.",
        "autovacuum is off, too slow, or held up by a long transaction.",
        "Switch it on; end the long transaction; `vacuum` the table once.",
    ),
    "transactions": (
        "Whether a transaction is open for so long that nothing can be cleaned up.",
        "A forgotten psql, a report, an application that waits inside a transaction.",
        "End it with the statement that is shown; set idle_in_transaction_session_timeout.",
    ),
    "connections": (
        "Whether the server has room for this store's connections.",
        "Many processes, each with a pool of pool_size.",
        "A smaller PGQRS_POOL_SIZE, a larger max_connections, or PgBouncer.",
    ),
    "hints": (
        "Whether a hint that is sent arrives, so that waiting workers hear of new work at once.",
        "A pooler in transaction mode takes LISTEN and delivers nothing.",
        "Set PGQRS_LISTEN_DSN to the server itself. Without it polling finds all work, a little later.",
    ),
    "package": (
        "Another distribution brings a package `pgqrs` into the environment of pgqrs-durable.",
        "`pgqrs` on the package index is another project; or an older clone was installed by that name.",
        "Uninstall both, then install pgqrs-durable again: the finding shows the commands.",
    ),
    "old_tables": (
        "Whether tables of the former layout are still there.",
        "They were renamed for import_v1 and never removed.",
        "Import them with admin.import_v1(), then remove them.",
    ),
    "file_permissions": (
        "Whether others than its owner have access to the file.",
        "It was made by another program, or copied.",
        "chmod 600 on the file and what stands beside it.",
    ),
    "file_system": (
        "Whether the file is where it lasts, and where locks work.",
        "It is on a network, in memory, or in a container's own layer.",
        "Put it on a local disk or a volume; for several machines use PostgreSQL: `pgqrs promote`.",
    ),
    "disk_space": (
        "Whether the file can grow.",
        "The disk is nearly full.",
        "`pgqrs prune`, or a larger disk.",
    ),
    "workers": (
        "Whether workers vanished without a word.",
        "They were killed, or cannot reach the database.",
        "Start them again. What they held comes back with its lease, or at once with `pgqrs worker release ID`.",
    ),
    "unserved": (
        "Whether work is due that no live worker takes.",
        "No worker with that code is running.",
        "`pgqrs worker run APP`; for a plain queue, start its consumer.",
    ),
    "handlers": (
        "Whether workers take runs by a prefix and have no code for them.",
        "New workflows whose code is not deployed there.",
        "Deploy the code, or serve that prefix with a worker that has it.",
    ),
    "paused_queues": (
        "Whether a queue with work in it is paused.",
        "`pgqrs queue pause` or `pgqrs workflow pause`, forgotten.",
        "`pgqrs queue resume NAME`.",
    ),
    "dead_letters": (
        "Whether messages were tried as often as they may be.",
        "Their handler fails each time, or kills its process.",
        "Look with `pgqrs queue dead NAME`, mend the cause, then `pgqrs queue replay NAME`.",
    ),
    "outbox": (
        "Whether events are published.",
        "No dispatcher is running, or a receiver fails.",
        "`pgqrs outbox dispatch APP`; `pgqrs outbox list` shows the errors, `outbox replay` tries dead ones anew.",
    ),
    "schedules": (
        "Whether schedules fire in time.",
        "No worker is running with maintenance on, or a schedule's workflow is gone.",
        "Start a worker; `pgqrs schedule get NAME` shows the error.",
    ),
    "retention": (
        "Whether what has ended is ever deleted.",
        "No policy was set.",
        "`pgqrs prune --recommended`.",
    ),
    "unreadable": (
        "Whether rows can be read: the newest of each table, with --verify all of them.",
        "A client with SQL, a tool or a person wrote rows past pgqrs: a date BC, infinity, broken JSON.",
        "Run the statement that is shown, and look again. Give tenants `pgqrs_trigger`, not the tables.",
    ),
    "invariants": (
        "Whether what must always hold of the tables does; only with --verify.",
        "A bug, a broken disk, or somebody who changed rows by hand.",
        "Keep a copy of the database, and report it with what is shown.",
    ),
}


def _of(kind: str, texts: dict[str, tuple[str, str, str]]) -> dict[str, Explanation]:
    return {code: Explanation(code, kind, *text) for code, text in texts.items()}


ERRORS = _of("error", _ERRORS)
CAUSES = _of("cause", _CAUSES)
CHECKS = _of("check", _CHECKS)
