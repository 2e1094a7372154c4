"""Every mutant still applies to the source as it is; `make proof LAYERS=mutants` tells who notices it."""

from collections import Counter
from pathlib import Path
from textwrap import indent

import pytest

from proof.mutants import MUTANTS, source
from proof.mutants.mutant import Edit, Mutant, found
from proof.mutants.source import NoLongerApplies

ROOT = Path(__file__).parent.parent.parent


def test_every_mutant_finds_its_text_once_and_changes_it():
    wrong = []
    for mutant in MUTANTS:
        try:
            for file, text in found(mutant):
                assert text != file.read_text(encoding="utf-8"), mutant.name
                if file.suffix == ".py":
                    compile(text, f"{file.name} with {mutant.name}", "exec")
        except NoLongerApplies as error:
            wrong.append(str(error))

    assert wrong == []


def test_each_mutant_has_a_name_of_its_own():
    assert [name for name, times in Counter(mutant.name for mutant in MUTANTS).items() if times > 1] == []


def test_the_tests_that_should_kill_a_mutant_exist():
    texts = {}
    missing = []
    for mutant in MUTANTS:
        for killer in mutant.killers:
            file, _, name = killer.partition("::")
            text = texts.setdefault(file, (ROOT / file).read_text(encoding="utf-8"))
            missing += [] if f"def {name}" in text else [(mutant.name, killer)]

    assert missing == []


@pytest.mark.parametrize(
    ("where", "before", "said"),
    [
        ("db.gone:claim", "x", "gone: pgqrs has no db.gone"),
        ("clock:gone", "x", "gone: clock must define gone once, not 0 times"),
        ("db/runs/settlement.sql:gone", "x", "gone: db/runs/settlement.sql must define gone once, not 0 times"),
        (
            "db/runs/settlement.sql:hold",
            "gone",
            "gone: db/runs/settlement.sql:hold must contain this once, not 0 times: 'gone'",
        ),
        (
            "db/runs/settlement.sql:hold",
            "given.",
            "gone: db/runs/settlement.sql:hold must contain this once, not 2 times: 'given.'",
        ),
    ],
)
def test_a_mutant_that_no_longer_applies_says_what_is_gone(where, before, said):
    mutant = Mutant("gone", "", (Edit(where, before, ""),), ())

    with pytest.raises(NoLongerApplies) as caught:
        list(found(mutant))

    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("outer", "where", "margin"),
    [
        ("", "x:work", ""),
        ("class Outer:\n", "x:Outer.work", " " * 4),
        ("class Outer:\n    def inner():\n", "x:Outer.inner.work", " " * 8),
    ],
)
def test_a_mutant_applies_however_deeply_its_text_is_indented(outer, where, margin):
    text = outer + indent("def work():\n    if held:\n        write()\n    done()\n", margin)

    without = source.replaced(text, where, "if held:\n    write()\n", "write()\nwrite()\n")

    assert without == outer + indent("def work():\n    write()\n    write()\n    done()\n", margin)


def test_a_mutant_changes_the_named_function_and_none_with_the_same_text():
    text = "def one():\n    write()\n\n\ndef two():\n    write()\n    done()\n"

    assert source.replaced(text, "x:two", "write()\n", "") == text.replace("    write()\n    done", "    done")
