"""Consumers of these tests run with one engine thread or the other.

Users get the leasing one, and so does a test without the marker `engine_threads`. Tests
of order, start, close and members run once with each of the two.
"""

from __future__ import annotations

import pytest

from tests.consumer.collecting import ENGINE_THREAD, ENGINE_THREADS


def pytest_generate_tests(metafunc):
    """One run per engine thread of the marker; with --engine-thread only that one."""
    marker = metafunc.definition.get_closest_marker("engine_threads")
    possible = list(ENGINE_THREADS) if marker is None else list(marker.args)
    wanted = metafunc.config.getoption("--engine-thread")
    if marker is None and wanted is None:
        return
    chosen = [each for each in possible if wanted in (None, each)]
    metafunc.parametrize("engine_thread", chosen, indirect=True)


@pytest.fixture(autouse=True)
def engine_thread(request, monkeypatch):
    """The engine thread of consumers that the test, or a program of it, makes."""
    name = getattr(request, "param", "leasing")
    # In the environment, which programs that a test starts inherit.
    monkeypatch.setenv(ENGINE_THREAD, name)
    return name
