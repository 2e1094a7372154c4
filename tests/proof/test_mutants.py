"""Every mutant still applies to the source as it is; `make proof LAYERS=mutants` tells who notices it."""

from collections import Counter
from pathlib import Path

from proof.mutants import MUTANTS
from proof.mutants.mutant import NoLongerApplies, found

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
