"""A process is known to have ended only when it certainly has."""

import os
import subprocess
import sys

import pytest

from pgqrs.engine.runs import process_identity

pytestmark = pytest.mark.skipif(process_identity._machine() is None, reason="only Linux tells enough about a process")


def test_this_process_has_not_ended():
    assert not process_identity.has_ended(process_identity.identity())


def test_a_process_that_was_waited_for_has_ended():
    code = "from pgqrs.engine.runs import process_identity; print(process_identity.identity()['process'])"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        said = {"pid": other.pid, "process": other.stdout.read().strip()}

    assert process_identity.has_ended(said)


def test_a_zombie_has_ended():
    pid = os.fork()
    if not pid:
        os._exit(0)
    said = {"pid": pid, "process": f"{process_identity._machine()}/0"}
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    assert process_identity._started(pid) is None
    assert process_identity.has_ended(said)
    os.waitpid(pid, 0)


def test_a_process_whose_number_another_one_has_now_has_ended():
    machine, _, started = process_identity.identity()["process"].rpartition("/")

    assert process_identity.has_ended({"pid": os.getpid(), "process": f"{machine}/{int(started) - 1}"})


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"pid": 2**22 + 7},
        {"pid": 2**22 + 7, "process": "another-boot/pid:[1]/12345"},
        {"pid": "x", "process": 7},
        {"process": "a/b/c"},
    ],
    ids=["nothing", "only-its-number", "another-machine", "nonsense", "no-number"],
)
def test_what_cannot_be_known_has_not_ended(said):
    assert not process_identity.has_ended(said)


def test_a_process_that_proc_hides_has_not_ended(monkeypatch, tmp_path):
    said = process_identity.identity()
    process_identity._machine()
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)

    assert not process_identity.has_ended(said)


def test_where_nothing_is_known_of_processes_only_the_number_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    process_identity._machine.cache_clear()
    try:
        assert process_identity.identity() == {"pid": os.getpid()}
        assert not process_identity.has_ended({"pid": 2**22 + 7, "process": "a/b/1"})
    finally:
        process_identity._machine.cache_clear()
