"""The layers of the proof silence the log, in processes of their own. Here they share one with other tests."""

import logging

import pytest


@pytest.fixture(autouse=True)
def _log_levels():
    loggers = [logging.getLogger(name) for name in ("pgqrs", "asyncio")]
    levels = [each.level for each in loggers]
    yield
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)
