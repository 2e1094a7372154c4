"""The filter grammar: what it reads, what it refuses and how it says so."""

from datetime import UTC, datetime, timedelta

import pytest

from pgqrs import ConfigError, RunFilter, RunStatus


def test_every_key_is_read():
    text = (
        "status:error,Paused workflow:billing.* since:1h before:2030-01-31 completed_since:15m "
        "completed_before:2030-01-31T12:00+02:00 attr:customer=c42 attr:n=5 error:TimeoutError-3f9a1c02 "
        'text:"connection reset" parent:12 key:abc worker:3 waiting:approval deleted:any'
    )

    assert RunFilter.parse(text) == RunFilter(
        status=["PAUSED", RunStatus.ERROR],
        workflow="billing.*",
        created_after=timedelta(hours=1),
        created_before=datetime(2030, 1, 31, tzinfo=UTC),
        completed_after=timedelta(minutes=15),
        completed_before=datetime(2030, 1, 31, 10, tzinfo=UTC),
        attributes={"customer": "c42", "n": 5},
        error_signature="TimeoutError-3f9a1c02",
        last_error_contains="connection reset",
        parent_run_id=12,
        idempotency_key="abc",
        worker_id=3,
        waiting_for="approval",
        deleted=None,
    )


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_nothing_is_the_empty_filter(text):
    assert RunFilter.parse(text) == RunFilter()
    assert RunFilter.parse(text).is_empty


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stats:error", "'stats:error'; did you mean status:?"),
        ("foo", "'foo'; known are status: workflow: since:"),
        ("status:lost", "no status 'lost'; use PENDING"),
        ("status:", "'status:'; it has no value"),
        ('text:""', "it has no value"),
        ("since:soon", "'since:soon'; use 90s, 15m, 1h"),
        ("since:1y", "use 90s"),
        ("since:999999999999w", "100 years"),
        ('text:"open', "quotation mark"),
        ("attr:customer", "write it as attr:name=value"),
        ("attr:=x", "write it as attr:name=value"),
        ("attr:a=" + "x" * 201, "at most 200 characters"),
        ("parent:one", "must be a number"),
        ("worker:-1", "must be a number"),
        ("text:a text:b", "text: twice"),
        ("status:error status:paused", "status:error,paused"),
        ("deleted:maybe", "use no, yes, any"),
        ("workflow:a;b", "no name or pattern"),
        ("parent:99999999999999999999", "must be an id"),
        ("key:a\0b", "no database stores"),
    ],
)
def test_what_cannot_be_read_is_named(text, said):
    with pytest.raises(ConfigError) as error:
        RunFilter.parse(text)

    assert said in str(error.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"status": 5},
        {"status": [None]},
        {"workflow": ""},
        {"workflow": 7},
        {"created_after": "1h"},
        {"created_after": datetime(2030, 1, 1)},  # noqa: DTZ001 - without a zone on purpose
        {"created_after": timedelta(seconds=-1)},
        {"attributes": {"a": [1]}},
        {"attributes": {"a": float("nan")}},
        {"attributes": {5: "a"}},
        {"attributes": "a=b"},
        {"parent_run_id": True},
        {"parent_run_id": "12"},
        {"last_error_contains": ""},
        {"idempotency_key": "\ud800"},
        {"deleted": "yes"},
    ],
)
def test_fields_that_cannot_be_right_are_refused(fields):
    with pytest.raises(ConfigError):
        RunFilter(**fields)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(weeks=2), "2w"),
        (timedelta(days=1), "1d"),
        (timedelta(minutes=90), "90m"),
        (timedelta(seconds=1.5), "1500ms"),
        (timedelta(0), "0s"),
    ],
)
def test_spans_are_written_in_their_largest_whole_unit(span, text):
    assert str(RunFilter(created_after=span)) == f"since:{text}"


def test_values_with_blanks_quotes_and_signs_come_back():
    wanted = RunFilter(
        attributes={'a "b"': "x = y", "c": "\\", "empty": "", "n": 1e16, "t": True, "none": None},
        last_error_contains=' "quoted" \\ %_\n',
        waiting_for="signal a",
    )

    assert RunFilter.parse(str(wanted)) == wanted


def test_only_what_narrows_the_search_makes_a_filter_more_than_empty():
    assert RunFilter(deleted=None).is_empty
    assert not RunFilter(deleted=True).is_empty
    assert not RunFilter(status="error").is_empty
    assert not RunFilter(parent_run_id=0).is_empty
