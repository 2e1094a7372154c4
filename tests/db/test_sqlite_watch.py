"""The watcher of other processes' commits: rests when nobody waits, and ends when it is told to."""

import threading

from pgqrs.db.drivers.sqlite_watch import DataVersionWatcher
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
