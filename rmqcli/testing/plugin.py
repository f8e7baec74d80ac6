"""Fixtures of pytest: a RocketMQ cluster in the test's own process.

Installed with rmqcli; a test needs no import:

    def test_my_consumer(rmq_cluster, rmq_topic):
        rmq_cluster.send(rmq_topic, ["a", "b"])
        assert my_consumer(rmq_cluster.namesrv, rmq_topic) == ["a", "b"]

- `rmq_cluster`: an `EmbeddedCluster` of one broker, fresh for each test.
- `rmq_cluster_factory`: a function that starts more, with any of `ClusterOptions`:
  `rmq_cluster_factory(brokers=2, like="4.6.0")`. All are closed after the test.
  With `proxy=True` the cluster also serves gRPC, at `cluster.endpoints`.
  Brokers allow SQL92 filters, which RocketMQ's do only with enablePropertyFilter.
- `rmq_topic`: the name of a new topic of `rmq_cluster`, with four queues.
- `rmq_clock`: a `ManualClock`; after `rmq_cluster_factory(clock=rmq_clock)` hours go by
  with `cluster.advance(ms)`.

Until a test asks for one of them, nothing of rmqcli but this file is loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rmqcli.broker.cluster.embedded import ClusterOptions, EmbeddedCluster
    from rmqcli.testing.clock import ManualClock

#: In which brokers of the fixtures differ from RocketMQ's defaults.
_SETTINGS = {"enable_property_filter": True}


@pytest.fixture
def rmq_clock() -> ManualClock:
    """A clock that stands still until the test, or `cluster.advance`, moves it."""
    from rmqcli.testing.clock import ManualClock

    # A believable date: RocketMQ's ids count from the start of the month.
    return ManualClock(now_ms=1_700_000_000_000)


@pytest.fixture
def rmq_cluster_factory() -> Iterator[Callable[..., EmbeddedCluster]]:
    """A function that starts clusters; takes what `EmbeddedCluster` takes.

    SQL92 filters are allowed unless `settings` says `enable_property_filter`: False.
    """
    from contextlib import ExitStack

    from rmqcli.broker.cluster.embedded import EmbeddedCluster

    with ExitStack() as stack:

        def start(
            *,
            options: ClusterOptions | None = None,
            settings: Mapping[str, object] | None = None,
            **fields: object,
        ) -> EmbeddedCluster:
            given = {} if options is None else options.settings
            cluster = EmbeddedCluster(
                options,
                settings={**_SETTINGS, **given, **(settings or {})},
                **fields,  # type: ignore[arg-type]  # checked there
            )
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
