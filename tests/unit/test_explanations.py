"""Every error, every cause of `why`, every rule and every check has a code, and `pgqrs explain` knows it."""

import re
from pathlib import Path

import pytest

import pgqrs
from pgqrs import errors, explanations
from pgqrs.api.operations import why
from pgqrs.cli.commands import explain
from pgqrs.lint.rules import RULES

ROOT = Path(__file__).parents[2]


def _classes():
    return [
        value
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.PgqrsError) and not name.startswith("_")
    ]


def test_every_error_is_explained_and_nothing_else():
    codes = {errors.code_of(each) for each in _classes()}

    assert len(codes) == len(_classes()) > 25
    assert codes | {"unexpected"} == set(explanations.ERRORS)


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (pgqrs.WorkflowNotFound, "workflow-not-found"),
        (pgqrs.PgqrsError, "pgqrs-error"),
        (type("Declined", (pgqrs.PermanentError,), {}), "permanent-error"),
        (errors._NamedNotFound, "not-found"),
        (KeyError, "unexpected"),
    ],
)
def test_a_code_is_that_of_the_nearest_class_of_ours(kind, code):
    assert errors.code_of(kind) == code


def test_an_error_and_its_class_have_one_code():
    assert errors.code_of(pgqrs.RunDeleted(7)) == errors.code_of(pgqrs.RunDeleted) == "run-deleted"


def test_every_cause_of_why_is_explained_and_nothing_else():
    source = Path(why.__file__).read_text(encoding="utf-8")
    causes = set(re.findall(r'_why\(\s*facts,\s*"(\w+)"', source))

    assert causes == set(explanations.CAUSES)


def test_every_code_is_there_once_however_it_is_written():
    codes = [explain._plain(each.code) for each in explain.everything()]

    assert len(codes) == len(set(codes)) > 80


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("run-not-found", "run-not-found"),
        ("RunNotFound", "run-not-found"),
        ("queue_paused", "queue_paused"),
        ("pgq101", "PGQ101"),
        ("I5", "I5"),
        ("unserved", "unserved"),
    ],
)
def test_a_code_is_found_as_people_write_it(asked, code):
    assert explain.found(asked).code == code


def test_a_near_miss_is_suggested():
    with pytest.raises(pgqrs.NotFound, match="did you mean 'lease-lost'"):
        explain.found("lease-lst")


def test_every_rule_of_the_linter_is_explained():
    assert {rule.code for rule in RULES} <= {each.code for each in explain.everything()}


def test_the_reference_is_what_explain_says():
    """`pgqrs explain --markdown > docs/reference/errors.md` makes it so."""
    assert (ROOT / "docs/reference/errors.md").read_text(encoding="utf-8") == explain.document()
