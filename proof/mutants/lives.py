"""What begins and ends runs: keys, cancel, restart, schedules, retention, dead letters, the outbox."""

from proof.mutants.mutant import Edit, Mutant

_RESTARTING = "tests/behaviour/test_restarting.py"
_WORKFLOWS = "tests/behaviour/test_workflows.py"
_SUBMITTING = "tests/behaviour/test_submitting.py"
_CANCELLING = "tests/behaviour/test_cancelling.py"
_OUTBOX = "tests/behaviour/test_outbox.py"
_SCHEDULES = "tests/behaviour/test_schedules.py"
_RETENTION = "tests/behaviour/test_retention.py"

MUTANTS = (
    Mutant(
        "key-ignored",
        "the same idempotency key gives the same run",
        (Edit("db.runs.triggers:_trigger", "if not new.keys:\n", "if new.inputs:\n"),),
        (f"{_SUBMITTING}::test_the_same_key_and_input_give_the_same_run",),
    ),
    Mutant(
        "key-conflict-not-compared",
        "the same key with another input is a conflict",
        (
            Edit(
                "db.runs.triggers:_found",
                "if not is_same:\n",
                "if not is_same and not key:\n",
            ),
        ),
        (f"{_SUBMITTING}::test_the_same_key_with_another_input_is_a_conflict",),
    ),
    Mutant(
        "cancel-spares-children",
        "cancelling a run cancels its children",
        (
            Edit(
                "db.runs.transitions:cancel",
                'todo += [row[0] for row in await db.fetch(_SQL["children_of"], run_id=each)]\n',
                "",
            ),
        ),
        (f"{_WORKFLOWS}::test_cancel_reaches_the_children",),
    ),
    Mutant(
        "ended-run-cancelled",
        "what has ended keeps its status",
        (
            Edit(
                "db.runs.transitions:cancel",
                "if status in ENDED:\n",
                "if status in ():\n",
            ),
            Edit(
                "db.runs.transitions:cancel",
                "if (await _locked(db, each)).status in ENDED:\n",
                "if (await _locked(db, each)).status in ():\n",
            ),
        ),
        (f"{_CANCELLING}::test_what_has_ended_cannot_be_cancelled_and_cancelling_twice_is_no_error",),
    ),
    Mutant(
        "ended-run-claimed",
        "a run that has ended is not started again by a message that was left behind",
        (
            Edit(
                "db/runs/claims.sql:start_runs",
                "and status not in ('SUCCESS', 'ERROR', 'CANCELLED')\n",
                "",
            ),
        ),
        ("tests/faults/test_ended_runs.py::test_a_message_that_was_left_behind_does_not_start_its_run_again",),
    ),
    Mutant(
        "ended-run-claimed-postgres",
        "a run that has ended is not started again by a message that was left behind",
        (
            Edit(
                "db/runs/claims.postgres.sql:claim_runs",
                "and r.status not in ('SUCCESS', 'ERROR', 'CANCELLED')\n",
                "",
            ),
        ),
        ("tests/faults/test_ended_runs.py::test_a_message_that_was_left_behind_does_not_start_its_run_again",),
        on="postgres",
    ),
    Mutant(
        "end-leaves-the-message",
        "a run that has ended has no message",
        (
            Edit(
                "db.runs.settlement:_end",
                "await transitions.delete_messages(db, [run_id for run_id, _ in endings])\n",
                "",
            ),
        ),
        ("tests/seeds/test_seed_000_state_matrix.py::test_success_ends_the_message_and_the_run",),
    ),
    Mutant(
        "resume-wakes-nobody",
        "a resumed run goes on at once",
        (Edit("db.runs.transitions:resume", 'await db.execute(_SQL["wake_run"], run_id=run_id)\n', ""),),
        (f"{_WORKFLOWS}::test_a_paused_run_resumes_with_the_data_given",),
    ),
    Mutant(
        "signal-undoes-a-pause",
        "a run that a person paused waits for a person",
        (
            Edit(
                "db/runs/transitions.sql:wake_waiting_run",
                "and visible_after > {now}\nand visible_after < {after :put_away};",
                "and visible_after > {now};",
            ),
        ),
        ("tests/faults/test_run_leases.py::test_a_run_that_a_person_paused_waits_for_a_person",),
    ),
    Mutant(
        "restart-forgets-steps",
        "a restarted run keeps its completed steps",
        (
            Edit(
                "db/runs/restarts.sql:delete_given_steps",
                "where (run_id, step_id) in (\n    select given.run_id, given.step_id\n",
                "where run_id in (\n    select given.run_id\n",
            ),
        ),
        (f"{_WORKFLOWS}::test_an_error_can_be_restarted_and_keeps_its_completed_steps",),
    ),
    Mutant(
        "restart-keeps-failed-steps",
        "a restarted run tries again the step that failed",
        (Edit("db.runs.transitions:_restart", "await restarts.reopen(db, plan)\n", ""),),
        (f"{_WORKFLOWS}::test_an_error_can_be_restarted_and_keeps_its_completed_steps",),
    ),
    Mutant(
        "restart-reopens-caught-errors",
        "an error that a handler caught stays caught after a restart",
        (Edit("db.runs.restarts:blame", "if step.step_id in named and (step.is_open or", "if (step.is_open or"),),
        (f"{_RESTARTING}::test_restart_reopens_the_steps_whose_error_left_the_handler_and_nothing_else",),
    ),
    Mutant(
        "restart-reopens-a-result",
        "a step that has succeeded is not run again by a restart",
        (Edit("db.runs.restarts:blame", "(step.is_open or step.step_id in failed)]", "True]"),),
        ("tests/properties/test_healing.py::test_random_restarts_touch_only_what_they_may",),
    ),
    Mutant(
        "restart-of-a-live-run",
        "of several restarts one wins",
        (
            Edit(
                "db.runs.transitions:restart",
                "if run.status not in ENDED and not await _is_crashed(db, run, messages):\n",
                "if run.status is RunStatus.PAUSED:\n",
            ),
        ),
        (f"{_RESTARTING}::test_of_eight_concurrent_restarts_exactly_one_wins",),
    ),
    Mutant(
        "restart-takes-a-leased-run",
        "a restart does not take a run from a worker that holds its lease",
        (Edit("db.runs.transitions:_is_crashed", "leased_by is not None and bool(is_due)", "leased_by is not None"),),
        (f"{_RESTARTING}::test_a_second_restart_does_not_take_the_run_from_its_worker",),
    ),
    Mutant(
        "restart-forgets-its-request",
        "a restart whose reply was lost is done once",
        (Edit("db.runs.transitions:_was_restarted_by", 'object_in(row[0]).get("request") == request', "False"),),
        (f"{_RESTARTING}::test_a_restart_whose_reply_was_lost_is_done_once",),
    ),
    Mutant(
        "retry-forgets-siblings",
        "every failed child of a fan-out is retried",
        (
            Edit(
                "db.runs.restarts:_retried",
                "asked = found.guilty | found.results.keys() | found.awaited",
                "asked = found.guilty",
            ),
        ),
        ("tests/behaviour/test_retrying_children.py::test_every_failed_child_of_the_fan_out_is_retried",),
    ),
    Mutant(
        "retry-restarts-what-succeeded",
        "a child that has succeeded since is not run again",
        (
            Edit(
                "db.runs.restarts:_retried",
                "retried = {child for child in live if children[child].has_failed}\n",
                "retried = set(live)\n",
            ),
            Edit(
                "db.runs.restarts:plan_of_retry",
                "await locked(db, wanted - plan.keys()) if each.status in _ENDED_BADLY]",
                "await locked(db, wanted - plan.keys())]",
            ),
        ),
        ("tests/behaviour/test_retrying_children.py::test_a_child_that_has_succeeded_since_is_only_asked_again",),
    ),
    Mutant(
        "reset-leaves-steps",
        "a run that is reset starts over",
        (
            Edit(
                "db.runs.transitions:reset",
                'await db.execute(_SQL["delete_steps"], run_id=run_id)\n',
                "pass\n",
            ),
        ),
        (f"{_WORKFLOWS}::test_reset_starts_over_or_from_a_step",),
    ),
    Mutant(
        "slot-fires-twice",
        "a slot that is on record does not fire again",
        (
            Edit(
                "db.tables.schedules:fire",
                "due = [slot for slot in planned.due if slot in mine]",
                "due = [slot for slot in planned.due if slot or mine]",
            ),
        ),
        (f"{_SCHEDULES}::test_a_slot_on_record_does_not_fire_again_when_it_is_counted_again",),
    ),
    Mutant(
        "overlap-ignored",
        "a slot is skipped while the run before is not done",
        (
            Edit(
                "db.tables.schedules:_settle",
                "if due and active is None:\n",
                "if due:\n",
            ),
        ),
        (f"{_SCHEDULES}::test_skip_lets_a_slot_go_while_the_run_before_is_not_done",),
    ),
    Mutant(
        "retention-deletes-the-living",
        "a run that has not ended stays, however old it is",
        (
            Edit(
                "db/upkeep/retention.sql:_ranges",
                "union all select 'CANCELLED'\n",
                "union all select 'CANCELLED'\nunion all select 'PAUSED'\n",
            ),
            Edit(
                "db/upkeep/retention.sql:pick_ended",
                "select r.run_id, r.completed_at\n"
                "from pgqrs_workflow_runs as r\n"
                "where r.workflow_id = :target_id\n"
                "  and r.status = :target_status\n"
                "  and r.completed_at is not null\n"
                "  and r.completed_at <= {after -:keep}\n"
                "  and (r.completed_at, r.run_id) > (:after_at, :after_id)\n"
                "order by r.completed_at, r.run_id\n",
                "select r.run_id, r.updated_at as completed_at\n"
                "from pgqrs_workflow_runs as r\n"
                "where r.workflow_id = :target_id\n"
                "  and r.status = :target_status\n"
                "  and r.updated_at <= {after -:keep}\n"
                "  and (r.updated_at, r.run_id) > (:after_at, :after_id)\n"
                "order by r.updated_at, r.run_id\n",
            ),
            Edit(
                "db/upkeep/retention.sql:lock_ended",
                "and r.completed_at <= {after -:keep}\n"
                "and (r.deleted_at is null or cast(:apart as integer) = 0)\n"
                "and {include _may_go}\n"
                "and not exists (\n"
                "  select 1 from pgqrs_messages as m\n"
                "  where m.run_id = r.run_id and m.run_id is not null\n"
                ")\n",
                "and r.updated_at <= {after -:keep}\n"
                "and (r.deleted_at is null or cast(:apart as integer) = 0)\n"
                "and {include _may_go}\n",
            ),
        ),
        (f"{_RETENTION}::test_a_run_that_has_not_ended_stays",),
    ),
    Mutant(
        "retention-too-early",
        "what has ended is kept as long as the policy says",
        (
            Edit(
                "db/upkeep/retention.sql:pick_ended",
                "and r.completed_at <= {after -:keep}\n",
                "and r.completed_at <= {after 1 - :keep / 2}\n",
            ),
            Edit(
                "db/upkeep/retention.sql:lock_ended",
                "and r.completed_at <= {after -:keep}\n",
                "",
            ),
        ),
        (f"{_RETENTION}::test_a_finished_run_goes_when_it_is_older_than_its_policy",),
    ),
    Mutant(
        "retention-orphans-the-outbox",
        "a run stays until what it tells is published",
        (
            Edit(
                "db/upkeep/retention.sql:_may_go",
                "where o.aggregate_id = r.run_id and o.published_at is null and o.dead_at is null",
                "where o.aggregate_id = r.run_id and o.published_at is null and o.dead_at is not null",
            ),
        ),
        (f"{_RETENTION}::test_a_run_stays_until_its_outbox_is_published_or_given_up",),
    ),
    Mutant(
        "dead-letter-twice",
        "a failed run triggers its dead letter once",
        (
            Edit(
                "db.runs.settlement:_tell_others",
                "await triggers.trigger_dead_letters(db, failed)\n",
                "await triggers.trigger_dead_letters(db, failed)\nawait triggers.trigger_dead_letters(db, failed)\n",
            ),
        ),
        ("tests/behaviour/test_dead_letter_workflows.py::test_a_failed_run_triggers_the_workflow_named_for_that",),
    ),
    Mutant(
        "dead-letters-in-circles",
        "a dead letter that fails triggers no other",
        (
            Edit(
                "db/runs/triggers.sql:dead_letters_of_runs",
                "and r.dead_letter_of is null\n",
                "and coalesce(r.dead_letter_of, 0) < 3\n",
            ),
        ),
        ("tests/behaviour/test_dead_letter_workflows.py::test_dead_letters_that_fail_do_not_go_round_in_circles",),
    ),
    Mutant(
        "outbox-marks-first",
        "an event counts as published only when it was taken",
        (
            Edit(
                "engine.outbox.dispatcher:OutboxLoop._publish",
                "error = await self._send(claimed.event, routes)\n"
                "held = await (self._published(claimed) if error is None else self._failed(claimed, error))\n",
                "held = await self._published(claimed)\nawait self._send(claimed.event, routes)\n",
            ),
        ),
        (f"{_OUTBOX}::test_a_refused_event_is_sent_again_with_the_same_id_after_a_growing_time",),
    ),
    Mutant(
        "outbox-out-of-order",
        "an event is not published before those of its run that came earlier",
        (
            Edit("db/tables/outbox.sql:claim_events", "and {include _is_head}\n", ""),
            Edit(
                "engine.outbox.dispatcher:OutboxLoop._choose",
                "if not each.is_head or each.run_id in runs or any(",
                "if any(",
            ),
        ),
        (f"{_OUTBOX}::test_what_comes_after_a_refused_event_of_its_run_waits_for_it",),
    ),
    Mutant(
        "outbox-claim-of-the-claimed",
        "what another dispatcher holds is not published before its lease is over",
        (
            Edit(
                "db/tables/outbox.sql:claim_events",
                "and o.visible_after <= {now}\n",
                "",
            ),
            Edit(
                "db/tables/outbox.sql:look",
                "and o.visible_after <= {now}\n",
                "",
            ),
        ),
        (f"{_OUTBOX}::test_what_another_dispatcher_holds_is_not_published_before_its_lease_is_over",),
    ),
    Mutant(
        "outbox-never-dead",
        "an event is dead after its last attempt",
        (
            Edit(
                "db/tables/outbox.sql:mark_failed",
                "dead_at = case when attempts >= :max_attempts - 1 then {now} end,",
                "dead_at = case when attempts >= 1000 * :max_attempts then {now} end,",
            ),
        ),
        (f"{_OUTBOX}::test_an_event_is_dead_after_its_last_attempt_and_its_run_goes_on",),
    ),
    Mutant(
        "outbox-new-id-each-time",
        "an event that is sent again has the id that it had",
        (
            Edit(
                "db.tables.outbox:_event",
                "id=uuid,\n",
                'id=f"{uuid}-{attempts}",\n',
            ),
        ),
        (f"{_OUTBOX}::test_a_refused_event_is_sent_again_with_the_same_id_after_a_growing_time",),
    ),
    Mutant(
        "archive-leaves-the-message",
        "an archived message is live no more",
        (
            Edit(
                "db.tables.messages:archive",
                'await db.execute(_SQL["remove_messages"], ids=sorted(done))\n',
                "",
            ),
        ),
        ("tests/behaviour/test_leases.py::test_what_was_archived_is_settled",),
    ),
    Mutant(
        "payload-limit-off",
        "a payload over the limit is refused before it is sent",
        (
            Edit(
                "serialization:encode",
                "if max_bytes is not None and len(encoded) > max_bytes:",
                "if max_bytes is not None and len(encoded) < 0:",
            ),
        ),
        ("tests/behaviour/test_enqueue.py::test_a_payload_over_the_limit_is_refused_before_it_is_sent",),
    ),
)
