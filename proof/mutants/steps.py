"""Steps, waits, signals and children that a replay does not find as they were."""

from proof.mutants.mutant import Edit, Mutant

_WORKFLOWS = "tests/behaviour/test_workflows.py"
_ORDER = "tests/behaviour/test_order_of_results.py"
_HISTORY = "tests/behaviour/test_history.py"
_RECORDS = "tests/behaviour/test_records.py"
_RUN_LEASES = "tests/faults/test_run_leases.py"

_CANCELLED = "tests/behaviour/test_cancelled_branches.py"

MUTANTS = (
    Mutant(
        "tasks-in-the-order-of-addresses",
        "a TaskGroup cancels its tasks in the same order in every pass",
        (
            Edit(
                "engine.replay.branch_tasks:BranchTask.__hash__",
                "return self._hash\n",
                "return object.__hash__(self)\n",
            ),
        ),
        (f"{_CANCELLED}::test_a_group_cancels_its_tasks_in_one_order",),
    ),
    Mutant(
        "handler-cancelled-by-a-group-timed-out",
        "a TaskGroup that cancels the handler is no deadline around its step",
        (
            Edit(
                "engine.replay.run_pass:RunPass.begin",
                "self.root.run_in(task)",
                "task.timed_out = True",
            ),
        ),
        (f"{_CANCELLED}::test_the_step_of_the_handler_itself_in_a_group_ends_when_a_task_fails",),
    ),
    Mutant(
        "transaction-numbered-after-its-branch",
        "a transaction in a cancelled branch does not hold up the results of the others",
        (
            Edit(
                "engine.ctx.transactions:transaction",
                "answer = await apart(run_pass, attempt, place.step_id)\n",
                "from pgqrs.engine.replay.task_factory import outside\n"
                "try:\n"
                "    answer = await run_pass.in_flight.begun(outside(attempt))\n"
                "finally:\n"
                "    run_pass.order.is_numbered(place.step_id)\n",
            ),
            Edit("engine.ctx.transactions:_transact.number", "if is_over:\n", "if False:\n"),
        ),
        (f"{_CANCELLED}::test_a_transaction_in_a_cancelled_branch_does_not_hold_up_the_others",),
    ),
    Mutant(
        "answer-before-what-was-there",
        "an answer between two passes comes after everything that the handler got in the first",
        (Edit("engine.ctx.recorded_results:replayed_text", "await run_pass.number_late(place)\n", "pass\n"),),
        (f"{_ORDER}::test_data_for_a_step_that_paused_comes_after_all_that_was_there",),
    ),
    Mutant(
        "map-waits-with-room",
        "ctx.map fills all its places after a replay",
        (Edit("engine.ctx.map_children:_ended", "if earlier:", "if not earlier:"),),
        ("tests/behaviour/test_waiting_beside_work.py::test_a_map_fills_all_its_places_after_a_replay",),
    ),
    Mutant(
        "rest-while-a-branch-is-ready",
        "a task that is about to move does so before the run is put to rest",
        (
            Edit(
                "engine.replay.suspension:Resting._look",
                "if Pending.READY in states.values() and self._ready_looks < _MOST_READY_LOOKS:\n"
                "    self._ready_looks += 1\n"
                "    self._grace_from = None\n"
                "    self._look_again(0.0)\n"
                "    return\n"
                "if Pending.READY not in states.values():\n"
                "    self._ready_looks = 0\n"
                "# One that is ready at each of so many looks polls for something: it waits, too, in its way.\n"
                "outside = [branch for branch, state in states.items() if state in (Pending.OUTSIDE, "
                "Pending.READY)]\n",
                "outside = [branch for branch, state in states.items() if state is Pending.OUTSIDE]\n",
            ),
        ),
        ("tests/behaviour/test_waiting_beside_work.py",),
    ),
    Mutant(
        "library-task-is-a-branch",
        "tasks that the library makes for itself are no branches of the handler in which they begin",
        (Edit("tasks:detached", ", context=context)", ")"),),
        ("tests/behaviour/test_own_tasks.py",),
        on="postgres",
    ),
    Mutant(
        "step-overwritten",
        "the first recorded result of a step wins for ever",
        (Edit("db/runs/settlement.sql:_first_wins", "where pgqrs_workflow_steps.status <> 'SUCCESS'\n", ""),),
        ("tests/faults/test_first_result_wins.py",),
    ),
    Mutant(
        "step-overwritten-postgres",
        "the first recorded result of a step wins for ever",
        (Edit("db/runs/settlement.sql:_first_wins", "where pgqrs_workflow_steps.status <> 'SUCCESS'\n", ""),),
        ("tests/faults/test_first_result_wins.py",),
        on="postgres",
    ),
    Mutant(
        "step-runs-again",
        "a completed step is not run again",
        (
            Edit(
                "engine.ctx.steps:step",
                "if recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR):",
                "if recorded is not None and recorded.status is StepStatus.ERROR:",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_completed_step_is_not_run_again",),
    ),
    Mutant(
        "caught-error-forgotten",
        "an error that the handler caught is caught again in a replay",
        (
            Edit(
                "engine.ctx.steps:step",
                "if recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR):",
                "if recorded is not None and recorded.status is StepStatus.SUCCESS:",
            ),
        ),
        (f"{_WORKFLOWS}::test_an_error_that_the_handler_caught_is_caught_again_in_a_replay",),
    ),
    Mutant(
        "step-given-as-it-came",
        "a step returns what is on record, also the first time",
        (
            Edit(
                "engine.ctx.step_body:stored_result",
                "return BodyDone(text, decode(text, as_type))",
                "return BodyDone(text, result)",
            ),
        ),
        (f"{_RECORDS}::test_a_step_gives_the_same_the_first_time_and_in_a_replay",),
    ),
    Mutant(
        "step-done-before-it-is-durable",
        "a step returns only when its checkpoint has committed",
        (
            Edit(
                "engine.ctx.steps:_attempt",
                "await run_pass.recorder.record(record, emitted)",
                "outside(run_pass.recorder.record(record, emitted))",
            ),
        ),
        (f"{_RECORDS}::test_a_handler_goes_on_only_when_its_step_is_durable",),
    ),
    Mutant(
        "attempts-of-a-step-forgotten",
        "a step with a policy is tried as often as that says, and no more",
        (Edit("engine.ctx.steps:step", "attempts = (recorded.attempts if recorded else 0) + 1", "attempts = 1"),),
        (f"{_WORKFLOWS}::test_a_step_with_a_policy_is_tried_again_by_itself",),
    ),
    Mutant(
        "failed-step-not-tried-again",
        "a retried run tries the step again that failed",
        (
            Edit(
                "engine.runs.executor:Executor._decided",
                "again = reopened(made_it_fail) if isinstance(end, Suspended) else ()",
                "again = ()",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_transient_error_comes_back_after_the_time_it_names",),
    ),
    Mutant(
        "changed-code-undetected",
        "code that asks for another step than is on record is told so",
        (
            Edit(
                "engine.replay.places:Places.ask",
                "return None if recorded is None or recorded.step_id == place.step_id else recorded",
                "return None",
            ),
        ),
        (f"{_WORKFLOWS}::test_changed_code_parks_the_run_and_names_both_steps",),
    ),
    Mutant(
        "removed-step-undetected",
        "code that ends without a step that is on record is told so",
        (Edit("engine.runs.executor:Executor._run", "run_pass.check_all_were_asked_for()\n", ""),),
        (f"{_RECORDS}::test_code_that_has_lost_a_recorded_step_is_told_so_at_its_end",),
    ),
    Mutant(
        "changed-code-fails-the-run",
        "a run whose code has changed is parked, not failed",
        (
            Edit(
                "engine.runs.outcome:failure",
                "case _ if is_permanent(error):\n",
                "case _ if is_permanent(error) or isinstance(error, NonDeterminism):\n",
            ),
            Edit(
                "engine.runs.outcome:failure",
                "case NonDeterminism() if is_ours:\n",
                "case NonDeterminism() if attempt < 0:\n",
            ),
        ),
        (f"{_WORKFLOWS}::test_changed_code_parks_the_run_and_names_both_steps",),
    ),
    Mutant(
        "repeated-name-reused",
        "a step of the same name is another step",
        (
            Edit(
                "text.step_ids:write",
                'return name if number == 1 else f"{name}#{number}"',
                "return name if number else name",
            ),
        ),
        (f"{_WORKFLOWS}::test_steps_may_be_async_or_plain_and_return_what_is_on_record",),
    ),
    Mutant(
        "branches-share-ids",
        "each branch of a handler has steps of its own",
        (Edit("text.step_ids:write", "if not path:\n", "if path or not path:\n"),),
        (f"{_WORKFLOWS}::test_branches_of_gather_have_ids_of_their_own",),
    ),
    Mutant(
        "branch-cut-off",
        "when one branch waits, what is in flight in another still finishes and is recorded",
        (
            Edit(
                "engine.replay.suspension:Resting._is_possible",
                "not run_pass.in_flight and not run_pass.order.has_arrivals",
                "not run_pass.order.has_arrivals",
            ),
            Edit(
                "engine.replay.suspension:Resting._look",
                "if not outside:\n",
                "if states:\n",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_sleep_in_one_branch_lets_the_others_finish_their_work",),
    ),
    Mutant(
        "suspension-swallowed",
        "a handler that swallows its suspension fails loudly",
        (
            Edit(
                "engine.runs.executor:Executor._outcome",
                "run_pass.resting.suspended and error is not None and _is_unwound(error)",
                "run_pass.resting.suspended and (error is None or _is_unwound(error))",
            ),
        ),
        (f"{_WORKFLOWS}::test_swallowing_the_suspension_fails_loudly",),
    ),
    Mutant(
        "sleep-recomputed",
        "a sleep ends at the time that was fixed first",
        (
            Edit(
                "engine.ctx.wait:sleep.ask",
                "until = _until(run_pass, place, length) or run_pass.now()\n",
                "until = run_pass.now() + length\n",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_sleep_ends_at_the_time_that_was_fixed_first",),
    ),
    Mutant(
        "timeout-recomputed",
        "the time for which a signal is waited for is fixed first",
        (
            Edit(
                "engine.ctx.wait:wait_for.ask",
                "until = _until(run_pass, place, length)\n",
                "until = None if length is None else run_pass.now() + length\n",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_signal_that_does_not_come_times_out",),
    ),
    Mutant(
        "retry-delay-zero",
        "a failed run is tried again after its backoff",
        (
            Edit(
                "engine.runs.outcome:failure",
                "return _retry(policy.delay(attempt) if asked is None else asked, text, summary)",
                "return _retry(0.0 if asked is None else asked, text, summary)",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_completed_step_is_not_run_again",),
    ),
    Mutant(
        "asked-delay-ignored",
        "an error that names its delay gets it",
        (
            Edit(
                "engine.runs.outcome:failure",
                "return _retry(policy.delay(attempt) if asked is None else asked, text, summary)",
                "return _retry(policy.delay(attempt), text, summary)",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_transient_error_comes_back_after_the_time_it_names",),
    ),
    Mutant(
        "permanent-error-retried",
        "a permanent error ends the run at once",
        (
            Edit(
                "engine.runs.outcome:is_permanent",
                "isinstance(each, PermanentError | SerializationError | InvalidArguments)",
                "isinstance(each, SerializationError)",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_permanent_error_ends_the_run_at_once",),
    ),
    Mutant(
        "signal-wakes-nobody",
        "a signal wakes the run that waits for it",
        (
            Edit(
                "db.runs.transitions:signal",
                'await db.execute(_SQL["wake_waiting_run"], run_id=run_id, put_away=PUT_AWAY_SECONDS)\n',
                "pass\n",
            ),
        ),
        (f"{_WORKFLOWS}::test_a_signal_is_consumed_once_whenever_it_was_sent",),
    ),
    Mutant(
        "signal-consumed-twice",
        "a signal is consumed once",
        (Edit("db/runs/claims.sql:consume_signal", "set consumed_at = {now}\n", "set consumed_at = null\n"),),
        (f"{_WORKFLOWS}::test_a_signal_is_consumed_once_whenever_it_was_sent",),
    ),
    Mutant(
        "signals-out-of-order",
        "the oldest unread signal comes first",
        (Edit("db/runs/claims.sql:next_signal", "order by signal_id\n", "order by signal_id desc\n"),),
        (f"{_WORKFLOWS}::test_a_signal_is_consumed_once_whenever_it_was_sent",),
    ),
    Mutant(
        "signal-missed-before-the-wait",
        "a signal that comes between the look and the wait wakes the run",
        (Edit("db.runs.settlement:_tell_others", "if signals:\n", "if not signals and writes is None:\n"),),
        ("tests/faults/test_signals.py::test_a_signal_between_the_look_and_the_wait_wakes_the_run",),
    ),
    Mutant(
        "signal-unlocked-postgres",
        "sender and waiter lock one row, so that no signal falls between them",
        (
            Edit(
                "db/runs/transitions.sql:lock_message",
                "where m.run_id = :run_id\n{lock m};",
                "where m.run_id = :run_id;",
            ),
        ),
        ("tests/faults/test_lock_order.py::test_who_acts_from_outside_locks_the_message_first",),
        on="postgres",
    ),
    Mutant(
        "hold-unlocked-postgres",
        "the fence is checked and the message locked in one go, not checked and then acted upon",
        (Edit("db/runs/settlement.sql:hold", "order by m.message_id\n{lock m};", "order by m.message_id;"),),
        ("tests/faults/test_lock_order.py::test_nobody_cancels_a_run_between_the_look_at_its_lease_and_the_record",),
        on="postgres",
    ),
    Mutant(
        "child-not-linked",
        "a child knows its parent",
        (Edit("engine.ctx.children:_spawned", "parent_run_id=run_pass.claim.run_id,", "parent_run_id=None,"),),
        ("tests/behaviour/test_children.py::test_a_child_knows_its_parent",),
    ),
    Mutant(
        "parent-not-woken",
        "the last child to end wakes its parent",
        (Edit("db.runs.settlement:_tell_others", "await transitions.wake_parents(db, children)\n", "pass\n"),),
        (f"{_WORKFLOWS}::test_a_parent_waits_for_its_children_and_gets_their_results",),
    ),
    Mutant(
        "parent-woken-by-the-first",
        "a parent sleeps until its last child has ended",
        (Edit("db/runs/transitions.sql:wake_parents", "p.waiting_for like 'any of %'\n", "1 = 1\n"),),
        ("tests/behaviour/test_children.py::test_a_parent_of_many_is_woken_once",),
    ),
    Mutant(
        "child-missed-before-the-wait",
        "a child that ends before its parent begins to wait wakes it all the same",
        (
            Edit(
                "db.runs.settlement:_tell_others",
                'await db.execute(_SQL["wake_those_whose_children_ended"], run_ids=parents)\n',
                "pass\n",
            ),
        ),
        (f"{_RUN_LEASES}::test_a_child_that_ends_while_its_parent_begins_to_wait_wakes_it",),
        on="postgres",
    ),
    Mutant(
        "parents-unlocked-postgres",
        "two last children that end at once wake their parent",
        (
            Edit(
                "db.runs.transitions:wake_parents",
                'await db.fetch(_SQL["lock_parents"], run_ids=parents)\n',
                "",
            ),
        ),
        (f"{_RUN_LEASES}::test_two_last_children_that_end_at_once_wake_their_parent",),
        on="postgres",
    ),
    Mutant(
        "child-spawned-twice",
        "a child is started once, however often its parent is replayed",
        (
            Edit(
                "engine.ctx.children:spawn",
                "is_known = recorded is not None and recorded.status in (StepStatus.SUCCESS, StepStatus.ERROR)\n",
                "is_known = recorded is not None and recorded.status is StepStatus.PAUSED\n",
            ),
        ),
        ("tests/faults/test_written_together.py::test_a_worker_that_dies_after_it_started_a_child_has_started_one",),
    ),
    Mutant(
        "emitted-at-each-replay",
        "what a handler emits is published once, however often it is replayed",
        (
            Edit(
                "engine.ctx.emissions:emit",
                "if recorded is not None and recorded.status is StepStatus.SUCCESS:\n"
                "    await run_pass.order.turn(place.step_id)\n"
                "    return\n",
                "",
            ),
        ),
        (f"{_HISTORY}::test_what_a_handler_emits_is_published_once_however_often_it_is_replayed",),
    ),
    Mutant(
        "failed-attempt-emits",
        "what a failed attempt of a step emitted is not published",
        (
            Edit(
                "engine.ctx.steps:_attempt",
                "return await _failed(run_pass, call, record, error, branch)\n",
                "run_pass.failures.compensations.emitted = emitted\n"
                "return await _failed(run_pass, call, record, error, branch)\n",
            ),
            Edit(
                "engine.replay.recorder:Recorder.fail_unless_answered",
                "await self.record(record)\n",
                'await self.record(record, getattr(self._failures.compensations, "emitted", ()))\n',
            ),
        ),
        (f"{_RECORDS}::test_a_step_that_failed_for_good_publishes_nothing",),
    ),
    Mutant(
        "results-in-any-order",
        "a replay gives results to the branches of a handler in the order in which they came",
        (
            Edit(
                "engine.replay.result_order:ResultOrder.turn",
                "if not self._branches.has_several:\n",
                "if self._branches.has_several or step_ids:\n",
            ),
        ),
        (f"{_ORDER}::test_a_gather_raises_the_error_that_came_first_in_every_pass",),
    ),
    Mutant(
        "results-in-a-rush",
        "a result is given when the handler has done all that it can with the one before",
        (Edit("engine.replay.arrivals:_QUIET_TURNS", "_QUIET_TURNS = 4", "_QUIET_TURNS = 0"),),
        (
            f"{_ORDER}::test_a_branch_that_a_group_cancels_is_cancelled_in_every_pass",
            f"{_ORDER}::test_what_one_branch_tells_another_is_told_in_every_pass",
        ),
    ),
    Mutant(
        "results-overtake",
        "a result whose record is still being written is not overtaken",
        (
            Edit(
                "engine.replay.arrivals:Arrivals._is_overtaking",
                "return bool(self._numbered) and self._numbered[0] < number\n",
                "return False\n",
            ),
        ),
        (f"{_ORDER}::test_a_result_that_is_written_late_is_not_overtaken",),
    ),
    Mutant(
        "cancelled-wait-rests",
        "a wait that the handler has given up does not put the run to rest",
        (
            Edit(
                "engine.replay.task_states:pending",
                "if is_ready(branch):\n",
                "if is_ready(branch) and branch.state is not BranchState.WAITING:\n",
            ),
        ),
        (f"{_ORDER}::test_a_wait_that_the_handler_gives_up_is_not_waited_for",),
    ),
    Mutant(
        "first-by-argument",
        "the first of several waits is the one that ended first",
        (Edit("engine.ctx.race:_in_order", "ended.get(key) or LATEST", "LATEST"),),
        ("tests/behaviour/test_first_to_end.py::test_the_shorter_of_two_sleeps_wins",),
    ),
)
