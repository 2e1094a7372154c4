"""docs/reference/mutants.md: every mutant, and who noticed."""

from collections.abc import Iterable

from proof import ROOT
from proof.mutants.runner import Verdict

PAGE = ROOT / "docs" / "reference" / "mutants.md"

_HEAD = """\
# Mutants

A test that cannot fail proves nothing. So the library is broken on purpose, in one place at a time: a fence left
out, a lease that does not count, two things that commit apart. Each broken copy is given to the tests, and one of
them must fail, on what it promises and not because the copy does not run. Made by

```console
$ make proof LAYERS=mutants FULL=1
```

which also says when a mutant survives, when it no longer applies to the present source, and when a test that should
kill it fails without it. `CASE=name make proof LAYERS=mutants` repeats one; with `KILLERS="tests/behaviour"` it is
given to other tests than its own. The texts that are changed are in `proof/mutants/`.

"""


def write(verdicts: Iterable[Verdict]) -> None:
    verdicts = list(verdicts)
    killed = sum(verdict.killed for verdict in verdicts)
    lines = [f"{killed} of {len(verdicts)} were killed.", "", "| mutant | what is no longer so | on | noticed by |"]
    lines.append("|---|---|---|---|")
    lines += [
        f"| `{verdict.mutant.name}` | {verdict.mutant.breaks} | {verdict.mutant.on} | {_noticed(verdict)} |"
        for verdict in verdicts
    ]
    PAGE.write_text(_HEAD + "\n".join(lines) + "\n", encoding="utf-8")


def _noticed(verdict: Verdict) -> str:
    if not verdict.killed:
        return f"**nobody: {verdict.by}**"
    # As every page names a test, so that `make docs-pages` can follow it to another file.
    return f"`{verdict.by.removeprefix('tests/').partition('[')[0]}`"
