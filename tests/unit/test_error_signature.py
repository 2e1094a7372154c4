"""Error signatures: what varies from failure to failure does not tell them apart, what differs in kind does."""

import re

import pytest

from pgqrs.text import error_signature as signatures
from pgqrs.text.error_signature import error_signature, stable_part

SAME = {
    "numbers": ("retry 3 of 10 failed after 1.5 s", "retry 12 of 10 failed after 0.25 s"),
    "signs": ("balance is -5", "balance is 17"),
    "thousands": ("read 1,234,567 bytes", "read 12 bytes"),
    "numbers in words": ("no shard run42 in pool7", "no shard run9 in pool12"),
    "ids": (
        "order 3f2504e0-4f89-11d3-9a0c-0305e82c3301 is locked",
        "order 9C858901-8A57-4791-81FE-4C455B099BC9 is locked",
    ),
    "hexadecimal": ("<Lock object at 0x7f3a9c0d> is held", "<Lock object at 0x55AA> is held"),
    "hashes": ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit 0a1b2c3"),
    "quoted": ("no such column: 'user_name'", "no such column: 'e mail'"),
    "double quotes": ('key "a" is missing', 'key "b-7" is missing'),
    "backticks": ("unknown table `a`", "unknown table `b`"),
    "apostrophes": ("can't open 'a.txt'", "can't open 'other thing'"),
    "times": ("expired at 2024-05-01T12:00:00Z", "expired at 2031-11-30 08:15:59.123456+02:00"),
    "dates": ("nothing for 2024-05-01", "nothing for 2025-06-02"),
    "clock": ("started 12:30:01", "started 7:05"),
    "network addresses": ("cannot reach 10.0.0.7:5432", "cannot reach 192.168.1.250:80"),
    "IPv6": ("cannot reach ::1", "cannot reach fe80::a00:27ff:fe4e:66a1"),
    "mail addresses": ("no mailbox ann@example.org", "no mailbox bob.c+x@mail.example.net"),
    "ends of paths": ("cannot read /var/data/report-a.csv", "cannot read /var/data/summary.txt"),
    "numbered folders": ("cannot read /tmp/tmpx8f2/a.txt", "cannot read /tmp/tmpq77z/b.txt"),
    "Windows paths": (r"cannot read C:\data\a.txt", r"cannot read C:\data\b.txt"),
    "queries": ("GET https://a.example.org/find?name=ann", "GET https://a.example.org/find?name=bob&x=1"),
    "URLs": ("GET https://api.example.org/users/42 gave 500", "GET https://api.example.org/users/ann gave 503"),
    "blanks": ("line one\n  line two", "line one line two"),
}

DIFFERENT = {
    "words": ("connection refused", "connection reset"),
    "hosts": ("GET https://a.example.org/x", "GET https://b.example.org/x"),
    "folders": ("cannot read /var/data/a", "cannot read /etc/data/a"),
    "letters are no hash": ("defaced cabbage", "defaced facade"),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_what_varies_does_not_count(one, other):
    assert stable_part(one) == stable_part(other)
    assert error_signature("E", one, "s") == error_signature("E", other, "s")


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_says_something_else_counts(one, other):
    assert error_signature("E", one, "s") != error_signature("E", other, "s")


def test_a_signature_is_the_class_and_eight_hexadecimal_digits():
    assert re.fullmatch(r"TimeoutError-[0-9a-f]{8}", error_signature("TimeoutError", "no answer", None))
    assert re.fullmatch(r"odd_name_-[0-9a-f]{8}", error_signature("odd name, ", "", None))
    assert re.fullmatch(r"Error-[0-9a-f]{8}", error_signature("", "", None))


def test_class_and_step_tell_failures_apart():
    signatures = {error_signature(kind, "x", step) for kind in ("A", "B") for step in (None, "fetch", "store")}

    assert len(signatures) == 6


def test_the_place_of_a_repeated_step_does_not_count():
    assert len({error_signature("E", "x", step) for step in ("fetch", "fetch#2", "fetch@1", "fetch@1.2#3")}) == 1


def test_signatures_do_not_change_from_release_to_release():
    assert error_signature("TimeoutError", "no answer from 10.0.0.7 after 3 s", "fetch") == "TimeoutError-d9d68efe"


@pytest.mark.parametrize("message", ["\ud800 lone", "\0", "", "'" * 9, "é" * 50], ids=repr)
def test_any_message_has_a_signature(message):
    assert error_signature("E", message, "s").startswith("E-")


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "piece", [*"a1'\"`/\\:-. ", "a'", " '", "\n'", "0x", "a@", "fffffff-", "1-", "1:", "a.", "0:", "2024-"]
)
def test_no_message_takes_more_than_linear_time(piece, monkeypatch):
    """Two hundred thousand characters take part of a second; with a square in it they would take many minutes."""
    monkeypatch.setattr(signatures, "_MOST_MESSAGE", 10**9)

    stable_part(piece * (200_000 // len(piece)) + "!")


def test_a_failed_child_of_any_number_has_one_signature():
    """The finding: each run that failed because of a child was a group of its own."""
    one, other = (error_signature("ExecutionFailed", f"run {n} failed", f"result:{n}@1") for n in (7, 12))

    assert one == other
    assert one != error_signature("ExecutionFailed", "run 7 failed", "result")
