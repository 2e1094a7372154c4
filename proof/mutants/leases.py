"""Leases, attempts and heartbeats that do not count, come too early, or never."""

from proof.mutants.mutant import Edit, Mutant

_WORKFLOWS = "tests/behaviour/test_workflows.py"
_MATRIX = "tests/seeds/test_seed_000_state_matrix.py"
_PROCESSES = "tests/behaviour/test_worker_processes.py"
_LEASES = "tests/behaviour/test_leases.py"
_BACKUP = "tests/faults/test_backups.py"


MUTANTS = (
    Mutant(
        "attempts-not-counted",
        "an attempt is counted when the lease is taken",
        (
            Edit(
                "db/tables/messages.sql:take_messages",
                "attempts = case when attempts < 0 then 1 else attempts + 1 end,\n",
                "",
            ),
        ),
        ("tests/behaviour/test_dead_letters.py::test_a_message_is_delivered_max_attempts_times_and_then_listed",),
    ),
    Mutant(
        "attempts-not-counted-postgres",
        "an attempt is counted when the lease is taken",
        (
            Edit(
                "db/tables/messages.postgres.sql:_taken",
                "attempts = case when m.attempts < 0 then 1 else m.attempts + 1 end,\n",
                "attempts = m.attempts,\n",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_run_that_loses_its_worker_every_time_ends_in_error",),
        on="postgres",
    ),
    Mutant(
        "attempts-counted-on-failure",
        "a crash counts as an attempt, not only a failure that is recorded",
        (
            Edit(
                "db/tables/messages.sql:take_messages",
                "attempts = case when attempts < 0 then 1 else attempts + 1 end,\n",
                "",
            ),
            Edit(
                "db/runs/settlement.sql:yield_messages",
                "attempts = attempts - given.give_back",
                "attempts = attempts + 1 - given.give_back",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_run_that_loses_its_worker_every_time_ends_in_error",),
    ),
    Mutant(
        "token-not-raised",
        "the token grows with every lease",
        (
            Edit(
                "db/tables/messages.sql:take_messages",
                "attempts = case when attempts < 0 then 1 else attempts + 1 end,\n"
                "lease_token = {next_token lease_token},",
                "attempts = case when attempts < 0 then 1 else attempts + 1 end,",
            ),
        ),
        (f"{_LEASES}::test_the_same_consumer_that_takes_its_own_message_again_is_fenced_from_its_first_try",),
    ),
    Mutant(
        "token-not-raised-postgres",
        "the token grows with every lease",
        (Edit("db/tables/messages.postgres.sql:_taken", "lease_token = {next_token m.lease_token},\n", ""),),
        ("tests/faults/test_run_leases.py::test_a_stale_token_writes_nothing",),
        on="postgres",
    ),
    Mutant(
        "token-given-twice",
        "no token is given twice, though the database was set back",
        (
            Edit(
                "db/tables/messages.sql:take_messages",
                "lease_token = {next_token lease_token},",
                "lease_token = lease_token + 1,",
            ),
        ),
        (f"{_BACKUP}::test_who_holds_a_lease_that_the_backup_does_not_know_is_fenced",),
    ),
    Mutant(
        "token-given-twice-postgres",
        "no token is given twice, though the database was set back",
        (Edit("db/tables/messages.postgres.sql:_taken", "{next_token m.lease_token}", "m.lease_token + 1"),),
        (f"{_BACKUP}::test_who_holds_a_lease_that_the_backup_does_not_know_is_fenced",),
        on="postgres",
    ),
    Mutant(
        "expired-lease-not-taken-again",
        "a message comes back when its lease ends",
        (
            Edit(
                "db/tables/messages.sql:pick_messages",
                "limit :batch;",
                "  and m.leased_by is null\nlimit :batch;",
            ),
        ),
        (f"{_LEASES}::test_a_message_comes_back_when_its_lease_ends",),
    ),
    Mutant(
        "lease-taken-too-early",
        "a leased message is nobody else's until the lease ends",
        (
            Edit(
                "db/tables/messages.sql:pick_messages",
                "and m.visible_after <= {now}\n",
                "and m.visible_after <= {after 5}\n",
            ),
        ),
        (f"{_LEASES}::test_a_message_comes_back_when_its_lease_ends",),
    ),
    Mutant(
        "lease-too-short-postgres",
        "a lease of a run is as long as was asked for",
        (
            Edit(
                "db/runs/claims.postgres.sql:claim_runs",
                "set visible_after = {after allowed.lease_seconds},",
                "set visible_after = {after allowed.lease_seconds / 2},",
            ),
        ),
        (f"{_MATRIX}::test_a_crashed_workers_message_is_invisible_until_the_lease_ends_then_another_worker_goes_on",),
        on="postgres",
    ),
    Mutant(
        "max-attempts-ignored",
        "a run that keeps failing ends in ERROR after max_attempts",
        (
            Edit(
                "engine.runs.outcome:failure",
                "case _ if attempt >= policy.max_attempts or not (",
                "case _ if not (",
            ),
        ),
        (f"{_WORKFLOWS}::test_an_error_is_retried_until_max_attempts_then_the_run_is_in_error",),
    ),
    Mutant(
        "dead-letters-leased",
        "a message that has had its attempts is not delivered again",
        (
            Edit(
                "db/tables/messages.sql:pick_messages",
                "and m.attempts < m.max_attempts\n",
                "",
            ),
        ),
        ("tests/behaviour/test_dead_letters.py::test_all_dead_letters_can_be_replayed_at_once",),
    ),
    Mutant(
        "lost-workers-never-end",
        "a run that kills its workers ends in ERROR",
        (
            Edit(
                "engine.runs.lost_runs:end_lost",
                "if not await claims.some_are_lost(db, queue_ids):",
                "if queue_ids:",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_run_that_loses_its_worker_every_time_ends_in_error",),
    ),
    Mutant(
        "hand-back-counts",
        "a sleep or a graceful hand-back uses up no attempt",
        (
            Edit(
                "db.runs.settlement:_yield",
                "given=[(run_id, y.run_at, y.delay, 0 if y.count_attempt else 1) for run_id, y in yieldings],",
                "given=[(run_id, y.run_at, y.delay, 0) for run_id, y in yieldings],",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_run_that_sleeps_often_does_not_use_up_its_attempts",),
    ),
    Mutant(
        "hand-back-counts-postgres",
        "a sleep or a graceful hand-back uses up no attempt",
        (Edit("db.runs.settlement:_columns", "give_back = 0 if end.count_attempt else 1\n", "give_back = 0\n"),),
        (f"{_WORKFLOWS}::test_a_run_that_sleeps_often_does_not_use_up_its_attempts",),
        on="postgres",
    ),
    Mutant(
        "release-counts",
        "a released message has not used up an attempt",
        (Edit("db.tables.messages:release", "give_back = 0 if count_attempt else 1\n", "give_back = 0\n"),),
        (f"{_LEASES}::test_a_released_message_is_there_at_once_and_no_attempt_is_counted",),
    ),
    Mutant(
        "pause-counts-an-attempt",
        "a run that is paused while it runs has not used up an attempt",
        (
            Edit(
                "db/runs/transitions.sql:put_away_message",
                "-- Taken away, not lost: the attempt does not count.\n"
                "attempts = case when leased_by is null or attempts <= 0 then attempts else attempts - 1 end,\n",
                "",
            ),
        ),
        ("tests/faults/test_run_leases.py::test_a_run_paused_in_its_last_attempt_goes_on_when_it_is_resumed",),
    ),
    Mutant(
        "priority-ignored",
        "higher priorities come first",
        (Edit("db/tables/messages.sql:enqueue_messages", "given.priority,\n", "0,\n"),),
        ("tests/behaviour/test_enqueue.py::test_higher_priority_comes_first_then_age",),
    ),
    Mutant(
        "priority-within-a-queue-only",
        "higher priorities come first across the queues of a worker",
        (
            Edit(
                "db/tables/messages.sql:pick_messages",
                "order by 2 desc, 3 limit 1000000\n",
                "order by 2, 3 limit 1000000\n",
            ),
        ),
        ("tests/behaviour/test_submitting.py::test_higher_priority_comes_first_within_one_workflow_and_across",),
    ),
    Mutant(
        "delay-ignored",
        "a delayed message is not seen before its time",
        (
            Edit(
                "db/tables/messages.sql:enqueue_messages",
                "coalesce(given.run_at, {after given.delay}),",
                "coalesce(given.run_at, {now}),",
            ),
        ),
        ("tests/behaviour/test_enqueue.py::test_a_delayed_message_is_seen_after_its_delay_and_not_before",),
    ),
    Mutant(
        "run-at-ignored",
        "a run waits for its time",
        (
            Edit(
                "db/runs/triggers.sql:insert_run_messages",
                "coalesce(:run_at, {after :delay})",
                "coalesce({after :delay}, :run_at)",
            ),
        ),
        ("tests/behaviour/test_submitting.py::test_a_run_waits_for_its_time",),
    ),
    Mutant(
        "no-skip-locked-postgres",
        "what somebody has locked is passed over",
        (Edit("db.dialect:_POSTGRES", '"for update skip locked"', '"for update"'),),
        ("tests/faults/test_retention.py::test_a_run_that_somebody_else_has_is_passed_over_at_once",),
        on="postgres",
    ),
    Mutant(
        "no-skip-locked-at-lease-postgres",
        "consumers do not wait for each other's leases",
        (
            Edit(
                "db/tables/messages.postgres.sql:_picked",
                "{skip_locked}\n",
                "for update\n",
            ),
        ),
        ("tests/faults/test_locked_messages.py::test_a_worker_passes_over_it",),
        on="postgres",
    ),
    Mutant(
        "no-lock-at-lease-postgres",
        "consumers of a queue do not wait for each other's transactions",
        (
            Edit(
                "db/tables/messages.postgres.sql:settle_and_lease",
                "{skip_locked}\n",
                "",
            ),
        ),
        ("tests/faults/test_locked_messages.py::test_a_dequeue_passes_over_it",),
        on="postgres",
    ),
    Mutant(
        "paused-queue-gives",
        "a paused queue gives nothing",
        (
            Edit(
                "db/tables/messages.sql:_levels",
                "where q.queue_id = queues.queue_id and q.paused_at is null\n",
                "where q.queue_id = queues.queue_id\n",
            ),
        ),
        ("tests/behaviour/test_queues.py::test_a_paused_queue_takes_messages_and_gives_none",),
    ),
    Mutant(
        "heartbeat-never-renews",
        "a slow handler keeps its lease",
        (
            Edit(
                "engine.heartbeat:Heartbeat._beat",
                "renewed, locked = await messages.renew(db, given) if given else (set(), set())",
                "renewed, locked = {message_id for message_id, *_ in given}, set()",
            ),
        ),
        ("tests/behaviour/test_handlers.py::test_a_slow_handler_keeps_its_lease",),
    ),
    Mutant(
        "heartbeat-tells-nobody",
        "a run that was cancelled is told so at the next heartbeat",
        (
            Edit(
                "engine.heartbeat:Heartbeat._beat",
                "lost.append(held)\n",
                "",
            ),
        ),
        ("tests/faults/test_run_leases.py::test_a_cancelled_run_is_told_at_the_next_heartbeat",),
    ),
    Mutant(
        "no-self-fence",
        "a worker that cannot renew stops before its lease runs out",
        (
            Edit(
                "engine.heartbeat:Heartbeat._give_up_what_is_due",
                "lost = [held for held in self._held.values() if held.due <= time.monotonic()]",
                "lost = [held for held in self._held.values() if held.due <= 0]",
            ),
        ),
        ("tests/faults/test_run_leases.py::test_a_worker_whose_heartbeats_hang_stops_before_its_lease_runs_out",),
    ),
    Mutant(
        "frozen-worker-goes-on",
        "a worker that slept through its lease starts nothing more",
        (
            Edit(
                "engine.heartbeat:HeldLease.is_valid",
                "return not self.is_lost and self.due > time.monotonic()",
                "return not self.is_lost",
            ),
        ),
        (f"{_PROCESSES}::test_a_worker_that_slept_through_its_lease_records_and_starts_nothing",),
    ),
    Mutant(
        "polling-never",
        "polling finds what no hint told of",
        (
            Edit(
                "engine.idle:IdlePoller.wait",
                "if await bell.wait(min(seconds, left)):",
                "if await bell.wait(3600.0):",
            ),
        ),
        ("tests/behaviour/test_waking.py::test_without_any_hint_polling_finds_the_message",),
    ),
    Mutant(
        "local-clock-in-an-extension",
        "when a lease ends is decided by the database's clock",
        (
            Edit(
                "db/tables/messages.sql:_extended",
                "set visible_after = {after given.seconds}\n",
                "set visible_after = (strftime('%s', 'now') + given.seconds) * 1000000\n",
            ),
        ),
        (f"{_LEASES}::test_extending_keeps_the_message",),
    ),
    Mutant(
        "local-clock-in-a-claim",
        "what a claim says of the time is the database's",
        (
            Edit(
                "db.runs.claims:_claim",
                "now = lease.visible_after - timedelta(seconds=lease_seconds)",
                "now = datetime.now(lease.visible_after.tzinfo) - timedelta(seconds=0)",
            ),
        ),
        ("tests/behaviour/test_prefixes.py::test_a_run_without_a_handler_waits_for_one_and_then_fails",),
    ),
    Mutant(
        "hand-back-holds-on",
        "a stopped worker hands its run back at once",
        (Edit("engine.runs.executor:Executor.cancel", "self.hand_back()\n", ""),),
        (f"{_WORKFLOWS}::test_a_stopped_worker_hands_its_run_back_and_does_no_more_of_it",),
    ),
)
