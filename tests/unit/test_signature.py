"""What a workflow's function says of itself: which parameter is the context, and that its name is its own."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Protocol

import pytest

import pgqrs
from pgqrs.cli.dispatchers import is_maker
from pgqrs.engine.definitions.handlers import Handler, shape_of
from rig.late_names import late_names, written


class Described(Protocol):
    def step(self, name: str, function: Any) -> Any: ...


def by_annotation(c: pgqrs.PyWorkflow, x: int): ...
def by_annotation_further_on(x: int, c: pgqrs.PyWorkflow, y: int = 1): ...
def by_annotation_as_keyword(x: int, *, c: pgqrs.PyWorkflow): ...
def by_annotation_or_none(c: pgqrs.PyWorkflow | None, x: int): ...
def by_position_only(c: pgqrs.PyWorkflow, x: int, /): ...
def by_name(ctx, x): ...
def by_another_name(wf, x): ...
def by_name_and_protocol(ctx: Described, x): ...
def by_name_and_anything(context: Any, x): ...


@pytest.mark.parametrize(
    "function",
    [
        by_annotation,
        by_annotation_further_on,
        by_annotation_as_keyword,
        by_annotation_or_none,
        by_position_only,
        by_name,
        by_another_name,
        by_name_and_protocol,
        by_name_and_anything,
    ],
    ids=lambda each: each.__name__,
)
def test_the_context_is_recognised_and_passed_where_it_belongs(function):
    handler = Handler.of("flow", function)

    assert handler.takes_context
    assert handler.names[0] == "x"
    handler.function(object(), **{name: 1 for name in handler.names if name in handler.required})


@late_names
def test_an_annotation_that_only_type_checkers_can_read_counts_by_its_text(head):
    flow = written(head, "def flow(c: pgqrs.PyWorkflow, gone: list[Gone], n: int) -> int: ...")

    handler = Handler.of("flow", flow)

    assert handler.takes_context
    assert handler.names == ("gone", "n")
    assert handler.types == {"n": int, "return": int}


@late_names
def test_a_step_may_name_what_only_type_checkers_import(head):
    fetch = written(head, "def fetch(gone: Gone) -> int: return 1")

    assert pgqrs.step(fetch)("as it is") == 1
    assert shape_of(fetch).returns is int


@late_names
def test_a_publisher_may_name_what_only_type_checkers_import(head):
    tell = written(head, "def tell(event: Gone) -> None: ...")

    assert not is_maker(tell)


def data(order, x): ...
def data_named_context(context: str, question: str): ...
def data_named_later(question, context): ...


@pytest.mark.parametrize("function", [data, data_named_context, data_named_later], ids=lambda each: each.__name__)
def test_other_parameters_are_data(function):
    handler = Handler.of("flow", function)

    assert not handler.takes_context
    assert len(handler.names) == 2


def two(a: pgqrs.PyWorkflow, b: pgqrs.PyWorkflow): ...
def short(c, x): ...
def method(self, x): ...
def dict_named_ctx(ctx: dict, x: int): ...
def ctx_later(x, ctx): ...


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (two, "two parameters for the context, 'a' and 'b'"),
        (short, "parameter 'c' could be the context or an argument"),
        (method, "parameter 'self' could be the context or an argument"),
        (dict_named_ctx, "parameter 'ctx' is annotated as data"),
        (ctx_later, "parameter 'ctx' is not the first parameter"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_what_is_not_clear_is_refused_with_the_ways_out(function, told):
    with pytest.raises(pgqrs.ConfigError, match=told) as caught:
        Handler.of("flow", function)

    assert "test_signature.py" in str(caught.value)


@pytest.mark.parametrize("parameters", ["ctx, *rest", "ctx, **more", "ctx, a, *, b=1, **more"])
def test_arguments_without_a_name_are_refused(parameters):
    with pytest.raises(pgqrs.ConfigError, match=r"arguments are stored by name; give each one a parameter"):
        pgqrs.workflow(name="flow")(written("text", f"def flow({parameters}): ..."))


# -- one name, one function ----------------------------------------------------------------------------------


def test_a_second_function_under_the_name_of_another_is_refused_with_both_places():
    @pgqrs.workflow(name="shared_name")
    def one(ctx): ...

    with pytest.raises(pgqrs.ConfigError, match="two workflows are named 'shared_name'") as caught:

        @pgqrs.workflow(name="shared_name")
        def other(ctx): ...

    assert ".one in " in str(caught.value)
    assert ".other in " in str(caught.value)
    assert str(caught.value).count("test_signature.py:") == 2
    assert pgqrs.discover_workflows()["shared_name"].function is one.__wrapped__


def test_a_function_that_is_gone_is_in_nobodys_way():
    def define():
        @pgqrs.workflow(name="short_lived")
        def one(ctx): ...

        one.itself = one  # a cycle

    define()

    @pgqrs.workflow(name="short_lived")
    def other(ctx): ...


def test_a_module_may_be_loaded_again(tmp_path, monkeypatch):
    file = tmp_path / "loaded_again.py"
    file.write_text("import pgqrs\n\n\n@pgqrs.workflow(name='loaded')\ndef flow(ctx, n: int): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("loaded_again")
    first = module.flow

    importlib.reload(module)
    monkeypatch.delitem(sys.modules, "loaded_again")
    again = importlib.import_module("loaded_again")
    file.rename(tmp_path / "under_another_name.py")
    (tmp_path / "loaded_again.py").symlink_to(tmp_path / "under_another_name.py")
    by_another_name = importlib.import_module("under_another_name")

    assert len({id(each) for each in (first, module.flow, again.flow, by_another_name.flow)}) == 4


def test_two_modules_of_one_program_cannot_share_a_name(tmp_path, monkeypatch):
    for name in ("billing_flows", "shipping_flows"):
        (tmp_path / f"{name}.py").write_text(
            f"import pgqrs\n\n\n@pgqrs.workflow(name='in_two_modules')\ndef {name}(ctx): ...\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("billing_flows")

    with pytest.raises(pgqrs.ConfigError, match=r"billing_flows\.py:4 and shipping_flows in .*shipping_flows\.py:4"):
        importlib.import_module("shipping_flows")


def test_a_worker_is_not_given_two_functions_for_one_name():
    def one(ctx): ...
    def other(ctx): ...

    builder = pgqrs.worker("w", prefixes=[]).workflows({"served": one})

    with pytest.raises(pgqrs.ConfigError, match="two workflows are named 'served'"):
        builder.workflows({"served": other})
    assert builder.workflows({"served": one}) is builder
