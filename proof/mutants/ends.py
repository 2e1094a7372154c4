"""Ends of runs and of programs that are told wrongly, and transactions that cost others their leases."""

from proof.mutants.mutant import Edit, Mutant

_LONG = "tests/faults/test_long_transactions.py"
_LOCKED = (
    "tests/faults/test_heartbeats.py::test_a_row_that_another_transaction_has_locked_is_neither_waited_for_nor_lost"
)
_VERDICTS = "tests/behaviour/test_verdicts_in_groups.py"
_RECURSION = "tests/behaviour/test_recursion.py"
_CONTEXTS = "tests/behaviour/test_task_contexts.py"

MUTANTS = (
    Mutant(
        "renewal-waits-for-locks",
        "a locked row does not keep the leases of others from being renewed",
        (
            Edit(
                "db/tables/messages.postgres.sql:renew_leases",
                "for update of m skip locked",
                "for update of m",
            ),
        ),
        (_LOCKED,),
        on="postgres",
    ),
    Mutant(
        "locked-is-lost",
        "a lease whose row is locked is not lost",
        (
            Edit(
                "engine.heartbeat:Heartbeat._beat",
                "elif held.message_id not in locked and not held.settling:",
                "elif not held.settling:",
            ),
        ),
        (_LOCKED,),
        on="postgres",
    ),
    Mutant(
        "transaction-locks-first",
        "a transaction does not keep its own lease, or the records of other runs, waiting",
        (
            Edit(
                "db.runs.claims:transact",
                "settlement.hold(db, [fence]) if is_second else messages.still_held(db, [fence[1:]])",
                "settlement.hold(db, [fence])",
            ),
        ),
        (_LONG,),
        on="postgres",
    ),
    Mutant(
        "transaction-unfenced-at-its-end",
        "a run that was cancelled while its transaction was at work keeps nothing of it",
        (
            Edit(
                "db.runs.claims:transact",
                "if not is_second and not await settlement.hold(db, [fence]):\n",
                "if False:\n",
            ),
        ),
        ("tests/faults/test_lock_order.py",),
        on="postgres",
    ),
    Mutant(
        "group-hides-permanent",
        "a PermanentError in a group ends the run at once",
        (Edit("engine.runs.outcome:is_permanent", "return any(", "return all("),),
        (_VERDICTS,),
    ),
    Mutant(
        "group-hides-delay",
        "the longest delay that a group asks for counts",
        (Edit("engine.runs.outcome:asked_delay", "return max(asked", "return min(asked"),),
        (_VERDICTS,),
    ),
    Mutant(
        "policy-ignores-members",
        "a retry policy looks at each error of a group",
        (
            Edit(
                "retry:RetryPolicy._gives_up_on",
                "return isinstance(error, BaseExceptionGroup) and any(",
                "return False and any(",
            ),
        ),
        (_VERDICTS,),
    ),
    Mutant(
        "child-is-asked-again",
        "a parent whose child has failed is not tried again: it would find the same end",
        (
            Edit(
                "engine.ctx.children:_asked",
                "await run_pass.recorder.fail(record, failed, is_final=True, branch=branch)",
                "await run_pass.recorder.fail(record, failed, branch=branch)",
            ),
        ),
        ("tests/behaviour/test_children.py",),
    ),
    Mutant(
        "program-end-is-an-error",
        "a program that ends beside its worker hands its runs back",
        (Edit("engine.replay.run_pass:RunPass._on_cancel", "self.lease.hand_back()", "pass"),),
        ("tests/behaviour/test_programs_that_end.py",),
    ),
    Mutant(
        "end-is-cut-short",
        "a worker or a direct call whose caller is cancelled again and again hands its runs back",
        (
            Edit(
                "engine.runs.shutdown:to_its_end",
                "except asyncio.CancelledError as error:\n    cancelled = error\n",
                "except asyncio.CancelledError:\n    raise\n",
            ),
        ),
        ("tests/behaviour/test_programs_that_end.py",),
    ),
    Mutant(
        "no-room-on-the-stack",
        "a handler at the recursion limit gets its RecursionError, and the run does not hang",
        (
            Edit(
                "engine.replay.stack_room:check_stack_room",
                "except ValueError:\n    return\n",
                "except ValueError:\n    return\nreturn\n",
            ),
        ),
        (f"{_RECURSION}::test_recursion_without_an_end_fails_the_run_with_the_error_of_python",),
    ),
    Mutant(
        "empty-context-is-outside",
        "a task that the handler gives a context of its own is a branch of it",
        (
            Edit(
                "engine.replay.task_factory:_TaskFactory.__call__",
                "current_branch not in context and not is_detached(context)",
                "False",
            ),
        ),
        (_CONTEXTS,),
    ),
)
