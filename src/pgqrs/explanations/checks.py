"""The checks of the doctor: what each looks at, why it fails, and what to do."""

from __future__ import annotations

CHECKS: dict[str, tuple[str, str, str]] = {
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
        (
            "Start them again. What they held comes back with its lease; sooner with `pgqrs worker release ID...`. "
            "`pgqrs worker stop ID...` signs off those that are gone; a retention policy for `workers` removes them."
        ),
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
