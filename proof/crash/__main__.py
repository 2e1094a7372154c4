"""`python -m proof.crash CASE ...`: these cases, in a process that has nothing else to do. PostgreSQL's DSN comes
from PGQRS_TEST_POSTGRES_DSN. Says what went wrong, or what was not reached; nothing when all is well."""

import os
import sys
import tempfile
from pathlib import Path

from proof.crash.case import Bench, Case, Result

with tempfile.TemporaryDirectory(prefix="pgqrs-crash-") as folder:
    bench = Bench(Path(folder), os.environ.get("PGQRS_TEST_POSTGRES_DSN", ""))
    expected: dict[str, Result] = {}
    bad = 0
    for text in sys.argv[1:]:
        case = Case.of(text)
        if case.scenario not in expected:
            expected[case.scenario] = bench.run(Case(case.backend, case.scenario))
        result = bench.run(case, expected[case.scenario])
        wrong = result.wrong or (["not reached"] if result.struck < len(case.faults) else [])
        bad += bool(wrong)
        for each in wrong:
            print(f"{text}: {each}")
    sys.exit(1 if bad else 0)
