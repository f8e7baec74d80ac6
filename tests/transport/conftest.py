"""A client for each test, and a check that it leaves nothing behind."""

from __future__ import annotations

import threading

import pytest

from rmqcli.transport.remoting import RemotingClient


@pytest.fixture
def client():
    with RemotingClient() as made:
        yield made


@pytest.fixture(autouse=True)
def _no_thread_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before
