"""`python -m benchmarks [NAME]`."""

import asyncio
import importlib
import sys

ALL = ("archiving", "leases", "wakeups", "queues", "audit", "retention")


def main() -> None:
    chosen = sys.argv[1:] or ALL
    for name in chosen:
        if name not in ALL:
            sys.exit(f"no benchmark named {name!r}; there are: {', '.join(ALL)}")
    for name in chosen:
        print(f"\n== {name}", flush=True)
        asyncio.run(importlib.import_module(f"benchmarks.{name}").main())


main()
