"""Signatures of webhooks: who sent it, what was sent, and when."""

import pytest

import pgqrs
from pgqrs.engine.outbox.publishers.signature import sign

SECRET = "a secret of enough bytes"
BODY = b'{"id":"1"}'
HEADER = sign(SECRET.encode(), BODY, timestamp=1_000_000)


def test_a_genuine_signature_is_accepted_within_the_window():
    assert pgqrs.verify_signature(SECRET, HEADER, BODY, now=1_000_000)
    assert pgqrs.verify_signature(SECRET.encode(), HEADER, BODY, now=1_000_300)
    assert pgqrs.verify_signature(SECRET, HEADER, BODY, now=999_700)


def test_a_recorded_request_is_of_no_use_later():
    assert not pgqrs.verify_signature(SECRET, HEADER, BODY, now=1_000_301)
    assert not pgqrs.verify_signature(SECRET, HEADER, BODY, now=999_699)
    assert not pgqrs.verify_signature(SECRET, HEADER.replace("1000000", "1000300"), BODY, now=1_000_300)


def test_another_body_or_secret_is_refused():
    assert not pgqrs.verify_signature(SECRET, HEADER, BODY + b" ", now=1_000_000)
    assert not pgqrs.verify_signature(SECRET + "x", HEADER, BODY, now=1_000_000)


@pytest.mark.parametrize(
    "header",
    [None, "", "t=1", "v1=00", HEADER + ",v1=" + "0" * 64, HEADER.upper(), "t=-1,v1=" + "0" * 64, HEADER[:-1]],
)
def test_a_header_that_is_none_of_ours_is_refused(header):
    assert not pgqrs.verify_signature(SECRET, header, BODY, now=1_000_000)


def test_the_signature_is_hmac_sha256_over_time_and_body():
    import hashlib
    import hmac

    expected = hmac.new(SECRET.encode(), b'1000000.{"id":"1"}', hashlib.sha256).hexdigest()

    assert f"t=1000000,v1={expected}" == HEADER


def test_the_time_is_now_by_default():
    import time

    assert pgqrs.verify_signature(SECRET, sign(SECRET.encode(), BODY, timestamp=int(time.time())), BODY)
