"""Racy programs of proof/programs: their generator, their replay in memory, and what their passes must agree on."""

import pytest

from proof.programs import first_divergence, grammar, oracle
from proof.programs.agreement import disagreements
from proof.programs.answers import Racy
from proof.programs.bench import Divergence, faults_for, read_case
from proof.programs.errors import make, seen
from proof.programs.faults import Fault
from proof.programs.grammar import (
    Child,
    Emit,
    Fails,
    Gather,
    Gives,
    Group,
    Hold,
    Pool,
    Program,
    Race,
    Start,
    Step,
    Transact,
    parts,
)
from proof.programs.handlers import Case
from proof.programs.logs import Effect, Observation, Pass
from proof.programs.printing import as_test, compact, handler
from proof.programs.races import generate_racy
from proof.programs.replaying import Impossible, replayed
from proof.programs.results import Result, Row


def program(*body, **options):
    return Program(tuple(body), **options)


def observed(*order, end="", gave=None, token=0):
    """A pass: each observation as (path, key, value or error)."""
    made = Pass(end=end, token=token)
    made.order = [
        (path, Observation(key, error=seen(what)) if isinstance(what, Exception) else Observation(key, what))
        for path, key, what in order
    ]
    made.gave = gave
    return made


# -- programs --------------------------------------------------------------------------------------------------------


def test_the_same_number_of_a_seed_is_the_same_racy_program():
    assert generate_racy(7, 3) == generate_racy(7, 3)
    assert generate_racy(7, 3) != generate_racy(7, 4)


@pytest.mark.parametrize("number", range(8))
def test_the_oracle_has_no_answer_to_a_racy_program(number):
    with pytest.raises(Racy):
        oracle.ask(generate_racy(11, number))


@pytest.mark.parametrize("number", range(8))
def test_a_racy_program_can_be_read_back_from_what_is_printed(number):
    made = generate_racy(11, number)

    assert eval(compact(made), dict(vars(grammar))) == made
    assert list(handler(made))
    compile(as_test(made, "kill@3", on="sqlite", name="it", said=["order: other"], is_racy=True), "test", "exec")


def test_racy_programs_have_every_statement_in_which_the_order_matters():
    made = {type(part) for number in range(12) for part in parts(generate_racy(1, number))}

    assert {Pool, Race, Hold, Group, Gather} <= made


@pytest.mark.parametrize(
    "body",
    [
        Pool("k", ((Step("a"),), (Step("b"),), (Step("c"),))),
        Race("v", ((Step("a"),), (Step("b"),))),
        Race("v", ((Step("a", Gives(1)),), (Step("b", Gives(2)),)), "each"),
        Gather("g", ((Step("a"), Hold("h")), (Step("b"), Hold("i")))),
        Group("t", ((Step("a", Fails()),), (Step("b", Fails("os")),))),
    ],
)
def test_what_branches_take_from_one_another_goes_by_the_order_of_results(body):
    with pytest.raises(Racy):
        oracle.ask(program(body))


def test_a_case_says_whether_its_program_is_racy():
    one = Divergence(7, 17, "sqlite", "kill@5", ["order: other"], program(), is_racy=True)

    assert one.case == "r17 kill@5"
    assert read_case(one.case) == (True, 17, "kill@5")
    assert read_case("17") == (False, 17, "")


# -- a pass replayed in memory ---------------------------------------------------------------------------------------

SHARED = program(Pool("k", ((Step("a"),), (Step("b"),), (Step("c"),))))


def test_who_takes_the_next_item_follows_from_the_order_of_results():
    began = [("1", "k/0", 0), ("2", "k/0", 1)]
    first = observed(*began, ("1", "a", 1), ("1", "k/1", 2))
    other = observed(*began, ("2", "b", 1), ("2", "k/1", 2))

    assert replayed(SHARED, first).order == first.order
    assert replayed(SHARED, other).order == other.order


def test_a_result_that_the_program_does_not_wait_for_cannot_have_come():
    with pytest.raises(Impossible, match="branch 1 saw c"):
        replayed(SHARED, observed(("1", "k/0", 0), ("2", "k/0", 1), ("1", "c", 1)))


def test_an_error_that_a_body_never_raises_cannot_have_come():
    with pytest.raises(Impossible, match="raises nothing"):
        replayed(program(Step("a"), Step("b")), observed(("", "a", make("value", 1))))


def test_the_first_error_ends_the_group_and_the_handler():
    both = program(Group("t", ((Step("a", Fails("value", 1)),), (Step("b", Fails("os", 2)),))))

    made = replayed(both, observed(("2", "b", make("os", 2))))

    assert made.end == "raised"
    assert [str(part.kind) for part in made.gave.error.parts] == ["builtins.FileNotFoundError"]


def test_nothing_is_noted_when_the_handler_has_come_to_its_end():
    """The background task gets the lock in the moment in which the handler returns."""
    ends = program(Start("b", (Step("a"), Hold("h"))), Hold("i", (Step("c"),)))

    made = replayed(ends, observed(("", "i", 0), ("1", "a", 1), ("", "c", 1)))

    assert made.end == "returned"
    assert [observation.key for _, observation in made.order] == ["i", "a", "c"]


# -- what passes must agree on ---------------------------------------------------------------------------------------

BOTH = program(
    Gather("g", ((Step("a"), Hold("h")), (Step("b"), Hold("i")), (Transact("x"), Emit("e"))), return_exceptions=True)
)
ORDER = [("2", "b", 1), ("2", "i", 0), ("1", "a", 1), ("1", "h", 1), ("3", "x", 1), ("3", "e", None)]
GAVE = [["a=1", "h=1"], ["b=1", "i=0"], ["x=1", "e=None"]]
TEXT = "[a=1, h=1], [b=1, i=0], [x=1, e=None]"


@pytest.fixture
def result():
    """Of two passes that agree; the second has come to its end."""
    made = Result(Case(BOTH, is_racy=True), Fault("none"))
    made.rows[""] = Row(1, None, "SUCCESS", "", f'["g=[{TEXT}]"]', None, "", 1, 0)
    for key, path in ((":a", ":1"), (":b", ":2"), (":x", ":3")):
        made.case.ledger.begin(Effect(key, path))
    made.written[":x"] = made.emitted[":e"] = 1
    whole = observed(*ORDER, ("", "g", GAVE), end="returned", gave=Observation("", [f"g=[{TEXT}]"]), token=2)
    made.case.passes[""] = [observed(*ORDER[:3], token=1), whole]
    yield made
    made.case.close()


def told(result):
    return [each.partition(":")[0] for each in disagreements(result)]


def test_passes_that_agree_are_not_told(result):
    assert told(result) == []


def test_results_in_another_order_are_told(result):
    result.case.passes[""][0] = observed(("1", "a", 1), ("1", "h", 0), token=1)

    assert told(result) == ["order"]


def test_another_value_is_told(result):
    result.case.passes[""][0].order[1] = ("2", Observation("i", 1))

    assert told(result) == ["order", "replay"]


def test_passes_are_compared_by_their_leases(result):
    result.case.passes[""].reverse()

    assert told(result) == []


def test_what_followed_an_error_may_come_in_another_order_after_a_pass_that_raised():
    failing = program(Gather("g", ((Step("a", Fails(times=1)), Hold("h")), (Step("b"), Hold("i")))), attempts=2)
    made = Result(Case(failing, is_racy=True), Fault("none"))
    made.rows[""] = Row(1, None, "SUCCESS", "", '["g=[[a=1, h=1], [b=1, i=0]]"]', None, "", 2, 0)
    error = make("value", 1)
    raised = observed(("1", "a", error), ("", "g", error), end="raised", gave=Observation("", error=seen(error)))
    again = observed(
        *[("2", "b", 1), ("2", "i", 0), ("1", "a", 1), ("1", "h", 1)],
        ("", "g", [["a=1", "h=1"], ["b=1", "i=0"]]),
        end="returned",
        gave=Observation("", ["g=[[a=1, h=1], [b=1, i=0]]"]),
        token=1,
    )
    made.case.passes[""] = [raised, again]

    assert told(made) == []
    # One that was cut off there has come to nothing.
    raised.end, raised.gave = "", None
    assert told(made) == ["order"]
    made.case.close()


def test_an_outcome_that_the_order_does_not_lead_to_is_told(result):
    result.case.passes[""][1].gave = Observation("", ["something else"])
    result.rows[""] = result.rows[""]._replace(output='["something else"]')

    assert told(result) == ["replay"]


def test_an_outcome_that_is_not_that_of_the_last_pass_is_told(result):
    result.rows[""] = result.rows[""]._replace(output='["something else"]')

    assert told(result) == ["outcome"]


def test_what_a_handler_gave_on_its_way_out_is_not_asked_for(result):
    cut = observed(*ORDER, end="raised", token=1)
    result.case.passes[""][0] = cut

    assert told(result) == []


@pytest.mark.parametrize(("at", "is_told"), [("after claims.claim", False), ("after settlement.commit", True)])
def test_a_racy_run_whose_last_lease_was_lost_ends_for_that(result, at, is_told):
    result.struck, result.fault, result.struck_at = True, Fault("lost", 3), at
    result.rows[""] = result.rows[""]._replace(status="ERROR", output=None, last_error="worker_lost")

    assert told(result) == (["outcome"] if is_told else [])


@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "PAUSED"])
def test_a_racy_run_that_is_left_is_told(result, status):
    result.rows[""] = result.rows[""]._replace(status=status)

    assert told(result) == ["left"]


def test_a_run_that_was_cancelled_is_cancelled(result):
    result.cancelled = True

    assert told(result) == ["outcome"]
    result.rows[""] = result.rows[""]._replace(status="CANCELLED")
    assert told(result) == []


def test_a_racy_body_too_many_is_told_unless_a_fault_explains_it(result):
    result.case.ledger.begin(Effect(":a", ":1"))

    assert told(result) == ["effects"]
    result.struck, result.fault = True, Fault("kill", 3)
    assert told(result) == []


def test_rows_and_events_that_are_there_twice_are_told(result):
    result.written[":x"] = result.emitted[":e"] = 2

    assert told(result) == ["row", "event"]


def test_rows_and_events_that_are_missing_though_the_handler_saw_them_are_told(result):
    result.case.passes[""][1].seen["3"] = [Observation("x", 1), Observation("e")]
    result.written[":x"] = result.emitted[":e"] = 0

    assert sorted(told(result)) == ["event", "row"]


def test_a_parent_that_saw_another_end_of_its_child_is_told():
    made = Result(Case(program(Child("c", program(Step("a")))), is_racy=True), Fault("none"))
    made.rows[""] = Row(1, None, "SUCCESS", "", "[\"c=['a=1']\"]", None, "", 1, 0)
    made.rows["/c"] = Row(2, 1, "CANCELLED", "/c", None, None, "", 1, 0)
    made.case.programs["/c"] = program(Step("a"))
    gave = Observation("", ["c=[a=1]"])
    made.rows[""] = made.rows[""]._replace(output='["c=[a=1]"]')
    made.case.passes[""] = [observed(("", "c", ["a=1"]), end="returned", gave=gave)]
    made.case.doomed.add("/c")

    assert told(made) == ["child"]
    made.case.close()


def test_a_restart_is_a_fault_of_a_racy_program_that_failed(result):
    assert Fault("restart") not in faults_for(result, None)

    result.rows[""] = result.rows[""]._replace(status="ERROR")
    assert Fault("restart") in faults_for(result, None)


# -- shrinking -------------------------------------------------------------------------------------------------------


class Always:
    """A bench on which every racy program fails in the same way."""

    def __init__(self):
        self.answers = []

    def judged(self, _program, _fault, answer):
        self.answers.append(answer)
        return None, ["order: other"]


@pytest.mark.parametrize("body", [SHARED.body, (Step("a"),)])
def test_a_part_of_a_racy_program_is_judged_as_one_also_when_it_is_no_race(body):
    bench = Always()

    assert first_divergence(bench, Program(body), "order none", is_racy=True) == ("none", ["order: other"])
    assert bench.answers == [None]
