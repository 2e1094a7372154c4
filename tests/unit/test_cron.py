"""Cadences: right in every zone at every daylight-saving change, against an oracle that walks through UTC minute by minute."""

import os
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgqrs.engine.schedules.cadence import Cadence
from pgqrs.errors import ConfigError

SOAK = bool(os.environ.get("PGQRS_SOAK"))
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
AROUND = 14 * HOUR

# Half hours, two hours, midnights, Ramadan, negative winter time, a zone that gave it up.
ODD_ZONES = [
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "America/Havana",
    "Africa/Casablanca",
    "Europe/Dublin",
    "Pacific/Chatham",
    "America/St_Johns",
    "Asia/Beirut",
    "Atlantic/Azores",
    "America/Nuuk",
    "Africa/Cairo",
    "Europe/Berlin",
    "America/New_York",
    "America/Asuncion",
    "Asia/Gaza",
    "Antarctica/Vostok",
    "Asia/Kolkata",
    "UTC",
]


def changes(zone, first_year, last_year):
    """Every instant at which the zone's offset changes, to the minute."""
    at, end = datetime(first_year, 1, 1, tzinfo=UTC), datetime(last_year + 1, 1, 1, tzinfo=UTC)
    while at < end:
        if at.astimezone(zone).utcoffset() != (at + DAY).astimezone(zone).utcoffset():
            low, high = at, at + DAY
            while high - low > MINUTE:
                middle = low + (high - low) // MINUTE // 2 * MINUTE
                is_before = middle.astimezone(zone).utcoffset() == low.astimezone(zone).utcoffset()
                low, high = (middle, high) if is_before else (low, middle)
            yield high
        at += DAY


def walls(zone, begin, end):
    """What the clocks of the zone show, minute by minute of real time."""
    minutes = int((end - begin) / MINUTE)
    instants = [begin + n * MINUTE for n in range(minutes + 1)]
    return [(instant, instant.astimezone(zone).replace(tzinfo=None)) for instant in instants]


def at_fixed_times(shown, times):
    """The oracle for fixed times: each wall time happens when clocks first show it, or a later one."""
    found = set()
    dates = {wall.date() for _, wall in shown}
    for wanted in (datetime.combine(date, datetime.min.time()) + time for date in dates for time in times):
        first = next((i for i, (_, wall) in enumerate(shown) if wall >= wanted), None)
        if first:
            found.add(shown[first][0])
    return sorted(found)


def running(shown, minutes, hours=range(24)):
    """The oracle for running ones: whenever the wall time matches."""
    return [instant for instant, wall in shown[1:] if wall.minute in minutes and wall.hour in hours]


def check_change(name, change):
    zone = ZoneInfo(name)
    begin, end = change - AROUND, change + AROUND
    shown = walls(zone, begin, end)
    before = (change - MINUTE).astimezone(zone).replace(tzinfo=None) + MINUTE
    after = change.astimezone(zone).replace(tzinfo=None)
    low, high = sorted((before, after))
    inside = low + (high - low) // MINUTE // 2 * MINUTE
    expected = {
        "* * * * *": running(shown, range(60)),
        f"{inside.minute} * * * *": running(shown, {inside.minute}),
        f"{inside.minute} 0-23 * * *": running(shown, {inside.minute}),
        f"*/10 {inside.hour} * * *": running(shown, range(0, 60, 10), {inside.hour}),
    }
    for wall in (low, inside, high - MINUTE, high):
        time = timedelta(hours=wall.hour, minutes=wall.minute)
        fixed = at_fixed_times(shown, [time])
        expected[f"{wall.minute} {wall.hour} * * *"] = expected[f"0 {wall.minute} {wall.hour} * * *"] = fixed
    times = [timedelta(hours=h, minutes=m) for h in {inside.hour, high.hour} for m in (0, 20, 40)]
    hours = ",".join(str(h) for h in {inside.hour, high.hour})
    expected[f"0,20,40 {hours} * * *"] = at_fixed_times(shown, times)

    for cron, slots in expected.items():
        cadence = Cadence.of(cron=cron, timezone=name)
        assert list(cadence.slots_between(begin, end)) == slots, (name, change, cron)
        if len(slots) < 100:
            # Asked again at each slot, it gives the one that follows.
            following = [cadence.next_after(slot) for slot in slots[:-1]]
            assert following == slots[1:], (name, change, cron)


@pytest.mark.row("B6.5")
@pytest.mark.timeout(3000)
def test_every_daylight_saving_change_is_as_the_oracle_says():
    zones = sorted(available_timezones()) if SOAK else ODD_ZONES
    first, last = (2020, 2035) if SOAK else (2024, 2025)
    checked = 0
    for name in zones:
        for change in changes(ZoneInfo(name), first, last):
            check_change(name, change)
            checked += 1

    print(f"{len(zones)} zones, {checked} changes from {first} to {last}")
    assert checked > (6_000 if SOAK else 40)


def slots(cron, zone, begin, count):
    cadence = Cadence.of(cron=cron, timezone=zone)
    return [f"{slot.astimezone(ZoneInfo(zone)):%d %H:%M %Z}" for slot in islice(cadence.slots_after(begin), count)]


SPRING = datetime(2025, 3, 29, 12, tzinfo=UTC)
AUTUMN = datetime(2025, 10, 25, 12, tzinfo=UTC)


@pytest.mark.row("B6.5")
def test_in_a_gap_a_slot_happens_once_at_the_next_valid_instant():
    assert slots("30 2 * * *", "Europe/Berlin", SPRING, 2) == ["30 03:00 CEST", "31 02:30 CEST"]
    assert slots("0,30 2,3 * * *", "Europe/Berlin", SPRING, 2) == ["30 03:00 CEST", "30 03:30 CEST"]


@pytest.mark.row("B6.5")
def test_in_an_overlap_a_slot_happens_the_first_time_only():
    assert slots("30 2 * * *", "Europe/Berlin", AUTUMN, 2) == ["26 02:30 CEST", "27 02:30 CET"]


def test_a_running_cron_runs_through_both():
    assert slots("30 * * * *", "Europe/Berlin", SPRING + 12 * HOUR, 3) == [
        "30 01:30 CET",
        "30 03:30 CEST",
        "30 04:30 CEST",
    ]
    assert slots("30 * * * *", "Europe/Berlin", AUTUMN + 12 * HOUR, 3) == [
        "26 02:30 CEST",
        "26 02:30 CET",
        "26 03:30 CET",
    ]


def test_a_day_that_a_zone_skipped_counts_as_a_gap():
    """Samoa went to bed on 29 December 2011 and rose on the 31st."""
    begin = datetime(2011, 12, 29, 12, tzinfo=UTC)

    assert slots("0 9 * * *", "Pacific/Apia", begin, 3) == ["29 09:00 -10", "31 00:00 +14", "31 09:00 +14"]


def test_seconds_may_come_first():
    begin = datetime(2030, 1, 1, tzinfo=UTC)
    every_second = list(Cadence.of(cron="* * * * * *").slots_between(begin, begin + MINUTE))
    some = list(Cadence.of(cron="5,50 * * * * *").slots_between(begin, begin + MINUTE))

    assert every_second == [begin + timedelta(seconds=n) for n in range(1, 61)]
    assert some == [begin + timedelta(seconds=5), begin + timedelta(seconds=50)]


def test_what_cronsim_alone_gets_wrong_is_right():
    """Found by comparison (cronsim 2.8): one never returns, one loses a slot."""
    begin = datetime(2024, 4, 6, 13, 14, tzinfo=UTC)

    # 03:00 to 03:40, then at 03:45 the clock goes back to 02:45, then 03:00 to 03:50.
    chatham = Cadence.of(cron="*/10 3 * * *", timezone="NZ-CHAT")
    assert len(list(chatham.slots_between(begin, begin + 2 * HOUR))) == 5 + 6
    lord_howe = Cadence.of(cron="44 * * * *", timezone="Australia/Lord_Howe")
    assert [f"{slot:%H:%M}" for slot in lord_howe.slots_between(begin, begin + 3 * HOUR)] == [
        "13:44",
        "14:44",
        "15:14",
        "16:14",
    ]


@pytest.mark.row("B6.8")
def test_a_leap_day_comes_when_it_comes():
    leap = Cadence.of(cron="0 0 29 2 *")

    assert leap.next_after(datetime(2096, 3, 1, tzinfo=UTC)) == datetime(2104, 2, 29, tzinfo=UTC)


def test_intervals_are_counted_from_their_anchor():
    anchor = datetime(2030, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    cadence = Cadence.of(every=timedelta(seconds=90)).anchored(anchor)

    assert cadence.next_after(anchor - DAY) == anchor + timedelta(seconds=90)
    assert cadence.next_after(anchor + timedelta(seconds=90)) == anchor + timedelta(seconds=180)
    assert cadence.next_after(anchor + timedelta(days=10_000)) == anchor + timedelta(days=10_000, seconds=90)


def test_a_point_in_time_comes_once():
    at = datetime(2030, 1, 1, 12, tzinfo=ZoneInfo("Asia/Tokyo"))
    cadence = Cadence.of(at=at)

    assert cadence.next_after(at - HOUR) == at
    assert cadence.next_after(at) is None


def test_shorthands_are_known():
    assert Cadence.of(cron="@daily") == Cadence.of(cron="0 0 * * *")


@pytest.mark.parametrize(
    "cron", ["", "* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "a * * * *", "*/0 * * * *",
             "5-1 * * * *", "* * * 13 *", "* * * * 8", "0 0 * * MON#6", "9" * 300, "@reboot", 5, None.__class__],
)  # fmt: skip
def test_a_cron_that_cannot_be_read_is_refused(cron):
    with pytest.raises(ConfigError, match="cron"):
        Cadence.of(cron=cron)


@pytest.mark.row("B6.8")
@pytest.mark.parametrize("cron", ["0 0 30 2 *", "0 0 31 2,4,6 *", "0 0 0 31 9 *"])
def test_a_cron_that_never_matches_is_refused(cron):
    with pytest.raises(ConfigError, match="never matches"):
        Cadence.of(cron=cron)


@pytest.mark.parametrize(
    "zone", ["", "America", "Mars/Olympus", "../etc/passwd", "/etc/passwd", "a\0b", "x" * 300, 7]
)
def test_an_unknown_zone_is_refused(zone):
    with pytest.raises(ConfigError, match="time zone"):
        Cadence.of(cron="* * * * *", timezone=zone)


FIELDS = st.one_of(
    st.just("*"),
    st.integers(1, 9).map(lambda n: f"*/{n}"),
    st.integers(1, 6).map(str),
    st.sampled_from(["1-3", "2,5"]),
)


@given(
    fields=st.lists(FIELDS, min_size=5, max_size=6),
    zone=st.sampled_from(ODD_ZONES),
    begin=st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
@settings(max_examples=2000 if SOAK else 100, deadline=None)
def test_slots_rise_and_do_not_depend_on_where_one_begins_to_ask(fields, zone, begin):
    cadence = Cadence.of(cron=" ".join(fields), timezone=zone)
    found = list(islice(cadence.slots_after(begin), 20))

    assert all(earlier < later for earlier, later in zip([begin, *found], found, strict=False))
    assert [cadence.next_after(slot) for slot in found[:-1]] == found[1:]
    assert cadence.newest(begin, found[-1], most=5) == found[-5:]
