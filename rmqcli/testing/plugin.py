"""Pytest fixtures: a RocketMQ cluster in the test's own process.

The plugin is installed with rmqcli; a test needs no import:

    def test_my_consumer(rmq_cluster, rmq_topic):
        rmq_cluster.send(rmq_topic, ["a", "b"])
        assert my_consumer(rmq_cluster.namesrv, rmq_topic) == ["a", "b"]

- `rmq_cluster`: an `EmbeddedCluster` of one broker, fresh for each test.
- `rmq_cluster_factory`: a function that starts more clusters, with any of
  `ClusterOptions`: `rmq_cluster_factory(brokers=2, like="4.6.0")`. All of them are
  closed after the test. With `proxy=True` a cluster also serves gRPC, at
  `cluster.endpoints`. The brokers allow SQL92 filters, which RocketMQ's brokers do only
  with enablePropertyFilter.
- `rmq_topic`: the name of a new topic of `rmq_cluster`, with four queues.
- `rmq_clock`: a `ManualClock`. After `rmq_cluster_factory(clock=rmq_clock)`,
  `cluster.advance(ms)` lets hours pass at once.

Until a test requests one of them, only the package rmqcli.testing is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Unpack

    from rmqcli.broker.cluster.embedded import (
        ClusterArguments,
        ClusterOptions,
        EmbeddedCluster,
    )
    from rmqcli.testing.clock import ManualClock

#: The settings in which brokers of the fixtures differ from RocketMQ's defaults.
_SETTINGS = {"enable_property_filter": True}


@pytest.fixture
def rmq_clock() -> ManualClock:
    """A clock that stands still until the test, or `cluster.advance`, moves it."""
    from rmqcli.testing.clock import ManualClock

    # A plausible date: RocketMQ's ids count from the start of the month.
    return ManualClock(now_ms=1_700_000_000_000)


@pytest.fixture
def rmq_cluster_factory() -> Iterator[Callable[..., EmbeddedCluster]]:
    """A function that starts clusters, with the arguments of `EmbeddedCluster`.

    SQL92 filters are allowed unless `settings` says `enable_property_filter`: False.
    """
    from contextlib import ExitStack

    from rmqcli.broker.cluster.embedded import EmbeddedCluster

    with ExitStack() as stack:

        def start(
            *,
            options: ClusterOptions | None = None,
            **fields: Unpack[ClusterArguments],
        ) -> EmbeddedCluster:
            given = {} if options is None else options.settings
            fields["settings"] = {**_SETTINGS, **given, **fields.get("settings", {})}
            cluster = EmbeddedCluster(options, **fields)
            return stack.enter_context(cluster)

        yield start


@pytest.fixture
def rmq_cluster(
    rmq_cluster_factory: Callable[..., EmbeddedCluster],
) -> EmbeddedCluster:
    """A cluster of one broker, in memory, behaving like 5.5.0."""
    return rmq_cluster_factory()


@pytest.fixture
def rmq_topic(rmq_cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    """A new topic of four queues, named after the test."""
    kept = (c if c.isascii() and c.isalnum() else "_" for c in request.node.name)
    return rmq_cluster.create_topic("".join(kept)[:100])
