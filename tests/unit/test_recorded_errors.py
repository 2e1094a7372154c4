"""Errors come back from their records as they went in; what cannot says so."""

import asyncio
import dataclasses
import enum
import errno
import json
import sqlite3
import subprocess

import asyncpg
import msgspec
import pydantic
import pytest
import requests

import pgqrs
from pgqrs import errors
from pgqrs.engine.recorded_errors import Program, raised_again, record_of
from pgqrs.engine.recorded_errors.annotations import annotated_types
from rig.late_names import late_names, written


class Reason(enum.StrEnum):
    FUNDS = "funds"


@dataclasses.dataclass
class Card:
    last4: str


class Declined(errors.PermanentError):
    """As people write them: keyword-only arguments, annotated attributes."""

    reason: Reason

    def __init__(self, *, reason: Reason, card: Card, tries: int) -> None:
        super().__init__(f"declined: {reason}")
        self.reason = reason
        self.card = card
        self.tries = tries


class Refused(errors.PermanentError):
    """Annotates in its body what others set."""

    reason: Reason


class Gateway:
    class Down(ConnectionError):
        pass


class Busy(Exception):
    """Says what it was told, from something that cannot be stored."""

    def __init__(self, lock):
        super().__init__(lock)
        self.lock = lock

    def __str__(self):
        return f"busy: {type(self.lock).__name__} of {len(self.lock.holders)}"


class Both(Busy, MemoryError):
    pass


class Lock:
    holders = (1, 2)


def handler(ctx):
    """Stand for a handler of this module."""


PROGRAM = Program.of(handler)


def again(error, program=PROGRAM):
    return raised_again(record_of(error, program=program), program=program, step_id="pay")


def raised(function, *args):
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value


def test_an_error_keeps_the_attributes_that_its_class_annotates():
    back = again(Declined(reason=Reason.FUNDS, card=Card("4242"), tries=2))

    assert type(back) is Declined
    assert (back.reason, back.card, back.tries) == (Reason.FUNDS, Card("4242"), 2)
    assert type(back.reason) is Reason
    assert str(back) == "declined: funds"


def test_an_error_keeps_what_only_the_body_of_its_class_annotates():
    error = Refused("no")
    error.reason = Reason.FUNDS

    back = again(error)

    assert type(back.reason) is Reason


@late_names
def test_an_annotation_that_cannot_be_read_leaves_the_others_of_an_error_class(head):
    kind = written(
        head,
        """class Refused(Exception):
            gone: Gone
            reason: Reason
            def __init__(self, gone: Gone, tries: int) -> None: ...""",
        Reason=Reason,
    )

    assert annotated_types(kind) == {"reason": Reason, "tries": int}


@late_names
def test_an_annotation_that_raises_is_none_of_an_error_class(head):
    assert annotated_types(written(head, "class Refused(Exception):\n    reason: str[1 / 0]")) == {}


def test_an_error_of_the_standard_library_keeps_its_attributes():
    error = raised(json.loads, "[1,")

    back = again(error)

    assert type(back) is json.JSONDecodeError
    assert (back.pos, back.doc, back.lineno, str(back)) == (3, "[1,", 1, str(error))


def test_a_class_inside_of_another_is_found():
    back = again(Gateway.Down(errno.ECONNREFUSED, "refused"))

    assert type(back) is Gateway.Down
    assert (back.errno, back.strerror, back.args) == (errno.ECONNREFUSED, "refused", (errno.ECONNREFUSED, "refused"))


def test_a_missing_file_keeps_its_name_and_its_class():
    back = again(raised(open, "/no/such/file"))

    assert type(back) is FileNotFoundError
    assert (back.errno, back.filename) == (errno.ENOENT, "/no/such/file")
    assert str(back) == "[Errno 2] No such file or directory: '/no/such/file'"


def test_an_os_error_made_by_hand_stays_one():
    error = OSError(2, "x")
    plain = OSError("only text")

    assert type(again(error)) is FileNotFoundError
    assert type(again(plain)) is OSError
    assert str(again(plain)) == "only text"


def test_text_that_cannot_be_decoded_is_kept():
    back = again(raised(b"a\xff".decode))

    assert (back.object, back.start, back.end, back.reason) == (b"a\xff", 1, 2, "invalid start byte")
    assert str(back) == "'utf-8' codec can't decode byte 0xff in position 1: invalid start byte"


def test_a_key_error_says_the_key_as_python_does():
    back = again(raised({}.__getitem__, "a b"))

    assert (str(back), back.args) == ("'a b'", ("a b",))


def test_errors_of_other_libraries_keep_their_attributes():
    process = again(subprocess.CalledProcessError(3, ["ls", "-l"], output=b"x"))
    reading = again(asyncio.IncompleteReadError(b"ab", 5))

    assert (process.returncode, process.cmd, process.output) == (3, ["ls", "-l"], b"x")
    assert (reading.partial, reading.expected) == (b"ab", 5)


def test_a_unique_violation_of_sqlite_keeps_its_code():
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (a unique)")
    connection.execute("insert into t values (1)")
    error = raised(connection.execute, "insert into t values (1)")
    connection.close()

    back = again(error)

    assert type(back) is sqlite3.IntegrityError
    assert (back.sqlite_errorname, str(back)) == ("SQLITE_CONSTRAINT_UNIQUE", "UNIQUE constraint failed: t.a")


def test_a_unique_violation_of_asyncpg_keeps_its_fields():
    fields = {"S": "ERROR", "C": "23505", "M": "duplicate key", "n": "orders_key", "t": "orders"}
    error = asyncpg.PostgresError.new(fields)

    back = again(error)

    assert type(back) is asyncpg.UniqueViolationError
    assert (back.sqlstate, back.constraint_name, back.table_name) == ("23505", "orders_key", "orders")
    assert str(back) == "duplicate key"


def test_an_http_error_comes_back_and_its_response_says_that_it_was_not_recorded():
    response = requests.Response()
    response.status_code = 404

    back = again(requests.HTTPError("not here", response=response))

    assert type(back) is requests.HTTPError
    assert str(back) == "not here"
    with pytest.raises(errors.NotRecorded) as caught:
        back.response.status_code  # noqa: B018 - reading it is what raises
    assert str(caught.value) == (
        "HTTPError.response was not recorded, because a Response cannot be stored; "
        "read it inside the step and raise or return what you need"
    )
    assert caught.value.attribute == "HTTPError.response"


@pytest.mark.parametrize(
    "use",
    [
        bool,
        len,
        iter,
        hash,
        int,
        lambda it: it == 1,
        lambda it: it < 1,
        lambda it: it(),
        lambda it: it["a"],
        lambda it: it.a,
    ],
)
def test_any_use_of_what_was_not_recorded_raises(use):
    error = ValueError("x")
    error.it = object()

    with pytest.raises(
        errors.NotRecorded, match=r"ValueError\.it was not recorded, because an object cannot be stored"
    ):
        use(again(error).it)


def test_what_was_not_recorded_can_be_printed():
    error = ValueError("x")
    error.it = object()

    assert f"{again(error).it!r} {again(error).it}" == "<ValueError.it: not recorded> <ValueError.it: not recorded>"


def test_a_large_attribute_is_not_recorded():
    error = ValueError("x")
    error.body = "b" * 70_000
    error.code = 3

    back = again(error)

    assert back.code == 3
    assert len(record_of(error, program=PROGRAM)) < 10_000
    with pytest.raises(errors.NotRecorded, match="because this str is too large"):
        len(back.body)


def test_an_error_that_makes_its_text_of_what_was_not_recorded_still_says_it():
    back = again(Busy(Lock()))

    assert isinstance(back, Busy)
    assert str(back) == "busy: Lock of 2"
    assert repr(again(back)) == repr(back)
    assert str(again(back)) == "busy: Lock of 2"


def test_arguments_that_cannot_be_stored_become_their_text():
    back = again(ValueError(Reason.FUNDS, 3, Card("1")))

    assert back.args == ("funds", 3, "Card(last4='1')")


def test_causes_contexts_and_notes_come_back():
    def fail():
        try:
            try:
                raise KeyError("a")
            except KeyError as inner:
                raise ValueError("b") from inner
        except ValueError:
            raise Declined(reason=Reason.FUNDS, card=Card("1"), tries=1)  # noqa: B904 - a context is wanted

    error = raised(fail)
    error.add_note("note")

    back = again(error)

    assert back.__cause__ is None
    assert type(back.__context__) is ValueError
    assert back.__context__.__cause__ is back.__context__.__context__
    assert back.__context__.__suppress_context__ is True
    assert repr(back.__context__.__cause__) == "KeyError('a')"
    assert back.__notes__ == ["note"]


def test_a_group_comes_back_with_its_members():
    back = again(ExceptionGroup("two", [Gateway.Down("a"), ExceptionGroup("one", [KeyError("k")])]))

    assert str(back) == "two (2 sub-exceptions)"
    assert type(back.exceptions[0]) is Gateway.Down
    assert repr(back.exceptions[1].exceptions) == "(KeyError('k'),)"
    assert back.args[1][0] is back.exceptions[0]


def test_an_error_inside_of_attributes_comes_back():
    error = ValueError("x")
    error.tries = [KeyError("a"), (Gateway.Down("b"), 3)]
    error.last = error.tries[0]

    back = again(error)

    assert repr(back.tries) == "[KeyError('a'), (Down('b'), 3)]"
    assert back.last is back.tries[0]


def test_a_chain_without_an_end_is_cut():
    error = first = ValueError(0)
    for number in range(1, 50):
        error.__cause__ = ValueError(number)
        error = error.__cause__
    error.__cause__ = first

    back, length = again(first), 0
    while back is not None:
        back, length = back.__cause__, length + 1

    assert length == 9


def test_a_group_of_very_many_keeps_some():
    back = again(ExceptionGroup("many", [ValueError(n) for n in range(10_000)]))

    assert len(back.exceptions) == 63


@pytest.mark.parametrize(
    "error",
    [
        errors.PermanentError("no"),
        errors.TransientError("later", retry_after=2.5),
        errors.PauseError("approval", resume_condition={"by": "boss"}),
        errors.ExecutionFailed(7, {"type": "ValueError", "message": "x"}),
        errors.RunCancelled(7, "by hand"),
        errors.WaitTimeout("late"),
        errors.SerializationError("no", path="$.a[3]"),
        errors.PayloadTooLarge(10, 3),
        errors.LeaseLost("gone", message_id=3),
        errors.ConnectionFailed("away", ambiguous=True),
        errors.QueueNotFound("q", known=["qq"]),
        errors.RunDeleted(3, "old"),
        errors.StepFailed("s", kind="K", message="m", attributes={"a": 1}),
        errors.NotRecorded("no", attribute="A.b"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_pgqrs_come_back_with_their_fields(error):
    back = again(error)

    assert type(back) is type(error)
    assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))


def test_a_class_that_cannot_be_found_has_a_stand_in_below_the_same_bases():
    class TooPoor(Declined):
        pass

    back = again(TooPoor(reason=Reason.FUNDS, card=Card("1"), tries=4))

    assert isinstance(back, errors.StepFailed)
    assert isinstance(back, Declined)
    assert (back.step_id, back.kind, back.message) == ("pay", "TooPoor", "declined: funds")
    assert back.attributes == {"reason": "funds", "card": {"last4": "1"}, "tries": 4}
    assert back.tries == 4
    assert str(back) == "step 'pay' failed with TooPoor: declined: funds"


def test_a_stand_in_stays_what_it_is_when_it_is_recorded_again():
    class Unknown(KeyError):
        pass

    back = again(Unknown("x"))

    assert str(again(back)) == str(back) == "step 'pay' failed with Unknown: 'x'"
    assert type(again(back)) is type(back)
    assert vars(again(back)) == vars(back)


def test_an_error_of_several_classes_comes_back():
    assert type(again(Both("x"))) is Both


def test_an_error_that_only_its_own_code_can_make_has_a_stand_in():
    class Model(pydantic.BaseModel):
        n: int

    error = raised(lambda: Model(n="x"))

    back = again(error)

    assert isinstance(back, errors.StepFailed)
    assert isinstance(back, ValueError)
    assert back.kind == "ValidationError"
    assert "valid integer" in back.message


def test_an_error_of_a_library_in_c_comes_back():
    back = again(raised(msgspec.json.decode, b"{"))

    assert isinstance(back, msgspec.DecodeError)


@pytest.mark.parametrize("error", [KeyboardInterrupt("x"), SystemExit(3), GeneratorExit(), asyncio.CancelledError()])
def test_what_is_no_exception_has_a_plain_stand_in(error):
    back = again(error)

    assert type(back) is errors.StepFailed
    assert back.kind == type(error).__name__


@pytest.mark.parametrize("kind", [StopIteration, StopAsyncIteration])
def test_a_stop_iteration_comes_back_as_from_a_coroutine(kind):
    back = again(kind(3))

    assert type(back) is RuntimeError
    assert str(back) == f"step raised {kind.__name__}"
    assert repr(back.__cause__) == f"{kind.__name__}(3)"


def test_rows_of_earlier_versions_are_read_as_before():
    def read(kind):
        text = json.dumps({"type": kind, "message": "m", "traceback": "t"})
        return raised_again(text, program=PROGRAM, step_id="pay")

    assert repr(read("Declined")) == "Declined('m')"
    assert repr(read("ValueError")) == "ValueError('m')"
    assert repr(read("TransientError")) == "TransientError('m')"
    assert repr(read("Elsewhere")) == "StepFailed(\"step 'pay' failed with Elsewhere: m\")"
    assert isinstance(read("StepStatus"), errors.StepFailed)
    assert isinstance(read("KeyboardInterrupt"), errors.StepFailed)


def test_a_record_says_what_people_look_for_first():
    record = json.loads(record_of(raised(json.loads, "{"), program=PROGRAM))

    assert list(record)[:3] == ["type", "message", "traceback"]
    assert record["type"] == "JSONDecodeError"
    assert record["message"].startswith("Expecting property name")
    assert "json/decoder.py" in record["traceback"]
    assert (record["module"], record["qualname"]) == ("json.decoder", "JSONDecodeError")


@pytest.mark.parametrize("text", ["a\0b", "\ud800", "x" * 5_000])
def test_any_text_can_be_recorded(text):
    error = ValueError(text)
    error.add_note(text)
    error.it = text

    record = record_of(error, program=PROGRAM)

    assert "\\u0000" not in record
    record.encode()
    assert isinstance(again(error), ValueError)


def test_an_error_that_cannot_be_looked_at_is_recorded():
    class Broken(Exception):
        def __str__(self):
            raise OSError("no text")

        @property
        def __dict__(self):
            raise OSError("no attributes")

        def __getattribute__(self, name):
            raise OSError("nothing")

    back = again(Broken("x"))

    assert back.kind == "Broken"
    assert back.message == "(str() of the exception raised OSError)"


def test_a_program_is_made_of_what_a_handler_wraps():
    @pgqrs.workflow(name="wrapped")
    def wrapped(ctx):
        """Do nothing."""

    class Callable:
        def __call__(self, ctx):
            """Do nothing."""

    for handled in (wrapped, Callable(), Callable().__call__):
        assert type(again(Gateway.Down("x"), Program.of(handled))) is Gateway.Down
