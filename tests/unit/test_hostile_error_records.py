"""Whatever stands in a row of steps: reading it executes nothing, imports nothing new, and never raises."""

import enum
import json
import sys
import types
from typing import ClassVar

import pytest

from pgqrs import errors
from pgqrs.engine.recorded_errors import Program, raised_again, record_of
from rig import raisables

CALLS = []


def told(name):
    def method(self, *_args, **_kwargs):
        CALLS.append(name)
        raise AssertionError(name)

    return method


METHODS = """
    __init__ __new__ __setattr__ __getattribute__ __getattr__ __setstate__ __reduce__ __reduce_ex__ __str__ __repr__ __eq__ __hash__
    __del__ __set_name__ __class_getitem__ __subclasshook__ __init_subclass__ with_traceback add_note split subgroup derive
""".split()  # noqa: SIM905 - a list of words


class Meta(type):
    """Tells of every call that a metaclass can get."""

    armed: ClassVar[bool] = False

    def __call__(cls, *_args, **_kwargs):
        CALLS.append("Meta.__call__")

    def __getattribute__(cls, name):
        if Meta.armed:
            CALLS.append(f"Meta.__getattribute__ {name}")
        return super().__getattribute__(name)

    def __hash__(cls):
        if Meta.armed:
            CALLS.append("Meta.__hash__")
        return type.__hash__(cls)

    def __eq__(cls, other):
        if Meta.armed:
            CALLS.append("Meta.__eq__")
        return cls is other

    def __instancecheck__(cls, it):
        CALLS.append("Meta.__instancecheck__")
        return False

    def __subclasscheck__(cls, it):
        if Meta.armed:
            CALLS.append("Meta.__subclasscheck__")
        return False


class Metered(ValueError, metaclass=Meta):
    code: int = 0


def _hostile(name, base, methods):
    body = {each: told(f"{name}.{each}") for each in methods}
    body["code"] = property(told(f"{name}.code"), told(f"{name}.code="), told(f"del {name}.code"))
    return type(name, (base,), {**body, "__module__": __name__})


# Without what a class statement itself would call.
QUIET = [each for each in METHODS if each not in ("__init_subclass__", "__set_name__", "__del__")]
Hostile = _hostile("Hostile", ValueError, QUIET)
HostileOS = _hostile("HostileOS", OSError, QUIET)
HostileGroup = _hostile("HostileGroup", ExceptionGroup, QUIET)
WithDel = _hostile("WithDel", ValueError, ["__del__"])


class Extended(ValueError):
    def __init_subclass__(cls, **_kwargs):
        CALLS.append("__init_subclass__")


class Missing(enum.Enum):
    A = 1

    @classmethod
    def _missing_(cls, _value):
        CALLS.append("_missing_")


class Annotated(ValueError):
    kind: Missing
    other: 'CALLS.append("annotation")'


class NotAnError:
    """No exception, though it could be made like one."""

    def __new__(cls, *_args):
        CALLS.append("NotAnError")


class Proxy:
    """Claims to be a class."""

    @property
    def __class__(self):
        CALLS.append("__class__")
        return type


proxy = Proxy()


def handler(ctx):
    """Stand for a handler of this module."""


PROGRAM = Program.of(handler)


@pytest.fixture(autouse=True)
def _armed():
    CALLS.clear()
    Meta.armed = True
    yield
    Meta.armed = False


def read(**record):
    text = json.dumps({"type": "X", "message": "m", "traceback": "t", **record})
    return raised_again(text, program=PROGRAM, step_id="pay")


def mine(name, **record):
    return read(module=__name__, qualname=name, home=True, **record)


@pytest.mark.parametrize(
    ("module", "qualname"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "object"),
        ("builtins", "type"),
        ("builtins", "BaseException"),
        ("builtins", "SystemExit"),
        ("builtins", "KeyboardInterrupt"),
        ("builtins", "GeneratorExit"),
        ("asyncio.exceptions", "CancelledError"),
        ("subprocess", "Popen"),
        ("builtins", "ValueError.__class__"),
        ("builtins", "ValueError.__init__"),
        ("builtins", "__build_class__"),
        ("sys", "modules"),
        ("", ""),
        ("", "ValueError"),
        (".", "."),
        ("..os", "error"),
        ("builtins\0", "ValueError"),
    ],
)
def test_a_name_of_something_else_than_an_exception_class_gives_a_stand_in(module, qualname):
    back = read(module=module, qualname=qualname, args=["echo"])

    assert type(back) is errors.StepFailed
    assert CALLS == []


@pytest.mark.parametrize(
    "name", ["NotAnError", "proxy", "handler", "CALLS", "_armed", "__builtins__", "read.<locals>.text"]
)
def test_a_name_of_the_handlers_module_that_is_no_exception_gives_a_stand_in(name):
    assert type(mine(name, args=["x"])) is errors.StepFailed
    assert CALLS == []


@pytest.mark.parametrize("name", ["canary", "canary.sub", "canary.sub.more"])
def test_a_module_that_is_not_loaded_is_not_imported(tmp_path, monkeypatch, name):
    (tmp_path / "canary").mkdir()
    for file in ("__init__.py", "sub.py"):
        (tmp_path / "canary" / file).write_text(
            "open(__file__ + '.ran', 'w').close()\nclass Error(Exception): pass\n"
        )
    monkeypatch.syspath_prepend(tmp_path)

    back = read(module=name, qualname="Error", bases=[{"module": name, "qualname": "Error"}])

    assert type(back) is errors.StepFailed
    assert not list(tmp_path.rglob("*.ran"))
    assert "canary" not in sys.modules


def test_a_lazy_module_is_not_asked(monkeypatch):
    class Lazy(types.ModuleType):
        def __getattribute__(self, name):
            CALLS.append(name)
            return ValueError

    lazy = Lazy("lazy_one")
    module = types.ModuleType("lazy_two")
    module.__getattr__ = told("__getattr__")
    monkeypatch.setitem(sys.modules, "lazy_one", lazy)
    monkeypatch.setitem(sys.modules, "lazy_two", module)
    monkeypatch.setitem(sys.modules, "lazy_three", proxy)
    CALLS.clear()

    backs = [read(module=name, qualname="Error") for name in ("lazy_one", "lazy_two", "lazy_three")]

    assert [type(back) for back in backs] == [errors.StepFailed] * 3
    assert CALLS == []


@pytest.mark.parametrize("name", ["Hostile", "HostileOS", "HostileGroup"])
def test_no_code_of_the_class_runs(name):
    nested = {"type": "X", "module": "builtins", "qualname": "KeyError", "args": ["k"]}

    back = mine(
        name,
        args=[1, "x"],
        attributes={"code": 3, "status": 4, "__notes__": ["n"], "__class__": 3, "__dict__": {}, "args": 5},
        fields={"errno": 2, "filename": "f", "message": "m"},
        unstored={"attributes.response": "Response"},
        exceptions=[nested],
        cause=nested,
        context={"ref": 0},
    )

    assert type(back) is globals()[name]
    assert CALLS == []


def test_a_class_whose_destructor_would_run_gives_a_stand_in():
    back = mine("WithDel", args=["x"])

    assert isinstance(back, errors.StepFailed)
    del back
    assert CALLS == []


def test_no_code_of_a_metaclass_runs():
    back = mine("Metered", args=["x"], attributes={"code": 3, "kind": 1}, annotated=["code"], says="text")
    stand_in = mine("Gone", bases=[{"module": __name__, "qualname": "Metered", "home": True}])
    calls = list(CALLS)

    assert type(back) is Metered
    assert type(stand_in) is errors.StepFailed
    assert calls == []


def test_no_class_is_extended_that_would_notice():
    saying = mine("Extended", args=["x"], says="text")
    stand_in = mine("Gone", bases=[{"module": __name__, "qualname": "Extended", "home": True}])

    assert type(saying) is Extended
    assert type(stand_in) is errors.StepFailed
    assert CALLS == []


def test_no_code_of_an_annotated_type_runs():
    back = mine("Annotated", args=["x"], attributes={"kind": 7, "other": 1}, annotated=["kind", "other"])

    assert (back.kind, back.other) == (7, 1)
    assert CALLS == []


def test_classes_that_cannot_be_combined_give_a_plain_stand_in():
    both = [{"module": "builtins", "qualname": name} for name in ("OSError", "SyntaxError")]

    assert type(read(module="m", qualname="X", bases=both)) is errors.StepFailed


@pytest.mark.parametrize(
    "fields",
    [
        {"encoding": "utf-8", "object": 3, "start": 0, "end": 1, "reason": "x"},
        {"encoding": "utf-8", "object": {"$bytes": "YQ=="}, "start": -1000000, "end": -999999, "reason": "x"},
        {"encoding": "utf-8", "object": {"$bytes": "YQ=="}, "start": 10**30, "end": 1, "reason": "x"},
        {"encoding": "utf-8", "object": "text", "start": 10**9, "end": 10**9 + 1, "reason": "x"},
        {"encoding": 1, "object": {"$bytes": "YQ=="}, "start": 0, "end": 1, "reason": None},
        {"start": "a"},
    ],
)
@pytest.mark.parametrize("kind", ["UnicodeDecodeError", "UnicodeEncodeError", "UnicodeTranslateError"])
def test_a_unicode_error_never_reads_outside_of_its_text(kind, fields):
    """CPython 3.11 does not check them: such a `str` reads foreign memory, or crashes."""
    back = read(module="builtins", qualname=kind, fields=fields)

    assert isinstance(str(back), str)
    assert back.start >= 0
    assert type(back.object) in (type(None), bytes if kind == "UnicodeDecodeError" else str)


@pytest.mark.parametrize("kind", [each.__name__ for each in raisables.BUILTINS])
@pytest.mark.parametrize("value", [None, 3, "x", [1], {"a": {"b": 1}}, 10**40, -1, {"$bytes": "YQ=="}])
def test_fields_of_any_type_leave_an_error_that_can_be_printed(kind, value):
    names = "errno strerror filename filename2 characters_written msg name path obj value lineno offset text end_lineno end_offset"
    fields = dict.fromkeys(f"{names} print_file_and_line encoding object start end reason message".split(), value)

    back = read(module="builtins", qualname=kind, fields=fields, attributes={"__notes__": value, "args": value})

    assert str(back) is not None
    assert repr(back)
    record_of(back, program=PROGRAM)


DEEP = 100_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "3",
        '"x"',
        "{",
        "\0",
        "\ud800",
        "{}",
        '{"type": 3}',
        '{"args": 3}',
        '{"module": "builtins", "qualname": "ValueError", "args": [{"$bytes": "*"}]}',
        '{"module": "builtins", "qualname": "ValueError", "attributes": {"a": {"$set": [[1]]}}}',
        '{"module": "builtins", "qualname": "ValueError", "ref": 99}',
        '{"module": "builtins", "qualname": "ValueError", "cause": {"ref": -1}, "context": {"ref": 0}}',
        '{"module": "builtins", "qualname": "ValueError", "held": {"": {"kind": "?"}, "attributes.": {"kind": "dict", "keys": ["a"]}}}',
        '{"module": "builtins", "qualname": "ValueError", "held": {"attributes.__notes__": {"kind": "error"}}}',
        '{"module": "builtins", "qualname": "ExceptionGroup", "exceptions": []}',
        '{"module": "builtins", "qualname": "ExceptionGroup", "exceptions": [{"ref": 0}]}',
        '{"module": "builtins", "qualname": "' + "a." * DEEP + '"}',
        '{"module": "' + "a." * DEEP + '", "qualname": "b"}',
        '{"cause": ' * DEEP + "{}" + "}" * DEEP,
        '{"unknown": ' + "[" * DEEP + "]" * DEEP + "}",
        '{"attributes": {"a": ' + "[" * DEEP + "]" * DEEP + "}}",
        '{"args": [' + '{"a":' * DEEP + "1" + "}" * DEEP + "]}",
        '{"held": {"args.0": ' + '{"kind": "list", "items": [' * DEEP + "]}" * DEEP + "}}",
        '{"message": "' + "x" * 10_000_000 + '"}',
        '{"cause": ' * 900 + "{}" + "}" * 900,
        '{"exceptions": [' + ",".join(['{"module": "builtins", "qualname": "KeyError"}'] * 20_000) + "]}",
    ],
    ids=lambda text: text[:40].encode("ascii", "replace").decode(),
)
def test_any_text_gives_an_error_and_raises_nothing(text):
    back = raised_again(text, program=PROGRAM, step_id="pay")

    assert isinstance(back, Exception)
    assert isinstance(raised_again(record_of(back, program=PROGRAM), program=PROGRAM, step_id="pay"), Exception)
