"""An embedded cluster for Java clients of each version, and one process of clients."""

from __future__ import annotations

import os

import pytest

from tests.broker.java.scenarios import Scenarios
from tests.kit import class_archive
from tests.kit.artefacts import UnavailableError
from tests.kit.embedded import JavaOnEmbedded

#: 5.3.3's client does not differ from 5.5.0's in what is tested here.
CLIENT_VERSIONS = ("4.6.0", "4.9.7", "5.5.0")

#: Delay levels that do not make tests wait; a failed message waits at level 3.
QUICK_LEVELS = "1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s"


def start(version, directory, **options):
    try:
        class_archive.make(version)
        return JavaOnEmbedded(version, directory, **options)
    except UnavailableError as error:
        if os.environ.get("RMQ_REQUIRE_JAVA"):
            pytest.fail(f"Java clients are demanded: {error}")
        pytest.skip(f"no Java clients: {error}")


@pytest.fixture(scope="session")
def embedded(rmq_version, tmp_path_factory):
    """Two brokers that behave as 5.5.0, shared by all tests of one client version."""
    settings = {
        "message_delay_level": QUICK_LEVELS,
        "enable_property_filter": True,
        "transaction_timeout_ms": 1_000,
        "transaction_check_interval_ms": 1_000,
    }
    directory = tmp_path_factory.mktemp(f"embedded-{rmq_version}")
    with start(rmq_version, directory, brokers=2, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def scenarios(embedded):
    """One Java process for all tests that need no process of their own."""
    with Scenarios(embedded) as process:
        yield process
