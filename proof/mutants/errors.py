"""Handlers that see the engine's trouble, or another error than they saw before; passes that do not end."""

from proof.mutants.mutant import Edit, Mutant

_ORDINARY = "tests/behaviour/test_ordinary_python.py"
_MISUSED = "tests/behaviour/test_misused_steps.py"
_COMPENSATING = "tests/behaviour/test_compensating.py"
_ENDING = "tests/behaviour/test_ending_passes.py"
_TRANSACTIONS = "tests/behaviour/test_transactions.py"
_SAME = "tests/behaviour/test_same_in_every_pass.py"

MUTANTS = (
    Mutant(
        "signals-are-errors",
        "a handler's `except Exception` never sees the engine's control flow",
        (
            Edit(
                "engine.replay.unwinding:EngineSignal",
                "class EngineSignal(BaseException):",
                "class EngineSignal(Exception):",
            ),
        ),
        (f"{_ORDINARY}::test_changed_code_is_no_error_that_a_handler_can_catch",),
    ),
    Mutant(
        "outage-fails-the-step",
        "a step whose record cannot be written for a while has not failed",
        (
            Edit(
                "engine.replay.recorder:Recorder.record",
                "await self.insisted(",
                "raise\nawait self.insisted(",
            ),
        ),
        (f"{_ORDINARY}::test_an_outage_while_a_step_is_recorded_does_not_fail_the_step",),
    ),
    Mutant(
        "first-error-as-it-came",
        "a handler catches the recorded error, also in its first pass",
        (
            Edit(
                "engine.replay.recorder:Recorder.fail_unless_answered",
                "return failure.with_traceback(error.__traceback__)\n",
                "return error\n",
            ),
        ),
        (f"{_SAME}::test_what_cannot_be_recorded_of_an_error_is_missing_in_the_first_pass_too",),
    ),
    Mutant(
        "transaction-error-forgotten",
        "an error that a transaction's function raised is recorded, and raised by every replay",
        (
            Edit(
                "engine.ctx.transactions:_attempt",
                "return Raise(await run_pass.recorder.fail(pending, failed, branch=branch))\n",
                "return Raise(failed)\n",
            ),
        ),
        (f"{_SAME}::test_the_error_of_a_transaction_is_caught_again_and_its_function_called_once",),
    ),
    Mutant(
        "users-error-taken-for-the-connections-postgres",
        "an OSError of a transaction's function is the user's, and the function is called once",
        (Edit("db.runs.claims:_worked", "raise WorkFailed(error) from error\n", "raise\n"),),
        (f"{_TRANSACTIONS}::test_an_error_of_the_users_function_is_the_users",),
        on="postgres",
    ),
    Mutant(
        "finally-runs-when-handed-back",
        "a `finally` begins no step when its worker hands the run back",
        (
            Edit(
                "engine.replay.run_pass:RunPass.check_usable",
                "if self.lease.handing_back:\n",
                "if self._is_closed:\n",
            ),
        ),
        (f"{_ENDING}::test_a_finally_begins_no_step_when_its_worker_is_stopped",),
    ),
    Mutant(
        "halt-tells-nobody",
        "a part that cannot be recorded ends the whole pass, however the rest of the handler waits",
        (
            Edit(
                "engine.replay.pass_lease:PassLease.halt",
                "self._on_halt()",
                "pass",
            ),
        ),
        (f"{_ENDING}::test_a_part_whose_step_cannot_be_recorded_ends_the_whole_pass",),
    ),
    Mutant(
        "progress-shown-again",
        "a replay does not show progress again",
        (Edit("engine.ctx.progress:Progress.show", "if run_pass.is_replaying():\n    return\n", ""),),
        (f"{_MISUSED}::test_progress_is_not_shown_again_by_a_replay",),
    ),
    Mutant(
        "waits-inside-steps",
        "a wait inside the body of a step is refused",
        (
            Edit(
                "engine.replay.refusals:refuse_in_body",
                "if body is not None:\n",
                "if body is not None and not verb:\n",
            ),
        ),
        (f"{_MISUSED}::test_a_verb_inside_the_body_of_a_step_is_refused_with_the_way_out",),
    ),
    Mutant(
        "other-way-keeps-its-places",
        "what a handler did about a failure does not park the attempt that goes well",
        (
            Edit(
                "engine.replay.places:Places._left_by",
                "stale = [key for each in chain for key in self._behind(each)]",
                "stale = [key for each in chain for key in self._behind(each) if not key]",
            ),
        ),
        (f"{_ORDINARY}::test_a_step_in_a_finally_block_does_not_park_the_retry",),
    ),
    Mutant(
        "forgotten-await-succeeds",
        "a step that was called and not awaited ends the run in ERROR",
        (
            Edit(
                "engine.replay.unawaited:UnawaitedCalls.check",
                "if forgotten:\n",
                "if forgotten and has_tasks is None:\n",
            ),
        ),
        (f"{_MISUSED}::test_a_step_that_is_not_awaited_ends_the_run_in_error",),
    ),
    Mutant(
        "compensated-and-retried",
        "a run whose handler made up for its error is not retried",
        (
            Edit(
                "engine.runs.executor:Executor._decided",
                "is_made_up_for = bool(compensated_by) and not is_transient(error)",
                "is_made_up_for = False",
            ),
        ),
        (f"{_COMPENSATING}::test_what_was_made_up_for_is_not_tried_again",),
    ),
    Mutant(
        "compensated-in-tasks",
        "what a task does that was begun for an error is done about that error",
        (Edit("engine.replay.task_factory:_TaskFactory._task", "context.run(handled_error.set, error)", "pass"),),
        (f"{_COMPENSATING}::test_what_was_made_up_for_is_not_tried_again",),
    ),
    Mutant(
        "attempts-multiplied",
        "a step that has used up its own attempts is not run again by the run's",
        (
            Edit(
                "engine.runs.executor:Executor._decided",
                "is_used_up = any(step.is_final for step in made_it_fail)",
                "is_used_up = False",
            ),
            Edit("engine.replay.failures:reopened", "if not step.is_final\n", ""),
        ),
        (f"{_MISUSED}::test_the_bodies_of_a_step_are_those_of_its_policy_else_one_in_each_attempt_of_the_run",),
    ),
    Mutant(
        "unknown-outcome-repeated",
        "a step with retry_unknown=False whose outcome is unknown is not run again",
        (
            Edit(
                "engine.ctx.steps:_begun_before",
                "if recorded is not None and recorded.status is StepStatus.RUNNING:",
                "if recorded is not None and recorded.status is StepStatus.PAUSED:",
            ),
        ),
        (f"{_MISUSED}::test_a_step_that_must_not_be_repeated_is_not_when_its_outcome_is_unknown",),
    ),
    Mutant(
        "attributes-of-errors-lost",
        "a recorded error keeps its attributes",
        (
            Edit(
                "engine.recorded_errors.decode:Reader.read",
                '_set_attributes(error, attributes | unstored["attributes"])\n',
                '_set_attributes(error, dict.fromkeys(attributes) | unstored["attributes"])\n',
            ),
        ),
        ("tests/unit/test_recorded_errors.py::test_an_error_keeps_the_attributes_that_its_class_annotates",),
    ),
)
