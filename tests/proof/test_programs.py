"""The oracle, the generator, the judge and the shrinker of proof/programs: what they say without any engine.

`make proof LAYERS=programs` runs thousands of programs on the engine.
"""

import asyncio
import contextlib
import dataclasses

import pytest

from pgqrs import LeaseLost
from pgqrs.engine.replay.unwinding import Halt
from pgqrs.faults import Point
from proof.programs import grammar, judge, kit, oracle, shrink
from proof.programs.answers import Racy
from proof.programs.bench import Divergence, faults_for, spread
from proof.programs.errors import KINDS, make, seen
from proof.programs.faults import Fault
from proof.programs.generator import generate
from proof.programs.grammar import (
    Catch,
    Child,
    Fails,
    Gather,
    Gives,
    Group,
    If,
    Join,
    LastIs,
    Loop,
    Map,
    Program,
    Raise,
    Reraise,
    Return,
    Sleep,
    Start,
    Step,
    Transact,
    Try,
    TryGroup,
    Wait,
    parts,
    size,
)
from proof.programs.handlers import Case
from proof.programs.logs import CUT, Effect, Observation, Pass
from proof.programs.printing import as_test, compact, handler
from proof.programs.results import Result, Row
from proof.programs.walker import Walk

ALWAYS = Fails("declined", 2)
ONCE = Fails("declined", 2, times=1, value="second")
LATER = Fails("transient", 2, times=1, value="second")


def program(*body, **options):
    return Program(tuple(body), **options)


# -- the oracle ------------------------------------------------------------------------------------------------------


def test_a_program_returns_what_it_has_seen():
    answer = oracle.ask(program(Step("a", Gives(1)), Step("b", Gives("x"))))

    assert answer.outcome.status == "SUCCESS"
    assert answer.outcome.result == ["a=1", "b=x"]
    assert [effect.key for effect in answer.effects] == [":a", ":b"]


def test_an_error_that_nobody_catches_is_tried_as_often_as_the_run_may_be():
    answer = oracle.ask(program(Step("a"), Step("b", ALWAYS), attempts=3))

    assert answer.outcome.status == "ERROR"
    assert answer.outcome.error == "Declined: declined: reason 2"
    assert answer.most == {":a": 1, ":b": 3}


def test_a_permanent_error_ends_the_run():
    answer = oracle.ask(program(Step("a", Fails("stubborn")), attempts=3))

    assert answer.outcome.error == "Stubborn: stubborn 1"
    assert answer.most == {":a": 1}


def test_an_error_that_was_caught_stays_caught_in_the_next_attempt():
    caught = Try((Step("a", ONCE),), (Catch((), (Step("b"),)),))

    answer = oracle.ask(program(caught, Step("c", ONCE), attempts=2))

    assert answer.outcome.result == ["caught Declined", "b=1", "c=second"]
    assert answer.most == {":a": 1, ":b": 1, ":c": 2}


def test_a_policy_makes_good_what_fails_a_few_times():
    answer = oracle.ask(program(Step("a", ONCE, retry=2), attempts=1))

    assert answer.outcome.result == ["a=second"]
    assert answer.most == {":a": 2}


def test_a_policy_that_is_used_up_ends_the_run():
    answer = oracle.ask(program(Step("a", ALWAYS, retry=2), attempts=3))

    assert answer.outcome.status == "ERROR"
    assert answer.most == {":a": 2}


def test_a_restart_reopens_what_left_the_handler_and_nothing_else():
    caught = Try((Step("a", ALWAYS),), (Catch((), (Step("b"),)),))

    answer = oracle.ask(program(caught, Step("c", Fails("os"))), restarted=True)

    assert answer.outcome.result == ["caught Declined", "b=1", "c=1"]
    assert answer.most[":a"] == 1


def test_what_wraps_an_error_takes_it_along():
    wrapped = Try((Step("a", ONCE),), (Catch((), (Raise("value", chained="from"),)),))

    answer = oracle.ask(program(wrapped, attempts=2))

    assert answer.outcome.result == ["a=second"]


def test_finally_runs_on_every_way_out_and_return_ends_the_handler():
    left = Try((Step("a"), Return()), (), (), (Step("b"),))

    answer = oracle.ask(program(left, Step("c")))

    assert answer.outcome.result == ["a=1"]
    assert answer.required == {":a", ":b"}


def test_a_loop_ends_when_its_test_holds():
    answer = oracle.ask(program(Loop(3, (Step("a", Gives(2)),), LastIs(2)), If(LastIs(2), (Step("b"),))))

    assert answer.outcome.result == ["a[0]=2", "b=1"]


def test_two_branches_that_fail_are_a_race():
    with pytest.raises(Racy):
        oracle.ask(program(Gather("g", ((Step("a", ALWAYS),), (Step("b", Fails("os")),)))))


def test_two_branches_that_fail_are_no_race_where_all_of_them_are_asked():
    both = Gather("g", ((Step("a", ALWAYS),), (Step("b", Fails("os")),)), return_exceptions=True)

    assert oracle.ask(program(both)).outcome.result == ["g=[Declined, FileNotFoundError]"]


def test_two_branches_that_fail_are_a_race_also_where_nobody_waits_for_them():
    both = Gather("g", ((Step("a", ALWAYS),), (Step("b", Fails("os")),)))

    with pytest.raises(Racy, match="branch 1"):
        oracle.ask(program(Start("t", (both,)), Sleep("z", 100_000)))


def test_a_branch_that_nobody_waits_for_may_be_cut_off_anywhere():
    background = Start("t", (Step("a"), Sleep("y", 60), Step("b")))

    assert oracle.ask(program(background, Step("c"), Sleep("z", 60))).outcome.status == "SUCCESS"


def test_what_the_branches_of_a_failed_group_do_is_not_required():
    answer = oracle.ask(
        program(TryGroup((Group("t", ((Step("a", ALWAYS),), (Sleep("z"), Step("b")))),), Catch(("declined",))))
    )

    assert answer.outcome.result == ["caught ExceptionGroup"]
    assert ":b" not in answer.required


def test_effects_are_ordered_where_the_program_orders_them():
    answer = oracle.ask(program(Step("a"), Gather("g", ((Step("b"),), (Step("c"),))), Step("d")))

    after = {effect.key: effect.after for effect in answer.effects}
    assert after[":b"] == {":a"}
    assert after[":c"] == {":a"}
    assert after[":d"] == {":a", ":b", ":c"}


def test_what_is_started_and_never_awaited_is_not_required():
    background = Start("b", (Step("a"),))

    assert ":a" not in oracle.ask(program(background, Step("c"))).required
    assert ":a" in oracle.ask(program(background, Step("c"), Join("b"))).required


def test_a_signal_that_never_comes_ends_in_a_timeout():
    waits = Try((Wait("w", "never", timeout=5.0),), (Catch(("WaitTimeout",), (Step("a"),)),))

    assert oracle.ask(program(waits)).outcome.result == ["caught WaitTimeout", "a=1"]


def test_children_fail_are_cancelled_or_give_their_result():
    fails = Try((Child("c", program(Step("a", Fails("permanent")))),), (Catch(("ExecutionFailed",)),))
    doomed = Child("d", program(Wait("w", "never")), cancelled=True)
    answer = oracle.ask(
        program(
            fails, Try((doomed,), (Catch(("RunCancelled",)),)), Map("m", (program(Step("b")), program(Step("e"))))
        )
    )

    assert answer.outcome.result == ["caught ExecutionFailed", "caught RunCancelled", "m=[[b=1], [e=1]]"]


def test_a_map_raises_the_first_error_by_the_order_of_its_items():
    both = Map("m", (program(Step("a", Fails("os"))), program(Step("b", Fails("permanent")))))

    answer = oracle.ask(program(Try((both,), (Catch(("ExecutionFailed",)),))))

    assert answer.outcome.result == ["caught ExecutionFailed"]
    assert answer.required == {"/m.0:a", "/m.1:b"}


def test_two_statements_that_would_share_a_step_id_are_no_program():
    compensated = Try((Step("a", LATER),), (Catch((), (Step("b", Gives("undone")), Reraise())),))

    with pytest.raises(Racy, match="same step id"):
        oracle.ask(program(compensated, Step("c"), attempts=2))


def test_what_a_program_did_about_a_failure_stays_done_when_the_failure_is_healed():
    compensated = Try((Step("a", LATER),), (Catch((), (Step("b", called="undo"), Reraise())),))

    answer = oracle.ask(program(compensated, Step("c"), attempts=2))

    assert answer.outcome.result == ["a=second", "c=1"]
    assert answer.most == {":a": 2, ":b": 1, ":c": 1}


@pytest.mark.parametrize(
    "about_it",
    [
        lambda undo: Try((Step("a", ONCE),), (Catch((), (undo, Reraise())),)),
        lambda undo: Try((Step("a", ONCE),), (Catch((), (undo, Raise("os", chained="from"))),)),
        lambda undo: Try((Step("a", ONCE),), final=(undo,)),
        lambda undo: Try((Step("a", ONCE),), final=(Gather("g", ((undo,), ())),)),
    ],
    ids=["raises again", "raises another", "finally", "branches"],
)
def test_a_program_that_did_something_about_an_error_is_not_tried_again_with_it(about_it):
    undone = oracle.ask(program(about_it(Step("b", called="undo")), attempts=3))
    waited = oracle.ask(program(about_it(Sleep("z")), attempts=3))

    assert (undone.outcome.status, undone.most) == ("ERROR", {":a": 1, ":b": 1})
    assert (waited.outcome.status, waited.most) == ("SUCCESS", {":a": 2})


def test_a_program_that_did_something_about_another_error_is_tried_again():
    caught = Try((Step("a", ONCE),), (Catch((), (Step("b", called="undo"),)),))

    answer = oracle.ask(program(caught, Step("c", Fails("os", times=1)), attempts=2))

    assert answer.outcome.status == "SUCCESS"
    assert answer.most == {":a": 1, ":b": 1, ":c": 2}


def test_a_body_whose_first_result_is_lost_may_change_what_comes_of_a_program():
    sensitive = Try((Step("a", ONCE),), (Catch((), (Step("b"),)),))

    with pytest.raises(Racy):
        oracle.ask_under_faults(program(sensitive))


def test_what_a_lost_result_makes_needless_need_not_be_there():
    caught = Try((Step("a", ONCE),), (Catch((), (Transact("x"),)),))

    answer = oracle.ask_under_faults(program(caught, Step("b", Fails("permanent"))))

    assert answer.rows == {":x": False}
    assert ":x" not in answer.required


def test_a_transaction_whose_failure_may_be_what_is_recorded_need_not_leave_its_row():
    handled = Try((Transact("x", ONCE),), (Catch(("declined",)),))

    answer = oracle.ask_under_faults(program(handled, Step("b", Fails("permanent"))))

    assert answer.rows == {":x": False}
    assert ":x" in answer.required


def test_a_transaction_that_commits_in_every_way_leaves_its_row():
    answer = oracle.ask_under_faults(program(Transact("x", ONCE), Transact("y"), attempts=2))

    assert answer.rows == {":x": True, ":y": True}


def test_a_rerun_by_hand_of_what_is_handled_leaves_the_handler():
    answer = oracle.ask(program(Try((Step("a", ONCE),), (Catch((), (Reraise(),)),)), attempts=2))

    assert answer.outcome.result == ["a=second"]


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_error_agrees_with_itself_and_not_with_one_of_another_number(kind):
    one = seen(make(kind, 1))

    assert one.agrees(seen(make(kind, 1)))
    assert not one.agrees(seen(make(kind, 2)))


# -- programs --------------------------------------------------------------------------------------------------------


def test_the_same_number_of_a_seed_is_the_same_program():
    assert generate(7, 3)[0] == generate(7, 3)[0]
    assert generate(7, 3)[0] != generate(7, 4)[0]


@pytest.mark.parametrize("number", range(30))
def test_a_program_can_be_read_back_from_what_is_printed(number):
    made, _ = generate(11, number)
    names = vars(grammar)

    assert eval(repr(made), dict(names)) == made
    assert eval(compact(made), dict(names)) == made
    assert list(handler(made))
    compile(as_test(made, "kill@3", on="sqlite", name="it", said=["outcome: other"]), "test", "exec")


def test_every_statement_of_the_grammar_is_generated():
    made = {type(part).__name__ for number in range(150) for part in parts(generate(1, number)[0])}

    statements = {each.__name__ for each in vars(grammar).values() if dataclasses.is_dataclass(each)}
    assert statements - made <= {"Flip", "Pool", "Race", "Hold"}


# -- shrinking -------------------------------------------------------------------------------------------------------


def test_the_instruments_get_programs_that_await_every_task():
    task = Start("b1", (Step("s2"),))

    assert kit.awaits_its_tasks(program(task, Join("b1")))
    assert not kit.awaits_its_tasks(program(task))


def test_a_failing_program_is_made_as_small_as_what_fails():
    big = next(made for number in range(100) if size(made := generate(5, number)[0]) > 10 and _has_transaction(made))

    small = shrink.shrunk(big, _has_transaction)

    assert size(small) == 1
    assert len([*parts(small)]) <= 3


def _has_transaction(made):
    return any(isinstance(part, Transact) for part in parts(made))


def test_shrinking_ends_when_its_time_is_over():
    big, _ = generate(5, 0)

    assert shrink.shrunk(big, lambda _: True, seconds=0) == big


# -- the judge -------------------------------------------------------------------------------------------------------


@pytest.fixture
def result():
    """Of a program with one step, as it must be."""
    made = Result(Case(program(Step("a", Gives(1)))), Fault("none"))
    made.rows[""] = Row(1, None, "SUCCESS", "", '["a=1"]', None, "", 1, 0)
    made.case.ledger.begin(Effect(":a", ":"))
    made.case.passes[""] = [Pass({"": [Observation("a", 1)]}, "returned")]
    yield made
    made.case.close()


def told(result):
    return [each.partition(":")[0] for each in judge.divergences(result, oracle.ask(result.case.program))]


def test_what_agrees_is_not_told(result):
    assert told(result) == []


def test_another_outcome_is_told(result):
    result.rows[""] = result.rows[""]._replace(output='["a=2"]')

    assert told(result) == ["outcome"]


@pytest.mark.parametrize(
    ("body", "struck_last", "is_told"),
    [(Fails("os"), True, False), (Fails("os"), False, True), (Gives(1), True, True)],
    ids=["in the last attempt", "in another attempt", "but it succeeds"],
)
def test_a_run_may_end_for_its_worker_only_if_that_is_lost_in_the_last_attempt(result, body, struck_last, is_told):
    result.case.program = program(Step("a", body), attempts=1)
    result.case.passes[""] = []
    result.rows[""] = result.rows[""]._replace(status="ERROR", output=None, last_error="worker_lost")
    result.fault, result.struck, result.struck_last = Fault("kill", 9), True, struck_last

    assert told(result) == ["outcome"] * is_told


def test_a_value_that_changes_from_one_pass_to_the_next_is_told(result):
    result.case.passes[""].append(Pass({"": [Observation("a", 2)]}))

    assert told(result) == ["changed", "unforeseen"]


def test_an_error_that_the_program_never_raises_is_told(result):
    result.case.passes[""].insert(0, Pass({"": [Observation("a", error=seen(make("lease", 1)))]}))

    assert "unforeseen" in told(result)


def test_an_error_may_change_after_a_pass_that_ended_with_it(result):
    result.case.program = program(Step("a", Fails("os", times=1)), attempts=2)
    result.case.ledger.begin(Effect(":a", ":"))
    result.case.passes[""].insert(0, Pass({"": [Observation("a", error=seen(make("os", 1)))]}, "raised"))

    assert told(result) == []


def test_a_body_too_many_is_told(result):
    result.case.ledger.begin(Effect(":a", ":"))

    assert told(result) == ["effects"]


def test_a_fault_may_cost_one_body(result):
    result.case.ledger.begin(Effect(":a", ":"))
    result.fault, result.struck = Fault("kill", 3), True

    assert told(result) == []


def test_a_body_that_never_began_is_told(result):
    result.case.ledger.effects.clear()
    result.case.ledger._counts.clear()

    assert told(result) == ["effects"]


def test_a_row_that_is_there_twice_is_told(result):
    result.written[":a"] = 2

    assert told(result) == ["row"]


def test_a_row_that_is_missing_though_the_handler_saw_its_value_is_told(result):
    result.case.program = result.case.programs[""] = program(Transact("a", Gives(1)))
    result.cancelled, result.rows[""] = True, result.rows[""]._replace(status="CANCELLED")
    result.fault, result.struck = Fault("cancel", 9), True

    assert told(result) == ["row"]
    result.written[":a"] = 1
    assert told(result) == []


def test_an_event_that_is_missing_though_the_handler_saw_its_step_is_told(result):
    result.case.program = result.case.programs[""] = program(Step("a", Gives(1), emits=True))

    assert told(result) == ["event", "event"]
    result.emitted[":a"] = 1
    assert told(result) == []


LENIENT = Gather("g", ((Step("b"),), (Return(),)), return_exceptions=True)


async def walked(made, *answers):
    """What the passes of a handler log whose verbs give these answers, one after the other."""
    left = iter(answers)

    class Verbs:
        async def do(self, _node, _key, _frame):
            answer = next(left)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        async def gather(self, branches, _node):
            return await asyncio.gather(*(branch() for branch in branches), return_exceptions=True)

        def is_leaving(self):
            return False

    log = Pass()
    with contextlib.suppress(asyncio.CancelledError):
        await Walk(made, Verbs(), log, "").run()
    return log


async def test_signals_that_a_finally_gets_from_a_gather_on_its_way_out_are_no_values(result):
    made = program(Try((Step("a", Gives(1)),), final=(LENIENT,)))
    lost = LeaseLost("run 1 was leased again")

    log = await walked(made, Halt(lost), Halt(lost))

    assert log.seen == {}
    assert log.on_the_way_out == [("", Observation("g", [CUT, []]))]


async def test_signals_that_a_gather_gives_to_a_handler_are_told_unless_it_is_on_its_way_out(result):
    log = await walked(program(Step("a"), LENIENT), 1, Halt(LeaseLost("run 1 was leased again")))

    assert log.on_the_way_out == []
    result.case.program = program(Step("a"), LENIENT)
    result.case.passes[""] = [log]
    assert "unforeseen" in told(result)


@pytest.mark.parametrize(
    ("observed", "is_told"),
    [
        ([CUT, []], False),
        ([CUT, CUT], False),
        ([CUT, seen(LeaseLost("run 1 was leased again"))], True),
        ([CUT, [1]], True),
        ([CUT], True),
    ],
)
def test_whatever_else_a_gather_gives_on_the_way_out_must_be_what_it_always_gives(result, observed, is_told):
    result.case.program = program(Step("a", Gives(1)), Try(final=(LENIENT,)))
    result.rows[""] = result.rows[""]._replace(output='["a=1", "g=[[b=1], []]"]')
    result.case.ledger.begin(Effect(":b", ":1"))
    result.case.passes[""][0].on_the_way_out = [("", Observation("g", observed))]

    assert told(result) == ["unforeseen"] * is_told


def test_the_wrong_order_of_effects_is_told(result):
    result.case.program = program(Step("b", Gives(1)), Step("a", Gives(1)))
    result.case.ledger.begin(Effect(":b", ":"))
    result.rows[""] = result.rows[""]._replace(output='["b=1", "a=1"]')
    result.case.passes[""] = []

    assert told(result) == ["order"]


def test_a_run_that_is_left_is_told(result):
    result.rows["/c"] = result.rows[""]._replace(status="RUNNING", label="/c")

    assert told(result) == ["left"]


# -- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["none", "kill@7", "outage@3x6", "outage@3", "restart"])
def test_a_fault_is_read_as_it_is_written(text):
    assert str(Fault.of(text)) == text


@pytest.mark.parametrize("text", ["", "kil@7", "kill@", "kill@x"])
def test_what_is_no_fault_is_refused(text):
    with pytest.raises(ValueError, match="not a fault"):
        Fault.of(text)


def test_there_is_a_fault_of_each_mode_at_each_boundary(result):
    result.points = [Point(phase, "claims.claim") for phase in ("before", "after") * 2]

    found = faults_for(result, oracle.ask(program(Step("a", ALWAYS))))

    modes = {fault.mode: fault.nth for fault in found}
    assert modes == {
        "kill": 4,
        "stall": 4,
        "freeze": 4,
        "overlap": 4,
        "cancel": 4,
        "outage": 2,
        "lost": 2,
        "restart": 0,
    }


def test_a_call_that_is_made_once_is_struck_as_early_as_one_that_is_made_for_each_step():
    calls = ["claims.claim", *["settlement.write"] * 8, "claims.spawn"]
    points = [Point(phase, call) for call in calls for phase in ("before", "after")]
    every = [Fault(mode, nth) for mode in ("lost", "outage") for nth in range(1, 11)]

    first = spread(every, points)[:6]

    assert {(fault.mode, calls[fault.nth - 1]) for fault in first} == {
        (mode, call) for mode in ("lost", "outage") for call in calls
    }


def test_divergences_are_told_apart_by_what_went_wrong():
    one = Divergence(1, 2, "sqlite", "kill@3", ["outcome: ERROR, not SUCCESS"], program())
    other = dataclasses.replace(one, fault="kill@4", number=5)
    third = dataclasses.replace(one, said=["changed: it saw pgqrs.errors.LeaseLost"])

    assert one.signature == other.signature != third.signature
