"""The command `pgqrs`: start the command line, or say why this environment has none.

Outside of the package: where another project's package of the same name stands in for ours, nothing in it is ours.
"""

from __future__ import annotations

import sys
from typing import NoReturn

_REPLACED = """\
pgqrs: the package 'pgqrs' here ({where}) is not, or not only, that of pgqrs-durable: {error}
  another project on the package index is called 'pgqrs' and brings a package of the same name
  try: pip uninstall --yes pgqrs pgqrs-durable; then install pgqrs-durable again"""


def main() -> NoReturn:
    """Run the command line of the package."""
    try:
        from pgqrs.cli import main as run  # noqa: PLC0415 - may fail, and is what this module is for
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "pgqrs":
            raise
        where = getattr(sys.modules.get("pgqrs"), "__file__", None) or "without __init__.py"
        sys.exit(_REPLACED.format(where=where, error=error))
    run()
