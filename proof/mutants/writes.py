"""Transactions, durability, and replies that were lost."""

from proof.mutants.mutant import Edit, Mutant

_LOST = "tests/faults/test_lost_replies.py"
_RUN_LEASES = "tests/faults/test_run_leases.py"
_RUN_LOST = "tests/faults/test_run_lost_replies.py"
_TOGETHER = "tests/faults/test_written_together.py"
_SETTLEMENTS = "tests/faults/test_lost_settlements.py"
_SQLITE = "tests/db/test_sqlite.py"

MUTANTS = (
    Mutant(
        "synchronous-normal",
        "an acknowledged write survives a power cut",
        (
            Edit(
                "db.drivers.sqlite.file:SQLiteFile.configure",
                '"synchronous = full", "foreign_keys',
                '"synchronous = normal", "foreign_keys',
            ),
            Edit(
                "db.drivers.sqlite.file:SQLiteFile.configure",
                'self._pragma(connection, "synchronous") != 2:',
                'self._pragma(connection, "synchronous") != 1:',
            ),
        ),
        (f"{_SQLITE}::test_every_connection_is_durable_and_strict",),
    ),
    Mutant(
        "acknowledged-before-the-commit",
        "a call returns when it is durable, not before",
        (
            Edit(
                "db.drivers.sqlite.driver:SQLiteDriver._commit_together",
                "self._run_in_savepoint(session, job)\n",
                "self._run_in_savepoint(session, job)\nsettle([job])\n",
            ),
        ),
        ("tests/db/test_sqlite_durability.py::test_a_call_returns_only_when_it_has_committed",),
    ),
    Mutant(
        "unit-half-written",
        "a unit of work is all or nothing",
        (
            Edit(
                "db.drivers.sqlite.driver:SQLiteDriver._run_in_savepoint",
                'connection.execute("rollback to unit")\n',
                "",
            ),
        ),
        (f"{_SQLITE}::test_a_unit_is_all_or_nothing",),
    ),
    Mutant(
        "unit-half-written-postgres",
        "a unit of work is all or nothing",
        (
            Edit(
                "db.drivers.postgres.driver:PostgresDriver._perform_once",
                "if kind is not Kind.UNIT and not self.pooled:\n",
                "if kind and not self.pooled:\n",
            ),
        ),
        ("tests/behaviour/test_dead_letter_workflows.py::test_it_fails_with_its_dead_letter_or_not_at_all",),
        on="postgres",
    ),
    Mutant(
        "run-without-its-message",
        "a run and its message are written together",
        (
            Edit(
                "db.runs.triggers:trigger",
                "@store_call(_needed)\n"
                "async def trigger(db: Database, new: NewRuns) -> list[int]:\n"
                '    """The runs\' ids in the order given: runs and messages, all or none."""\n',
                "async def trigger(db: Database, new: NewRuns) -> list[int]:\n",
            ),
        ),
        (f"{_TOGETHER}::test_a_run_that_cannot_be_written_whole_is_not_there",),
    ),
    Mutant(
        "poison-hurts-all",
        "a write that cannot be committed hurts only itself",
        (
            Edit(
                "engine.runs.committer:Committer._commit",
                "if len(batch) == 1 or isinstance(error, ConnectionFailed):\n",
                "if batch:\n",
            ),
        ),
        ("tests/unit/test_poison_writes.py::test_a_write_that_no_database_takes_hurts_only_itself",),
    ),
    Mutant(
        "outbox-apart-from-the-checkpoint",
        "a step and what it emits commit together",
        (
            Edit(
                "engine.runs.committer:Committer._commit",
                "held = await settlement.commit(self._db, [write for write, _ in batch])\n",
                "held = await settlement.commit(self._db, [w._replace(emissions=()) for w, _ in batch])\n"
                "await publish(self._db, [], [e for w, _ in batch if w.fence in held for e in w.emissions])\n",
            ),
            Edit(
                "engine.runs.committer",
                "from pgqrs.db.hints import OUTBOX\n",
                "from pgqrs.db.hints import OUTBOX\nfrom pgqrs.db.runs.history import publish\n",
            ),
        ),
        (f"{_TOGETHER}::test_a_step_is_on_record_with_what_it_emits_or_not_at_all",),
    ),
    Mutant(
        "cancel-tells-nobody",
        "a cancellation stands in the run's history, with who did it and why",
        (
            Edit(
                "db.runs.transitions:cancel",
                "await record_events(db, [RunEvent(each, EventType.CANCELLED, data, actor) for each in cancelled])\n",
                "",
            ),
        ),
        ("tests/behaviour/test_history.py::test_what_people_do_is_told_with_who_and_why",),
    ),
    Mutant(
        "transaction-apart-from-its-step",
        "a transactional step and its record commit together",
        (
            Edit(
                "db.runs.claims:transact",
                "done = StepRecord(step.step_id, step.ordinal, StepStatus.SUCCESS, output=output, "
                "sequence=number)\n"
                "await settlement.record_steps(db, [RunWrite(fence, (done,))])\n",
                "",
            ),
            Edit(
                "engine.ctx.transactions:_attempt",
                "return await _transact(run_pass, pending, _encoded(run_pass, pending, work))\n",
                "output = await _transact(run_pass, pending, _encoded(run_pass, pending, work))\n"
                "await run_pass.recorder.record(pending._replace(status=StepStatus.SUCCESS, output=output))\n"
                "return output\n",
            ),
        ),
        (f"{_TOGETHER}::test_a_worker_that_dies_after_a_transaction_has_done_it_once",),
    ),
    Mutant(
        "signal-apart-from-its-step",
        "a signal is consumed in the transaction that records it as the step's result",
        (
            Edit(
                "db.runs.claims:take_signal",
                "answered = step._replace(status=StepStatus.SUCCESS, output=payload)\n"
                "await settlement.record_steps(db, [RunWrite(fence, (answered,))])\n",
                "",
            ),
            Edit(
                "engine.ctx.wait:_signal",
                "    raise run_pass.lease.lose()\n",
                "    raise run_pass.lease.lose()\n"
                "if taken is not None:\n"
                "    done = pending._replace(status=StepStatus.SUCCESS, output=taken.payload)\n"
                "    await run_pass.recorder.record(done)\n",
            ),
        ),
        (f"{_TOGETHER}::test_a_worker_that_dies_after_it_took_a_signal_has_it_on_record",),
    ),
    Mutant(
        "children-apart-from-their-step",
        "children are started in the transaction that records them",
        (
            Edit(
                "db.runs.claims:spawn",
                "await settlement.record_steps(\n"
                "    db, [RunWrite(fence, (step._replace(status=StepStatus.SUCCESS, output=remembered),))]\n"
                ")\n",
                "del remembered\n",
            ),
            Edit(
                "engine.ctx.children:_spawned",
                "run_pass.db.hints.announce([found.queue_id])\n",
                "done = pending._replace(status=StepStatus.SUCCESS, output=encode(run_ids))\n"
                "await run_pass.recorder.record(done)\n"
                "run_pass.db.hints.announce([found.queue_id])\n",
            ),
        ),
        (f"{_TOGETHER}::test_a_worker_that_dies_after_it_started_a_child_has_started_one",),
    ),
    Mutant(
        "lost-lease-idles-postgres",
        "a lease whose reply was lost is found again",
        (
            Edit(
                "db.tables.messages:lease",
                "if db.retried:\n",
                "if db.retried and not queues:\n",
            ),
        ),
        (f"{_SETTLEMENTS}::test_a_lease_whose_reply_was_lost_is_found_however_it_was_read",),
        on="postgres",
    ),
    Mutant(
        "lost-archive-disowned-postgres",
        "an archive whose reply was lost is known as one's own",
        (
            Edit(
                "db.tables.messages:archive",
                "if db.retried:\n",
                "if db.retried and not fences:\n",
            ),
        ),
        (f"{_LOST}::test_a_settlement_whose_reply_was_lost_has_happened_once",),
        on="postgres",
    ),
    Mutant(
        "stale-archive-owned-postgres",
        "somebody else's archive is not taken for one's own after a lost reply",
        (
            Edit(
                "db/tables/messages.sql:find_archived",
                "where a.message_id = given.id\n  and a.lease_token = given.token;",
                "where a.message_id = given.id;",
            ),
        ),
        (f"{_SETTLEMENTS}::test_an_archive_of_the_next_holder_is_not_taken_for_ones_own",),
        on="postgres",
    ),
    Mutant(
        "lost-ending-disowned-postgres",
        "an ending whose reply was lost is known as one's own",
        (
            Edit(
                "db.runs.settlement:commit",
                "if retried:\n",
                "if retried and not writes:\n",
            ),
        ),
        (f"{_RUN_LOST}::test_an_end_whose_reply_was_lost_is_told_from_one_that_came_too_late",),
        on="postgres",
    ),
    Mutant(
        "told-twice-postgres",
        "what a step emits is written once, although the reply was lost",
        (
            Edit(
                "db.runs.settlement:commit",
                "news = await _unknown_yet(db, writes) if retried else writes",
                "news = writes",
            ),
        ),
        (f"{_LOST}::test_what_a_step_emits_and_tells_is_written_once",),
        on="postgres",
    ),
    Mutant(
        "lost-signal-consumed-twice-postgres",
        "a signal whose reply was lost is consumed once",
        (
            Edit(
                "db.runs.claims:take_signal",
                "if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:\n",
                "if not fence and (found := await _recorded(db, fence, step)) is not None:\n",
            ),
        ),
        (f"{_RUN_LEASES}::test_a_signal_whose_reply_was_lost_is_consumed_once",),
        on="postgres",
    ),
    Mutant(
        "lost-children-started-twice-postgres",
        "children whose reply was lost are started once",
        (
            Edit(
                "db.runs.claims:spawn",
                "if (again or db.retried) and (found := await _recorded(db, fence, step)) is not None:\n",
                "if not fence and (found := await _recorded(db, fence, step)) is not None:\n",
            ),
        ),
        (f"{_RUN_LEASES}::test_children_whose_reply_was_lost_are_started_once",),
        on="postgres",
    ),
    Mutant(
        "lost-transaction-done-twice-postgres",
        "a transactional step whose reply was lost is carried out once",
        (
            Edit(
                "db.runs.claims:transact",
                "if is_second and (found := await _recorded(db, fence, step)) is not None:\n",
                "if not fence and (found := await _recorded(db, fence, step)) is not None:\n",
            ),
        ),
        (f"{_RUN_LOST}::test_a_transaction_whose_reply_was_lost_is_carried_out_once",),
        on="postgres",
    ),
    Mutant(
        "lost-enqueue-repeated-postgres",
        "what is not idempotent is not repeated after a lost reply",
        (
            Edit(
                "db.drivers.postgres.driver:PostgresDriver.perform",
                "if lost and not idempotent:",
                "if lost and not kind:",
            ),
        ),
        (f"{_LOST}::test_an_enqueue_whose_reply_was_lost_is_reported_as_unknown_and_not_repeated",),
        on="postgres",
    ),
    Mutant(
        "never-tried-again-postgres",
        "what the server has undone, or could not take, is tried again without the caller noticing",
        (
            Edit(
                "db.drivers.postgres.driver:PostgresDriver.perform", "if time.monotonic() > deadline:", "if attempt:"
            ),
        ),
        (f"{_LOST}::test_a_deadlock_is_tried_again",),
        on="postgres",
    ),
    Mutant(
        "lost-publication-counted-twice-postgres",
        "a failure to publish whose reply was lost is counted once",
        (
            Edit(
                "db/tables/outbox.sql:mark_failed",
                "then {now} end,\nlease_token = -lease_token\n",
                "then {now} end\n",
            ),
        ),
        ("tests/faults/test_outbox_lost_replies.py::test_a_failure_whose_reply_was_lost_is_counted_once",),
        on="postgres",
    ),
)
