"""Where tasks begin: those that a store makes for itself must not be a part of the handler that calls it."""

import ast
from pathlib import Path

import pytest

import pgqrs

SOURCE = Path(pgqrs.__file__).parent
BEGIN = {"create_task", "ensure_future", "TaskGroup", "wait_for"}


def begins(file):
    """The lines on which a task begins in the context of the caller."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in BEGIN]


@pytest.mark.parametrize("folder", ["db", "db/drivers", "db/tables"])
def test_the_database_begins_its_tasks_detached(folder):
    """Any call of a store may be made in a handler."""
    assert {file.name: lines for file in (SOURCE / folder).glob("*.py") if (lines := begins(file))} == {}
