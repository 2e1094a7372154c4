"""Nothing that users meet is documented nowhere: settings, names, events, errors, commands, routes, metrics."""

import ast
import dataclasses
import inspect
import re
from importlib import import_module
from pathlib import Path

import pgqrs
from pgqrs.audit import EventType
from pgqrs.config import Config
from pgqrs.engine.ctx.context import Context
from tools.docs import api, schema

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SRC = ROOT / "src" / "pgqrs"
# What processes of ours tell each other: nobody else sets them.
BETWEEN_US = {"PGQRS_DEMO_LEDGER", "PGQRS_PARENT_SOCKET"}
# Made from the code: that a name is there shows nothing.
MADE = {DOCS / "reference/python.md"}


def text(*, without=frozenset()):
    return "\n".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md") if page not in without)


def missing(wanted, found):
    return sorted(each for each in wanted if each not in found)


def words(found):
    return set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", found))


def test_every_setting_is_in_the_table_of_settings():
    page = (DOCS / "reference/settings.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))

    assert listed == {field.name for field in dataclasses.fields(Config)}


def test_every_variable_of_the_environment_is_documented():
    read = set()
    for file in SRC.rglob("*.py"):
        read |= set(re.findall(r"\"(PGQRS_[A-Z_]*[A-Z]|WORKER_TYPE_PREFIXES)\"", file.read_text(encoding="utf-8")))

    assert len(read) > 2
    assert missing(read - BETWEEN_US, words(text())) == []


def test_every_function_is_told_of_in_a_page_that_a_person_wrote():
    functions = {name for name in pgqrs.__all__ if inspect.isroutine(getattr(pgqrs, name))}

    assert missing(functions, words(text(without=MADE))) == []


def test_every_public_name_is_documented():
    names = {name for module in api.MODULES for name in api.public(module)} - {"__version__"}

    assert len(names) > 100
    assert missing(names, words(text())) == []


def test_the_fields_of_a_run_in_a_test_are_documented():
    [entry] = re.findall(r"### `pgqrs.testing.RunHandle`\n(.*?)\n###", api.page(), re.DOTALL)

    assert missing({"run_id", "workflow", "steps", "events", "step_ids", "status"}, words(entry)) == []


def test_every_error_is_documented():
    errors = {name for name, each in vars(import_module("pgqrs.errors")).items() if _is_public_error(name, each)}

    assert len(errors) > 20
    assert missing(errors, words(text())) == []


def _is_public_error(name, each):
    return inspect.isclass(each) and issubclass(each, pgqrs.PgqrsError) and not name.startswith("_")


def test_every_verb_of_a_handlers_context_is_told_of():
    verbs = {f"ctx.{name}" for name in vars(Context) if not name.startswith("_")}
    verbs |= {"ctx.run_id", "ctx.workflow", "ctx.attempt"}

    assert missing(verbs, set(re.findall(r"ctx\.\w+", text(without=MADE)))) == []


def test_every_event_is_in_the_table_of_events():
    page = (DOCS / "reference/events.md").read_text(encoding="utf-8")

    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(EventType)


def test_every_reason_why_a_run_does_not_move_is_told_of():
    tree = ast.parse((SRC / "api/operations/why.py").read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "_why")
    causes = {call.args[1].value for call in calls}
    page = (DOCS / "guides/operations.md").read_text(encoding="utf-8")

    assert len(causes) > 10
    assert missing(causes, set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))) == []


def test_every_table_and_column_has_words():
    assert schema.undescribed() == []


def commands():
    """`pgqrs run trigger` and the like: every leaf of the tree."""
    from pgqrs.cli import app as cli

    app = cli.tree() if hasattr(cli, "tree") else cli.app

    def walk(group, path):
        for command in group.registered_commands:
            yield f"{path} {command.name or command.callback.__name__.replace('_', '-')}"
        for each in group.registered_groups:
            yield from walk(each.typer_instance, f"{path} {each.name}")

    return sorted(walk(app, "pgqrs"))


def test_every_command_is_documented():
    found = commands()

    assert len(found) > 40
    assert missing(found, text()) == []


def test_every_route_is_documented():
    from pgqrs.web.application import endpoints

    routes = {(each.method, re.sub(r":\w+}", "}", each.path)) for each in endpoints(dashboard=False)}
    page = (DOCS / "reference/http.md").read_text(encoding="utf-8")

    assert missing((f"{method} {path}" for method, path in routes), page) == []


def test_every_row_of_the_threat_model_that_says_cannot_names_a_test():
    page = (DOCS / "concepts/threat-model.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| ")]
    claims = [row for row in rows if row[1].strip() and row[-1].strip() != "test"]

    assert len(claims) > 50
    assert [row for row in claims if ".py" not in row[-1]] == []


def test_every_file_of_tests_that_a_page_names_exists():
    named = {file.removeprefix("tests/") for file in re.findall(r"`((?:\w+/)+test_\w+\.py)", text())}

    assert len(named) > 50
    assert [file for file in sorted(named) if not (ROOT / "tests" / file).is_file()] == []
