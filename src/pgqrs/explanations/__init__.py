"""What errors, the causes of `why` and the doctor's checks mean, why they happen, and what to do.

For `pgqrs explain` and docs/reference/errors.md. The code of an error is `errors.code_of` it, that of a cause the
word that `why` gives, that of a check the word that the doctor gives. They stay the same.
"""

from __future__ import annotations

from typing import NamedTuple

from pgqrs.explanations import causes, checks, errors


class Explanation(NamedTuple):
    """A code, and three sentences for people."""

    code: str
    # error, cause, check (of doctor), invariant or rule (of lint)
    kind: str
    means: str
    happens: str
    do: str


def _of(kind: str, texts: dict[str, tuple[str, str, str]]) -> dict[str, Explanation]:
    return {code: Explanation(code, kind, *text) for code, text in texts.items()}


ERRORS = _of("error", errors.ERRORS)
CAUSES = _of("cause", causes.CAUSES)
CHECKS = _of("check", checks.CHECKS)
