"""Fences left out: somebody who has lost the lease can write after all."""

from proof.mutants.mutant import Edit, Mutant

_STALE = "tests/faults/test_run_leases.py::test_a_stale_token_writes_nothing"
_LATE = "tests/faults/test_lost_leases.py::test_whatever_a_handler_does_after_its_run_was_taken_changes_nothing"
_STALE_HOLDER = "tests/behaviour/test_leases.py::test_a_stale_holder_changes_nothing"

MUTANTS = (
    Mutant(
        "finish-unfenced",
        "a run is ended only by whoever holds it",
        (
            Edit(
                "db.runs.settlement:_settle_by_parts",
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
                "db/runs/settlement.postgres.sql:settle",
                "and m.lease_token = ends.token\n"
                "and m.leased_by is not null\n"
                "and ends.status in ('SUCCESS', 'ERROR')",
                "and ends.status in ('SUCCESS', 'ERROR')",
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
                "db/runs/settlement.sql:record_held_steps",
                "and m.lease_token = given.token\nand m.leased_by is not null\n",
                "",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "step-unfenced-postgres",
        "a step is recorded only by whoever holds the run",
        (
            Edit(
                "db/runs/settlement.postgres.sql:_held_and_recorded",
                "and m.lease_token = steps.token\nand m.leased_by is not null\n",
                "",
            ),
        ),
        (_STALE,),
        on="postgres",
    ),
    Mutant(
        "last-steps-unfenced",
        "the steps that come with a run's end are recorded only by whoever holds it",
        (
            Edit(
                "db.runs.settlement:_settle_by_parts",
                "await record_steps(db, mine)\n",
                "await record_steps(db, writes)\n",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "yield-unfenced",
        "only whoever holds a run can put it to rest",
        (
            Edit(
                "db.runs.settlement:_settle_by_parts",
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
                "db/runs/settlement.postgres.sql:settle",
                "and m.lease_token = ends.token\n"
                "and m.leased_by is not null\n"
                "and ends.status in ('PENDING', 'RUNNING', 'PAUSED')",
                "and ends.status in ('PENDING', 'RUNNING', 'PAUSED')",
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
                "db/runs/settlement.sql:hold",
                "and m.leased_by is not null\n",
                "",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "extend-unfenced",
        "a heartbeat renews only its own lease",
        (
            Edit(
                "db/tables/messages.sql:_extended",
                "and lease_token = given.token\nand leased_by is not null\n",
                "",
            ),
        ),
        (_STALE_HOLDER,),
    ),
    Mutant(
        "archive-unfenced",
        "a message is archived only by whoever holds it",
        (
            Edit(
                "db/tables/messages.sql:copy_to_archive",
                "and m.lease_token = given.token\nand m.leased_by is not null\n",
                "",
            ),
        ),
        (_STALE_HOLDER,),
    ),
    Mutant(
        "archive-unfenced-postgres",
        "a message is archived only by whoever holds it",
        (
            Edit(
                "db/tables/messages.postgres.sql:archive_messages",
                "and m.lease_token = given.token\nand m.leased_by is not null\n",
                "",
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
                "db/tables/messages.sql:delete_messages",
                "and m.lease_token = given.token\nand m.leased_by is not null\n",
                "",
            ),
        ),
        (_STALE_HOLDER,),
    ),
    Mutant(
        "done-unfenced-postgres",
        "what a handler did under a lost lease is not archived",
        (
            Edit(
                "db/tables/messages.postgres.sql:_settled",
                "and m.lease_token = done.token\nand m.leased_by is not null\n",
                "",
            ),
        ),
        ("tests/behaviour/test_handlers.py::test_what_was_done_under_a_lost_lease_is_not_archived_and_said",),
        on="postgres",
    ),
    Mutant(
        "release-unfenced",
        "a message is released only by whoever holds it",
        (
            Edit(
                "db/tables/messages.sql:release_messages",
                "and lease_token = given.token\nand leased_by is not null\n",
                "",
            ),
        ),
        (_STALE_HOLDER,),
    ),
    Mutant(
        "hand-back-unfenced",
        "a handler that fails under a lost lease does not hand the message back under its new holder",
        (
            Edit(
                "db/tables/messages.sql:hand_back",
                "and lease_token = given.token\nand leased_by is not null\n",
                "",
            ),
        ),
        ("tests/faults/test_lost_leases.py::test_a_message_that_fails_under_a_lost_lease_stays_with_its_new_holder",),
    ),
    Mutant(
        "transact-unfenced",
        "a transactional step is carried out only by whoever holds the run",
        (
            Edit(
                "db.runs.claims:transact",
                "if not await (settlement.hold(db, [fence]) "
                "if is_second else messages.still_held(db, [fence[1:]])):\n"
                "    return None\n",
                "",
            ),
            Edit(
                "db.runs.claims:transact",
                "if not is_second and not await settlement.hold(db, [fence]):\n"
                '    raise LostMeanwhile(f"run {fence[0]}")\n',
                "",
            ),
        ),
        (_LATE,),
    ),
    Mutant(
        "spawn-unfenced",
        "children are started only by whoever holds the run",
        (
            Edit(
                "db.runs.claims:spawn",
                "if not await settlement.hold(db, [fence]):\n    return None\n",
                "",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "take-signal-unfenced",
        "a signal is consumed only by whoever holds the run",
        (
            Edit(
                "db.runs.claims:take_signal",
                "if not await settlement.hold(db, [fence]):\n    return False, None\n",
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
                "db.runs.settlement:commit",
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
                "db.runs.claims:show_progress",
                "if await settlement.hold(db, [fence]):\n",
                "if fence:\n",
            ),
        ),
        (_LATE,),
    ),
    Mutant(
        "start-unfenced-postgres",
        "a claim that a pause has overtaken does not start the run",
        (
            Edit(
                "db/runs/claims.postgres.sql:start_runs",
                "and m.lease_token = given.token\nand m.leased_by is not null\n",
                "",
            ),
        ),
        ("tests/faults/test_run_leases.py::test_a_claim_that_is_overtaken_by_a_pause_does_not_start_the_run",),
        on="postgres",
    ),
    Mutant(
        "cancel-does-not-fence",
        "whoever executes a cancelled run can write no more",
        (Edit("db.runs.transitions:cancel", "await delete_messages(db, cancelled)\n", ""),),
        (_STALE,),
    ),
    Mutant(
        "pause-does-not-fence",
        "whoever executes a paused run can write no more",
        (
            Edit(
                "db/runs/transitions.sql:put_away_message",
                "leased_by = null,\nlease_token = {next_token lease_token}\n",
                "lease_token = lease_token\n",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "deleting-does-not-fence",
        "whoever executes a deleted run can write no more",
        (
            Edit(
                "db/runs/transitions.sql:hide_message",
                "leased_by = null,\nlease_token = {next_token lease_token}\n",
                "lease_token = lease_token\n",
            ),
        ),
        ("tests/behaviour/test_deleting.py::test_whoever_runs_a_deleted_run_writes_nothing",),
    ),
    Mutant(
        "restart-keeps-the-token",
        "whoever executes a run that is restarted can write no more",
        (
            Edit(
                "db/runs/transitions.sql:revive_messages",
                "leased_by = null,\nattempts = 0,\nlease_token = {next_token pgqrs_messages.lease_token};",
                "attempts = 0;",
            ),
        ),
        (_STALE,),
    ),
    Mutant(
        "worker-taken-from-not-fenced",
        "what is taken from a worker is not its any more",
        (
            Edit(
                "db/tables/messages.sql:release_worker_messages",
                "leased_by = null,\n",
                "",
            ),
        ),
        ("tests/behaviour/test_leases.py::test_everything_a_worker_holds_can_be_taken_from_it",),
    ),
    Mutant(
        "outbox-mark-unfenced",
        "a dispatcher that lost its claim changes nothing",
        (
            Edit(
                "db/tables/outbox.sql:mark_published",
                "and lease_token = :token\n",
                "",
            ),
        ),
        ("tests/behaviour/test_outbox.py::test_a_dispatcher_that_lost_its_claim_changes_nothing",),
    ),
    Mutant(
        "outbox-failure-unfenced",
        "a dispatcher that lost its claim counts no attempt",
        (
            Edit(
                "db/tables/outbox.sql:mark_failed",
                "and lease_token = :token\n",
                "",
            ),
        ),
        ("tests/behaviour/test_outbox.py::test_a_dispatcher_that_lost_its_claim_changes_nothing",),
    ),
)
