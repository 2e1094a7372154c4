"""Generated signatures and arguments: whatever way they take, the handler gets what a call would have given it."""

import inspect
import json
from base64 import b64encode
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

import pgqrs
from pgqrs.engine.definitions.binding import input_text, storable
from pgqrs.engine.definitions.handlers import Handler
from pgqrs.engine.definitions.input_schema import input_schema, stored_signature
from pgqrs.inputs import Typed
from rig.lengths import by_length

LIMIT = 2**20
NAMES = ["a", "amount", "b", "params", "sku", "value", "names", "é"]


@dataclass
class Parcel:
    sku: str
    count: int = 1
    tags: list[str] = field(default_factory=list)


_texts = st.text("ab$é\n", max_size=4)
_plain = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | _texts,
    # Keys that are names of parameters, and our own mark among them.
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*NAMES, "$args", "$tuple"]), inner, max_size=2)
    ),
    max_leaves=4,
)
# An annotation, and values that fit it.
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "": _plain,
    "Any": _plain,
    "int": st.integers(-5, 2**70),
    "str": _texts,
    "bool": st.booleans(),
    "float": st.floats(allow_nan=False, allow_infinity=False) | st.integers(0, 9),
    "list[int]": st.lists(st.integers(0, 9), max_size=2),
    "dict": st.dictionaries(st.sampled_from(NAMES), _plain, max_size=2),
    "dict[str, Any]": st.dictionaries(st.sampled_from(NAMES), _plain, max_size=2),
    "Parcel": st.builds(Parcel, _texts, st.integers(0, 9), st.lists(_texts, max_size=1)),
    "int | None": st.none() | st.integers(0, 9),
    "tuple": st.tuples(st.integers(0, 9), _texts),
    "datetime": st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - zones below
    "timedelta": st.timedeltas(timedelta(0), timedelta(days=9)),
}
SPACE = {"Any": Any, "Parcel": Parcel, "datetime": datetime, "timedelta": timedelta, "pgqrs": pgqrs}


@dataclass(frozen=True)
class Drawn:
    """A parameter. `default` is None, or a tuple with the default."""

    name: str
    kind: str
    default: tuple[Any, ...] | None

    def written(self, defaults: dict[str, Any]) -> str:
        text = f"{self.name}: {self.kind}" if self.kind else self.name
        if self.default is None:
            return text
        defaults[f"_{self.name}"] = self.default[0]
        return f"{text} = _{self.name}"


@dataclass(frozen=True)
class Signed:
    """A signature: parameters by position only, in either way, by keyword only; and where the context is."""

    groups: tuple[tuple[Drawn, ...], ...]
    context: str

    @property
    def parameters(self):
        return [each for group in self.groups for each in group]

    def function(self):
        """Gives back what it is called with, and the context first."""
        defaults: dict[str, Any] = {}
        only, either, keyword = ([each.written(defaults) for each in group] for group in self.groups)
        if self.context == "first":
            (only or either).insert(0, "ctx")
        parts = [*only, *(["/"] if only else []), *either]
        if keyword or self.context == "keyword":
            parts += ["*", *keyword, *(["c: pgqrs.PyWorkflow"] if self.context == "keyword" else [])]
        space: dict[str, Any] = {}
        exec(f"def flow({', '.join(parts)}):\n    return dict(locals())", {**SPACE, **defaults}, space)
        return space["flow"]

    def oracle(self, args, kwargs):
        """What Python binds, without the context; TypeError as a call would."""
        signature = inspect.signature(self.function())
        taken = [each for each in signature.parameters.values() if each.name not in ("ctx", "c")]
        bound = inspect.Signature(taken).bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)


@st.composite
def signatures(draw, *, least=0):
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=least, max_size=4))
    cuts = sorted(draw(st.lists(st.integers(0, len(names)), min_size=2, max_size=2)))
    optional = draw(st.integers(0, len(names)))
    drawn = []
    for place, name in enumerate(names):
        kind = draw(st.sampled_from(list(KINDS)))
        # By position, what follows a default has one, too; by keyword it may not.
        may = place >= optional if place < cuts[1] else draw(st.booleans())
        drawn.append(Drawn(name, kind, (draw(KINDS[kind]),) if may else None))
    groups = (tuple(drawn[: cuts[0]]), tuple(drawn[cuts[0] : cuts[1]]), tuple(drawn[cuts[1] :]))
    return Signed(groups, draw(st.sampled_from(["first", "none", "keyword"])))


@st.composite
def calls(draw, signed, *, right=False):
    """Arguments for it: mostly right ones, some left out, too many, or under another name."""
    args, kwargs = [], {}
    leaving_out = False
    for number, group in enumerate(signed.groups):
        for each in group:
            if each.default is not None and draw(st.booleans()):
                leaving_out = True
                continue
            value = draw(KINDS[each.kind])
            by_position = number == 0 or (number == 1 and not kwargs and draw(st.booleans()))
            if by_position and not leaving_out:
                args.append(value)
            elif number == 0:
                continue
            else:
                kwargs[each.name] = value
    mistake = None if right else draw(st.sampled_from([None, None, "more", "less", "other"]))
    if mistake == "more":
        args += [1] * 5
    elif mistake == "less" and (args or kwargs):
        args = args[:-1] if args else args
        kwargs = kwargs if args else dict(list(kwargs.items())[1:])
    elif mistake == "other":
        kwargs["unheard_of"] = 1
    return tuple(args), kwargs


def called(handler, arguments):
    got = handler.function(*(("the context",) if handler.takes_context else ()), **arguments)
    if handler.takes_context:
        assert "the context" in (got.pop("ctx", None), got.pop("c", None))
    return got


def by_name(signed, args, kwargs):
    """The arguments of a call, by name, without defaults."""
    signature = inspect.signature(signed.function())
    taken = [each for each in signature.parameters.values() if each.name not in ("ctx", "c")]
    return dict(inspect.Signature(taken).bind(*args, **kwargs).arguments)


def ways(signed, handler, arguments):
    """Each stored form that these arguments can come in, by who triggers."""
    told = stored_signature("flow", input_schema(handler))
    names = [each.name for each in signed.parameters]
    given: dict[str, Any] = {}
    if len(names) == 1 and arguments:
        # One value: the argument itself, except None, which is no argument where there is a default.
        [value] = arguments.values()
        given["value"] = value
        if value is None and signed.parameters[0].default is not None:
            del given["value"]
    elif len(names) > 1:
        given["object"] = arguments
    if arguments:
        given["typed"] = Typed(arguments)
    for way, value in given.items():
        yield f"{way}, by the code", input_text(handler, storable(value, max_bytes=LIMIT))
        yield f"{way}, by the stored schema", input_text(told, storable(value, max_bytes=LIMIT))
        yield f"{way}, bound by the worker", input_text(None, storable(value, max_bytes=LIMIT))


@settings(max_examples=by_length(short=100, long=400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_handler_gets_what_a_call_would_have_given_it(data):
    signed = data.draw(signatures())
    args, kwargs = data.draw(calls(signed))
    handler = Handler.of("flow", signed.function())
    try:
        expected = signed.oracle(args, kwargs)
    except TypeError:
        with pytest.raises(pgqrs.InvalidArguments):
            handler.encode_input(args, kwargs, max_bytes=LIMIT)
        return
    arguments = by_name(signed, args, kwargs)

    text = handler.encode_input(args, kwargs, max_bytes=LIMIT)
    assert called(handler, handler.decode_input(text)) == expected
    for way, stored in ways(signed, handler, arguments):
        assert called(handler, handler.decode_input(stored)) == expected, (way, stored)


@settings(max_examples=by_length(short=75, long=300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_arguments_by_name_may_leave_out_any_default(data):
    """Also where a call by position could not."""
    signed = data.draw(signatures(least=1))
    handler = Handler.of("flow", signed.function())
    arguments, expected = {}, {}
    for each in signed.parameters:
        if each.default is None or data.draw(st.booleans()):
            arguments[each.name] = expected[each.name] = data.draw(KINDS[each.kind])
        else:
            expected[each.name] = each.default[0]

    for way, stored in ways(signed, handler, arguments):
        assert called(handler, handler.decode_input(stored)) == expected, (way, stored)


@settings(max_examples=by_length(short=50, long=200), deadline=None)
@given(st.sampled_from(NAMES), st.sampled_from(["", "Any", "dict", "dict[str, Any]"]), _plain)
def test_a_dict_whose_only_key_is_the_parameter_is_the_argument_itself(name, kind, inner):
    signed = Signed(((), (Drawn(name, kind, None),), ()), "first")
    handler = Handler.of("flow", signed.function())
    told = stored_signature("flow", input_schema(handler))

    for signature in (handler, told, None):
        stored = input_text(signature, storable({name: inner}, max_bytes=LIMIT))
        assert called(handler, handler.decode_input(stored)) == {name: {name: inner}}


@settings(max_examples=by_length(short=75, long=300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_code_may_add_defaults_and_reorder_while_runs_wait(data):
    signed = data.draw(signatures(least=1))
    args, kwargs = data.draw(calls(signed, right=True))
    try:
        expected = signed.oracle(args, kwargs)
        arguments = by_name(signed, args, kwargs)
    except TypeError:
        reject()
    before = Handler.of("flow", signed.function())
    added = Drawn("added", data.draw(st.sampled_from(["", "int"])), (7,))
    # All by keyword: any order is allowed.
    shuffled = data.draw(st.permutations([*signed.parameters, added]))
    after = Handler.of("flow", Signed(((), (), tuple(shuffled)), signed.context).function())

    text = before.encode_input(args, kwargs, max_bytes=LIMIT)
    assume(text != "null")
    assert called(after, after.decode_input(text)) == {**expected, "added": 7}
    if len(signed.parameters) > 1:
        older = input_text(None, storable(arguments, max_bytes=LIMIT))
        assert called(after, after.decode_input(older)) == {**expected, "added": 7}


@settings(max_examples=by_length(short=50, long=200), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_bare_argument_of_before_is_still_that_argument_when_a_default_is_added(data):
    """Unless it is a dict that could as well be the arguments by name."""
    name, kind = data.draw(st.sampled_from(NAMES)), data.draw(st.sampled_from(list(KINDS)))
    value = data.draw(KINDS[kind])
    assume(value is not None)
    assume(not (isinstance(value, dict) and name in value))
    before = Drawn(name, kind, None)
    after = Handler.of("flow", Signed(((), (before, Drawn("added", "", (7,))), ()), "first").function())

    stored = input_text(None, storable(value, max_bytes=LIMIT))

    assert called(after, after.decode_input(stored)) == {name: value, "added": 7}


@settings(max_examples=by_length(short=75, long=300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_what_the_worker_would_refuse_is_refused_at_the_trigger(data):
    """By the code exactly; by a stored schema nothing that a worker would take."""
    signed = data.draw(signatures(least=1))
    handler = Handler.of("flow", signed.function())
    told = stored_signature("flow", input_schema(handler))
    value = data.draw(_plain | st.dictionaries(st.sampled_from(NAMES), _plain, max_size=3))

    def refused(signature):
        try:
            stored = input_text(signature, storable(value, max_bytes=LIMIT))
        except pgqrs.InvalidArguments:
            return True
        if signature is handler:
            called(handler, handler.decode_input(stored))
        return False

    if not refused(handler):
        assert not refused(told)


READABLE = (Decimal, datetime, date, time, timedelta, UUID, bytes)
_written = (
    st.decimals().map(str)
    | st.datetimes(timezones=st.none() | st.just(UTC)).map(lambda each: each.isoformat())
    | st.dates().map(str)
    | st.times(timezones=st.none() | st.just(UTC)).map(lambda each: each.isoformat())
    | st.uuids(allow_nil=True).map(str)
    | st.timedeltas(timedelta(0), timedelta(days=9)).map(msgspec.to_builtins)
    | st.binary(max_size=9).map(lambda each: b64encode(each).decode())
    | st.sampled_from(
        ["tomorrow", "12.5", "2026-01-31", "2026-01-31 12:00", "12:00", "5m", "PT5M", "", "NaN", "1e400"]
    )
    | st.text("0123456789-:TZ.PM+abcdef", max_size=12)
)


@settings(max_examples=by_length(short=250, long=1000), deadline=None)
@given(
    kind=st.sampled_from(READABLE),
    around=st.sampled_from([lambda kind: kind, lambda kind: kind | None, lambda kind: list[kind]]),
    value=_written | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
)
def test_texts_that_stand_for_other_values_are_checked_by_a_stored_schema_as_by_the_code(kind, around, value):
    def flow(ctx, given): ...

    flow.__annotations__["given"] = whole = around(kind)
    handler = Handler.of("flow", flow)
    told = stored_signature("flow", input_schema(handler))
    text = json.dumps([value] if whole == list[kind] else value)

    assert (told.misfit("given", text) is None) == (handler.misfit("given", text) is None)


# -- through a database, and all that is on the way ----------------------------------------------------------


@pytest.mark.timeout(300)
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
async def test_a_run_gets_its_arguments_whichever_way_it_was_triggered(store, data):
    signed = data.draw(signatures(least=1))
    args, kwargs = data.draw(calls(signed, right=True))
    try:
        expected = signed.oracle(args, kwargs)
    except TypeError:
        reject()
    arguments = by_name(signed, args, kwargs)
    got = []
    flow = signed.function()
    code = pgqrs.workflow(name="flow")(flow)
    watched = Handler.of("flow", flow)

    async def seen(ctx, **named):
        got.append(called(watched, named))

    await store.create_workflow("flow")
    worker = await pgqrs.worker("w", prefixes=["flow"]).workflows({"flow": code}).create(store)
    # The same workflow, but for what it does.
    worker._loop.service.handlers["flow"] = replace(watched, function=seen, is_async=True, takes_context=True)
    await code.trigger(*args, **kwargs).execute(store)
    count = 1
    if len(signed.parameters) > 1:
        noun = pgqrs.workflow("flow")
        await noun.trigger(arguments).execute(store)
        await noun.trigger_many([arguments, arguments]).execute(store)
        await pgqrs.schedules(store).create("s", "flow", cron="@daily", params=arguments)
        await pgqrs.schedules(store).trigger("s")
        count += 4
    await worker.run_until_idle()
    await worker.close()

    assert got == [expected] * count
