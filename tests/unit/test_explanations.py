"""Every error, every cause of `why`, every rule and every check has a code, and `pgqrs explain` knows it."""

import re
from pathlib import Path

import pytest

import pgqrs
from pgqrs import errors, explanations
from pgqrs.api import why

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
