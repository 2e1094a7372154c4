"""Fail unless every symbol that a user can reach has a declared type: Pyright's --verifytypes, at 100%.

`python -m tools.verify_types`. One attribute without an annotation makes every signature that mentions its class
ambiguous, hundreds of lines in Pyright's own report. This names the attribute.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent.parent / "src" / "pgqrs"


def main() -> int:
    report = _report()
    found = Path(report["packageRootDirectory"] or "")
    if found.resolve() != PACKAGE.resolve():
        print(f"Pyright found {str(found)!r} instead of {str(PACKAGE)!r}; install this checkout with `make setup`")
        return 1
    symbols = report["symbols"]
    unclear = [each for each in symbols if not each["isTypeKnown"] or each["isTypeAmbiguous"]]
    for line in _causes(unclear):
        print(line)
    print(f"{len(symbols):,} public symbols, {len(unclear):,} of them without a certain type")
    return 1 if unclear or not symbols else 0


def _report() -> dict[str, Any]:
    """Pyright's report on the package as the environment of this interpreter has it, editable or not."""
    binaries = Path(sys.executable).parent
    # With --verifytypes, Pyright ignores --pythonpath and asks the first Python of the PATH where packages are.
    environment = {**os.environ, "PATH": os.pathsep.join([str(binaries), os.environ.get("PATH", "")])}
    command = [str(binaries / "basedpyright"), "--verifytypes", "pgqrs", "--ignoreexternal", "--outputjson"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(done.stdout)["typeCompleteness"]
    except (ValueError, KeyError):
        raise SystemExit(f"Pyright gave no report: {done.stdout}{done.stderr}") from None
    return report


def _causes(unclear: list[dict[str, Any]]) -> list[str]:
    """Where an annotation is missing; without the symbols that are unclear because they mention such a one."""
    told = [
        (symbol["name"], each)
        for symbol in unclear
        for each in symbol["diagnostics"]
        if each.get("severity") == "error"
    ]
    causes = [(name, each) for name, each in told if "partially unknown" not in each["message"]]
    return list(dict.fromkeys(_line(name, each) for name, each in causes or told))


def _line(name: str, diagnostic: dict[str, Any]) -> str:
    where = f"{diagnostic.get('file', '')}:{diagnostic.get('range', {}).get('start', {}).get('line', -1) + 1}"
    return f"{where}: {name}: " + "; ".join(line.strip() for line in diagnostic["message"].splitlines())


if __name__ == "__main__":
    sys.exit(main())
