"""The watcher of other processes' commits: rests when nobody waits, and ends when it is told to."""

import threading

from pgqrs.db.drivers.sqlite import commit_watch
from pgqrs.db.drivers.sqlite.commit_watch import DataVersionWatcher
from pgqrs.db.hints import Hints


class Connection:
    """Says the same version for ever."""

    def execute(self, _sql):
        return self

    def fetchone(self):
        return (1,)

    def close(self):
        pass


class ClosedWhileGoingToRest(threading.Event):
    """The store is closed just when the watcher has found that nobody waits."""

    def __init__(self, watcher):
        super().__init__()
        self._watcher = watcher
        self.cleared = threading.Event()

    def clear(self):
        self._watcher._stop.set()
        self.set()
        super().clear()
        self.cleared.set()


def test_a_watcher_that_is_closed_while_it_goes_to_rest_ends():
    watcher = DataVersionWatcher(Connection, Hints())
    watcher._wanted = ClosedWhileGoingToRest(watcher)

    watcher.look()
    assert watcher._wanted.cleared.wait(10)
    watcher._thread.join(10)

    assert not watcher._thread.is_alive()


def test_a_resting_watcher_can_be_closed():
    watcher = DataVersionWatcher(Connection, Hints())
    watcher.look()
    watcher.close()

    assert not watcher._thread.is_alive()


def test_a_watcher_that_never_looked_can_be_closed():
    DataVersionWatcher(Connection, Hints()).close()


class Failing(Connection):
    """Fails twice, as a disk may, and then says another version each time."""

    failures = 2
    version = 0

    def fetchone(self):
        if Failing.failures:
            Failing.failures -= 1
            raise OSError("disk I/O error")
        Failing.version += 1
        return (Failing.version,)


async def test_an_error_does_not_end_the_watcher(monkeypatch):
    monkeypatch.setattr(commit_watch, "RESUME_SECONDS", 0.01)
    hints = Hints()
    watcher = DataVersionWatcher(Failing, hints)
    hints.listeners.append(watcher.look)

    with hints.subscribed([7]) as bell:
        assert await bell.wait(10)
        bell.clear()
        assert await bell.wait(10)
    watcher.close()

    assert not Failing.failures
    assert not watcher._thread.is_alive()


async def test_a_file_that_cannot_be_opened_for_a_while_is_watched_later(monkeypatch):
    monkeypatch.setattr(commit_watch, "RESUME_SECONDS", 0.01)
    refusals = [OSError("too many open files"), OSError("too many open files")]

    def connect():
        if refusals:
            raise refusals.pop()
        return Connection()

    hints = Hints()
    watcher = DataVersionWatcher(connect, hints)
    hints.listeners.append(watcher.look)

    with hints.subscribed([7]) as bell:
        # What was written while nothing was watched is found by looking once.
        assert await bell.wait(10)
    watcher.close()
