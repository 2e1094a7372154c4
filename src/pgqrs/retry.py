"""How often and after how long to try again: exponential, capped, jittered."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import Any

from pgqrs.errors import ConfigError
from pgqrs.text.durations import LONGEST_SECONDS, shown


@dataclass(frozen=True, slots=True)
class Backoff:
    """`base * 2^(attempt-1)` seconds, at most `cap`, plus up to half of that at random.

    The jitter keeps a thousand things that failed together from coming back together.
    """

    base: float = 1.0
    cap: float = 300.0
    jitter: float = 0.5

    def delay(self, attempt: int, *, chance: float | None = None) -> float:
        """Seconds to wait after the given attempt (the first is 1); `chance` in 0..1 stands for the dice."""
        # 2.0**1024 overflows; long before that the cap has been reached. Below 1, a row was changed by hand.
        raw = min(self.cap, self.base * 2.0 ** min(max(attempt, 1) - 1, 60))
        dice = random.random() if chance is None else chance  # noqa: S311 - spreads load, guards no secret
        return raw * (1 + self.jitter * dice)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Which errors are worth another attempt, how many there are in all, and how long to wait between them.

    Raises ConfigError for numbers that no wait can have, and for what is no class of errors.
    """

    max_attempts: int = 3
    base: float = 1.0
    cap: float = 300.0
    jitter: float = 0.5
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    give_up_on: tuple[type[BaseException], ...] = ()
    # False: a body whose outcome is unknown is not run again. It is unknown when the worker died, or lost its lease,
    # while the body ran, and when the step's timeout was over.
    retry_unknown: bool = True

    def __post_init__(self) -> None:
        if not is_whole(self.max_attempts) or self.max_attempts < 1:
            raise _refused("max_attempts", "a whole number of at least 1", self.max_attempts)
        for name, most in (("base", LONGEST_SECONDS), ("cap", LONGEST_SECONDS), ("jitter", 100.0)):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value <= most:
                span = "from 0 to 100" if name == "jitter" else "of seconds from 0 to 100 years"
                raise _refused(name, f"a number {span}", value)
        for name in ("retry_on", "give_up_on"):
            value = getattr(self, name)
            kinds = value if isinstance(value, tuple) else (value,)
            if not all(isinstance(each, type) and issubclass(each, BaseException) for each in kinds):
                raise _refused(name, "a tuple of exception classes", value)
        if not isinstance(self.retry_unknown, bool):
            raise _refused("retry_unknown", "True or False", self.retry_unknown)

    def with_attempts(self, max_attempts: int) -> RetryPolicy:
        """The same policy with another number of attempts."""
        return replace(self, max_attempts=max_attempts)

    def retries(self, error: BaseException, *, raised_as: tuple[str, str] | None = None) -> bool:
        """`raised_as` is the module and the name of the class that the error stands in for.

        A group is worth it when each of its errors is, or when the policy names its own class.
        """
        return self._names(error, raised_as) and not self._gives_up_on(error, raised_as)

    def _names(self, error: BaseException, raised_as: tuple[str, str] | None) -> bool:
        if _is_one(error, self.retry_on, raised_as):
            return True
        return isinstance(error, BaseExceptionGroup) and all(self._names(each, None) for each in error.exceptions)

    def _gives_up_on(self, error: BaseException, raised_as: tuple[str, str] | None) -> bool:
        if _is_one(error, self.give_up_on, raised_as):
            return True
        return isinstance(error, BaseExceptionGroup) and any(
            self._gives_up_on(each, None) for each in error.exceptions
        )

    def delay(self, attempt: int) -> float:
        return Backoff(self.base, self.cap, self.jitter).delay(attempt)


def _is_one(error: BaseException, kinds: Any, raised_as: tuple[str, str] | None) -> bool:
    if isinstance(error, kinds):
        return True
    given = kinds if isinstance(kinds, tuple) else (kinds,)
    return raised_as is not None and raised_as in {(kind.__module__, kind.__qualname__) for kind in given}


def checked_policy(where: str, value: RetryPolicy | None) -> RetryPolicy | None:
    """Return the policy that was given as `retry=`; raise ConfigError for anything else, such as a number."""
    if value is None or isinstance(value, RetryPolicy):
        return value
    raise ConfigError(
        f"{where}(retry=) must be a pgqrs.RetryPolicy, got {shown(value)}", hint=f"write {policy_for(value)}"
    )


def policy_for(attempts: object) -> str:
    """Return the argument that says how many attempts there are; without a number, the policy of the defaults."""
    given = f"max_attempts={attempts}" if isinstance(attempts, int) and is_whole(attempts) and attempts > 0 else ""
    return f"retry=pgqrs.RetryPolicy({given})"


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return is_whole(value) or (isinstance(value, float) and math.isfinite(value))


def _refused(field: str, wanted: str, value: Any) -> ConfigError:
    return ConfigError(f"RetryPolicy({field}=) must be {wanted}, got {shown(value)}")
