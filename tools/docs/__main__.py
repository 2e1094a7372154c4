"""`python -m tools.docs` writes what is made from the code; `--check` only says what is stale; `--site` builds it."""

from __future__ import annotations

import sys

from tools.docs import site
from tools.docs.made import ROOT, stale, write_all


def main(arguments: list[str]) -> int:
    if "--check" in arguments:
        found = stale()
        for path in found:
            print(f"{path.relative_to(ROOT)} is stale; make it anew with: make docs-pages")
        return 1 if found else 0
    for path in write_all():
        print(f"wrote {path.relative_to(ROOT)}")
    return site.build() if "--site" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
