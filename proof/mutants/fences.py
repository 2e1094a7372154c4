"""Fences left out: somebody who has lost the lease can write after all."""

from proof.mutants.mutant import Edit, Mutant

_STALE = "tests/faults/test_run_leases.py::test_a_stale_token_writes_nothing"
_LATE = "tests/faults/test_lost_leases.py::test_whatever_a_handler_does_after_its_run_was_taken_changes_nothing"
_STALE_HOLDER = "tests/behaviour/test_leases.py::test_a_stale_holder_changes_nothing"
_SETTLING, _SETTLING_PG = "db/settling.py", "db/settling.postgres.sql"
_MESSAGES, _MESSAGES_PG = "db/tables/messages.sql", "db/tables/messages.postgres.sql"

MUTANTS = (
    Mutant(
        "finish-unfenced",
        "a run is ended only by whoever holds it",
        (
            Edit(
                _SETTLING,
                "endings = [(w.fence[0], w.end) for w in mine if",
                "endings = [(w.fence[0], w.end) for w in writes if",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "finish-unfenced-postgres",
        "a run is ended only by whoever holds it",
        (
            Edit(
                _SETTLING_PG,
                "      and m.lease_token = ends.token\n      and m.leased_by is not null\n"
                "      and ends.status in ('SUCCESS', 'ERROR')",
                "      and ends.status in ('SUCCESS', 'ERROR')",
            ),
        ),
        (_STALE,),
        on="postgres",
    ),
    Mutant(
        "step-unfenced",
        "a step is recorded only by whoever holds the run",
        (
            Edit(
                "db/settling.sql",
                "  and m.lease_token = given.token\n  and m.leased_by is not null\n{include _first_wins};",
                "{include _first_wins};",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "step-unfenced-postgres",
        "a step is recorded only by whoever holds the run",
        (Edit(_SETTLING_PG, "      and m.lease_token = steps.token\n      and m.leased_by is not null\n", ""),),
        (_STALE,),
        on="postgres",
    ),
    Mutant(
        "last-steps-unfenced",
        "the steps that come with a run's end are recorded only by whoever holds it",
        (Edit(_SETTLING, "    await record_steps(db, mine)\n", "    await record_steps(db, writes)\n"),),
        (_STALE,),
    ),
    Mutant(
        "yield-unfenced",
        "only whoever holds a run can put it to rest",
        (
            Edit(
                _SETTLING,
                "yieldings = [(w.fence[0], w.end) for w in mine if",
                "yieldings = [(w.fence[0], w.end) for w in writes if",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "yield-unfenced-postgres",
        "only whoever holds a run can put it to rest",
        (
            Edit(
                _SETTLING_PG,
                "      and m.lease_token = ends.token\n      and m.leased_by is not null\n"
                "      and ends.status in ('PENDING', 'RUNNING', 'PAUSED')",
                "      and ends.status in ('PENDING', 'RUNNING', 'PAUSED')",
            ),
        ),
        (_STALE,),
        on="postgres",
    ),
    Mutant(
        "handed-back-still-held",
        "whoever has handed a run back does not hold it any more, although its token is the newest",
        (
            Edit(
                "db/settling.sql",
                "  and m.lease_token = given.token\n  and m.leased_by is not null\norder by m.message_id",
                "  and m.lease_token = given.token\norder by m.message_id",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "extend-unfenced",
        "a heartbeat renews only its own lease",
        (
            Edit(
                _MESSAGES,
                "  and lease_token = given.token\n  and leased_by is not null\nreturning message_id;\n\n"
                "-- name: release_messages",
                "returning message_id;\n\n-- name: release_messages",
            ),
        ),
        (_STALE_HOLDER,),
    ),
    Mutant(
        "archive-unfenced",
        "a message is archived only by whoever holds it",
        (
            Edit(
                _MESSAGES,
                "  and m.lease_token = given.token\n  and m.leased_by is not null\nreturning message_id;\n\n"
                "-- name: remove_messages",
                "returning message_id;\n\n-- name: remove_messages",
            ),
        ),
        (_STALE_HOLDER,),
    ),
    Mutant(
        "archive-unfenced-postgres",
        "a message is archived only by whoever holds it",
        (
            Edit(
                _MESSAGES_PG,
                "      and m.lease_token = given.token\n      and m.leased_by is not null\n    returning m.*",
                "    returning m.*",
            ),
        ),
        (_STALE_HOLDER,),
        on="postgres",
    ),
    Mutant(
        "delete-unfenced",
        "a message is deleted only by whoever holds it",
        (
            Edit(
                _MESSAGES,
                "      and m.lease_token = given.token\n      and m.leased_by is not null\n)\nreturning message_id;",
                ")\nreturning message_id;",
            ),
        ),
        (_STALE_HOLDER,),
    ),
    Mutant(
        "done-unfenced-postgres",
        "what a handler did under a lost lease is not archived",
        (Edit(_MESSAGES_PG, "      and m.lease_token = done.token\n      and m.leased_by is not null\n", ""),),
        ("tests/behaviour/test_handlers.py::test_what_was_done_under_a_lost_lease_is_not_archived_and_said",),
        on="postgres",
    ),
    Mutant(
        "release-unfenced",
        "a message is released only by whoever holds it",
        (
            Edit(
                _MESSAGES,
                "from {rows given: id id, token id}\nwhere message_id = given.id\n  and lease_token = given.token\n"
                "  and leased_by is not null\n",
                "from {rows given: id id, token id}\nwhere message_id = given.id\n",
            ),
        ),
        (_STALE_HOLDER,),
    ),
    Mutant(
        "hand-back-unfenced",
        "a handler that fails under a lost lease does not hand the message back under its new holder",
        (
            Edit(
                _MESSAGES,
                "seconds seconds, attempts int}\nwhere message_id = given.id\n  and lease_token = given.token\n"
                "  and leased_by is not null\n",
                "seconds seconds, attempts int}\nwhere message_id = given.id\n",
            ),
        ),
        ("tests/faults/test_lost_leases.py::test_a_message_that_fails_under_a_lost_lease_stays_with_its_new_holder",),
    ),
    Mutant(
        "transact-unfenced",
        "a transactional step is carried out only by whoever holds the run",
        (
            Edit(
                "db/claims.py",
                "    if not await settling.hold(db, [fence]):\n"
                "        return None\n"
                "    if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:\n"
                '        return found.output or "null"',
                "    if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:\n"
                '        return found.output or "null"',
            ),
        ),
        (_LATE,),
    ),
    Mutant(
        "spawn-unfenced",
        "children are started only by whoever holds the run",
        (
            Edit(
                "db/claims.py",
                "    if not await settling.hold(db, [fence]):\n"
                "        return None\n"
                "    if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:\n"
                "        return [int",
                "    if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:\n"
                "        return [int",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "take-signal-unfenced",
        "a signal is consumed only by whoever holds the run",
        (
            Edit(
                "db/claims.py",
                "    if not await settling.hold(db, [fence]):\n        return False, None\n",
                "",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "emission-unfenced",
        "what a lost attempt emits is not published",
        (
            Edit(
                _SETTLING,
                "[each for write in news if write.fence in held for each in write.emissions]",
                "[each for write in news for each in write.emissions]",
            ),
        ),
        ("tests/behaviour/test_history.py::test_a_stale_worker_emits_nothing",),
    ),
    Mutant(
        "progress-unfenced",
        "progress is shown only by whoever holds the run",
        (
            Edit(
                "db/claims.py",
                '    if await settling.hold(db, [fence]):\n        await db.execute(_SQL["show_progress"]',
                '    if fence:\n        await db.execute(_SQL["show_progress"]',
            ),
        ),
        (_LATE,),
    ),
    Mutant(
        "start-unfenced-postgres",
        "a claim that a pause has overtaken does not start the run",
        (
            Edit(
                "db/claims.postgres.sql",
                "      and m.lease_token = given.token\n      and m.leased_by is not null\n    {lock m}",
                "    {lock m}",
            ),
        ),
        ("tests/faults/test_run_leases.py::test_a_claim_that_is_overtaken_by_a_pause_does_not_start_the_run",),
        on="postgres",
    ),
    Mutant(
        "cancel-does-not-fence",
        "whoever executes a cancelled run can write no more",
        (Edit("db/lifecycle.py", "    await delete_messages(db, cancelled)\n", ""),),
        (_STALE,),
    ),
    Mutant(
        "pause-does-not-fence",
        "whoever executes a paused run can write no more",
        (
            Edit(
                "db/lifecycle.sql",
                "    leased_by = null,\n    lease_token = {next_token lease_token}\nwhere run_id = :run_id;\n\n"
                "-- name: children_of",
                "    lease_token = lease_token\nwhere run_id = :run_id;\n\n-- name: children_of",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "deleting-does-not-fence",
        "whoever executes a deleted run can write no more",
        (
            Edit(
                "db/lifecycle.sql",
                "    leased_by = null,\n    lease_token = {next_token lease_token}\nwhere run_id = :run_id;\n\n"
                "-- name: mark_restored",
                "    lease_token = lease_token\nwhere run_id = :run_id;\n\n-- name: mark_restored",
            ),
        ),
        ("tests/behaviour/test_deleting.py::test_whoever_runs_a_deleted_run_writes_nothing",),
    ),
    Mutant(
        "restart-keeps-the-token",
        "whoever executes a run that is restarted can write no more",
        (
            Edit(
                "db/lifecycle.sql",
                "    leased_by = null,\n    attempts = 0,\n"
                "    lease_token = {next_token pgqrs_messages.lease_token};",
                "    attempts = 0;",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "worker-taken-from-not-fenced",
        "what is taken from a worker is not its any more",
        (
            Edit(
                _MESSAGES,
                "set visible_after = {now},\n    leased_by = null,\n    attempts = case when attempts > 0",
                "set visible_after = {now},\n    attempts = case when attempts > 0",
            ),
        ),
        ("tests/behaviour/test_leases.py::test_everything_a_worker_holds_can_be_taken_from_it",),
    ),
    Mutant(
        "outbox-mark-unfenced",
        "a dispatcher that lost its claim changes nothing",
        (
            Edit(
                "db/tables/outbox.sql",
                "    last_error = null\nwhere event_id = :event_id\n  and lease_token = :token\n",
                "    last_error = null\nwhere event_id = :event_id\n",
            ),
        ),
        ("tests/behaviour/test_outbox.py::test_a_dispatcher_that_lost_its_claim_changes_nothing",),
    ),
    Mutant(
        "outbox-failure-unfenced",
        "a dispatcher that lost its claim counts no attempt",
        (
            Edit(
                "db/tables/outbox.sql",
                "    dead_at = case when attempts >= :max_attempts - 1 then {now} end,\n"
                "    lease_token = -lease_token\n"
                "where event_id = :event_id\n  and lease_token = :token\n",
                "    dead_at = case when attempts >= :max_attempts - 1 then {now} end,\n"
                "    lease_token = -lease_token\n"
                "where event_id = :event_id\n",
            ),
        ),
        ("tests/behaviour/test_outbox.py::test_a_dispatcher_that_lost_its_claim_changes_nothing",),
    ),
)
