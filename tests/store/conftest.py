"""A folder, and stores in it that are closed after the test."""

from __future__ import annotations

import pytest

from rmqcli.store.disk_store import DiskStore
from tests.store.folders import TINY
from tests.store.opened import close_all


@pytest.fixture(autouse=True)
def _close_files():
    yield
    close_all()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def open_store(folder):
    opened = []

    def make(settings=TINY):
        opened.append(DiskStore(folder, settings))
        return opened[-1]

    yield make
    for store in opened:
        store.close()
