"""Names and types that stand in two places, for type checkers, are the same in both."""

import ast
import dataclasses
import inspect

from pgqrs import blocking
from pgqrs.api.run import Run
from pgqrs.config import Changes, Config, Settings
from pgqrs.db.tables.runs import RunRow
from pgqrs.engine.ctx.context import Context
from pgqrs.engine.ctx.sync_context import SyncContext
from tools import blocking_stub


def test_settings_have_the_names_of_the_fields_of_config():
    fields = [field.name for field in dataclasses.fields(Config)]

    assert sorted(Changes.__annotations__) == sorted(fields)
    assert sorted(Settings.__annotations__) == sorted(set(fields) - {"dsn"})


def test_a_run_has_all_that_its_row_says():
    assert [field.name for field in dataclasses.fields(RunRow) if not hasattr(Run, field.name)] == []


def test_the_context_of_a_plain_handler_is_declared_with_the_verbs_of_an_async_one():
    """They are there by `__getattr__`, which type checkers are not shown."""
    source = inspect.getsource(SyncContext)
    verbs = [name for name in vars(Context) if not name.startswith("_")]

    assert len(verbs) > 15
    assert [verb for verb in verbs if f"def {verb}(" not in source and f"self.{verb}: " not in source] == []


def test_the_stub_of_the_blocking_api_is_what_its_code_says():
    """`make stubs` writes it."""
    assert blocking_stub.STUB.read_text(encoding="utf-8") == blocking_stub.formatted()


def test_every_name_of_the_stub_is_there_at_run_time():
    stub = ast.parse(blocking_stub.STUB.read_text(encoding="utf-8"))
    [listed] = [ast.literal_eval(each.value) for each in stub.body if isinstance(each, ast.Assign)]

    assert sorted(listed) == sorted(blocking.__all__)
    assert all(hasattr(blocking, name) for name in listed)
