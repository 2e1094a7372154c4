"""Power and system calls, a small part of proof/power; and whether its disk is a harsh one."""

import os
import random

import pytest

from proof.power import calls, cuts, recording, tracing
from proof.power.calls import Case
from proof.power.disk import Disk
from proof.power.recording import Event


@pytest.fixture(scope="module")
def _tracer():
    try:
        tracing.check()
    except tracing.NoTracer as error:
        # As a missing backend: on a developer's machine the rest can still be tested, CI must not be green without.
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def recorded(_tracer, tmp_path_factory):
    return cuts.record(tmp_path_factory.mktemp("power") / "full")


@pytest.mark.row("B5.1", "B5.2")
def test_every_kind_of_failing_call_is_survived(recorded, tmp_path):
    every = calls.cases(recording.points(recorded))
    # The first was seen to go wrong: told that nothing was written, and found it there.
    chosen = [Case("work", "fdatasync", "EIO", 5), *calls.sample(every, 11, random.Random(7))]
    results = list(calls.survive(list(dict.fromkeys(chosen)), tmp_path))

    assert {result.case.fault for result in results} == set(calls.FAULTS)
    assert [result for result in results if result.wrong] == []
    assert sum(result.reached for result in results) >= 10


@pytest.mark.row("B5.3")
def test_nothing_acknowledged_is_lost_when_the_power_is_cut(recorded, tmp_path):
    wrong, count = examined(recorded, tmp_path, cuts_made=40)

    assert wrong == []
    assert count.opened > 100
    assert count.finished > 0


@pytest.mark.row("B5.3")
@pytest.mark.usefixtures("_tracer")
def test_a_driver_that_syncs_less_is_seen_to_lose(tmp_path):
    events = cuts.record(tmp_path / "normal", "normal")
    _, count = examined(events, tmp_path, cuts_made=10)

    assert count.lost > 0


def examined(events, folder, *, cuts_made):
    count = cuts.Count()
    different = cuts.states(events, cuts.sample(events, cuts_made, 7), 7, count)
    return [wrong for _, wrong in cuts.examine(different, events, folder, count)], count


# -- the disk --------------------------------------------------------------------------------------------


def contents(*events):
    """What `f` may hold after the last of them, over many choices; None when it is not there."""
    numbered = [Event(1, call, name, number, *rest) for number, (call, name, *rest) in enumerate(events)]
    states = (state for seed in range(50) for state in Disk(seed, subsets=3).after(numbered, {len(events)}))
    return {state.files.get("f") for state in states}


CREATED = (("create", "f"), ("fsync", ""))


def test_a_file_is_certain_to_be_there_once_its_folder_was_synced():
    assert contents(("create", "f")) == {None, b""}
    assert contents(*CREATED) == {b""}


def test_a_write_is_certain_once_its_file_was_synced():
    write = ("pwrite64", "f", 0, b"ab")

    assert contents(*CREATED, write) == {b"", b"ab"}
    assert contents(*CREATED, write, ("fdatasync", "f")) == {b"ab"}


def test_of_unsynced_writes_the_later_may_be_there_without_the_earlier():
    seen = contents(*CREATED, ("pwrite64", "f", 0, b"a"), ("pwrite64", "f", 1, b"b"))

    assert seen == {b"", b"a", b"ab", b"\0b"}


def test_a_write_is_torn_at_sectors():
    seen = contents(*CREATED, ("pwrite64", "f", 256, b"x" * 512), ("say", "+ nothing"))

    assert {len(content) for content in seen} == {0, 512, 768}


def test_a_length_is_certain_once_its_file_was_synced():
    cut = ("ftruncate", "f", 1)
    written = (*CREATED, ("pwrite64", "f", 0, b"abc"), ("fsync", "f"))

    assert contents(*written, cut) == {b"abc", b"a"}
    assert contents(*written, cut, ("fsync", "f")) == {b"a"}


def test_a_removed_file_may_come_back():
    written = (*CREATED, ("pwrite64", "f", 0, b"abc"), ("fsync", "f"), ("unlink", "f"))

    assert contents(*written) == {b"abc", None}
    assert contents(*written, ("fsync", "")) == {None}


def test_a_sync_does_not_cover_what_another_thread_wrote_meanwhile():
    events = [
        Event(1, "create", "f", 0),
        Event(1, "fsync", "", 1),
        Event(1, "pwrite64", "f", 2, 0, b"a"),
        # Called before the write had returned.
        Event(2, "fdatasync", "f", 2),
    ]
    states = list(Disk(7, subsets=1).after(events, {4}))

    assert b"" in {state.files["f"] for state in states}


# -- the trace -------------------------------------------------------------------------------------------


def hexed(text):
    return "".join(f"\\x{byte:02x}" for byte in text.encode())


def test_calls_that_another_thread_interrupted_are_put_together(tmp_path):
    trace = tmp_path / "trace"
    file, said = hexed(f"{tmp_path}/app.db-wal"), hexed(f"{tmp_path}/said")
    trace.write_text(
        f'7     pwrite64(5<{file}>, "{hexed("ab")}", 2, 32 <unfinished ...>\n'
        f'12345 write(3<{said}>, "{hexed("+ run a")}", 7) = 7\n'
        "7     <... pwrite64 resumed>)              = 2\n"
        f"7     fdatasync(5<{file}>) = -1 EIO (Input/output error) (INJECTED)\n"
        "7     +++ killed by SIGKILL +++\n"
    )

    assert recording.read(trace, tmp_path) == [
        Event(12345, "say", "+ run a", 0),
        Event(7, "pwrite64", "app.db-wal", 0, 32, b"ab"),
    ]
    assert tracing.refused(trace) == 2
