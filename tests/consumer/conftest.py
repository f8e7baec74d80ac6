"""Choose the kind of engine thread that the consumers of these tests use.

Users get the leasing engine thread, and so does a test without the marker
`engine_threads`. Tests of order, start, close and members run once with each kind.
"""

from __future__ import annotations

import pytest

from tests.consumer.collecting import ENGINE_THREAD, ENGINE_THREADS


def pytest_generate_tests(metafunc):
    """Run a test with each engine thread of its marker, or only --engine-thread's."""
    marker = metafunc.definition.get_closest_marker("engine_threads")
    possible = list(ENGINE_THREADS) if marker is None else list(marker.args)
    wanted = metafunc.config.getoption("--engine-thread")
    if marker is None and wanted is None:
        return
    chosen = [each for each in possible if wanted in (None, each)]
    metafunc.parametrize("engine_thread", chosen, indirect=True)


@pytest.fixture(autouse=True)
def engine_thread(request, monkeypatch):
    """The kind of engine thread for consumers that the test or its programs create."""
    name = getattr(request, "param", "leasing")
    # Programs that a test starts inherit the environment.
    monkeypatch.setenv(ENGINE_THREAD, name)
    return name
