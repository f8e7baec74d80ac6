"""An export does not go on with a topic that is no longer the one that it has read.

A cluster that was wiped and started again at the same addresses has the same brokers,
topics and queues; only the messages are others.
"""

from __future__ import annotations

import pytest

from rmqcli.config import ClientConfig
from rmqcli.errors import RefusedError
from rmqcli.position import Earliest, Latest
from rmqcli.spark.export.cluster import BrokerCluster
from tests.kit.wiped import wiped
from tests.spark.export.inline import InlineRunner, export_of, offsets_in


def reached(cluster, notes=None):
    return BrokerCluster(
        config=ClientConfig(namesrv=(cluster.namesrv,)),
        start=Earliest(),
        end=Latest(),
        note=(notes if notes is not None else []).append,
    )


@pytest.fixture
def start(rmq_cluster_factory):
    """`start(count)` starts a cluster; `start(count, old)` in the place of another."""

    def call(count, old=None):
        cluster = (
            rmq_cluster_factory() if old is None else wiped(old, rmq_cluster_factory)
        )
        cluster.create_topic("orders", queues=2)
        cluster.send("orders", [b"%02d" % number for number in range(count)])
        return cluster

    return call


@pytest.mark.parametrize(
    ("count", "error"),
    [
        (8, r"broker-a:0 ends at 4, but the export has read up to 5: the topic was"),
        (10, r"broker-a:0 has another message at offset 4 than the export has read"),
        (14, r"broker-a:0 has another message at offset 4 than the export has read"),
    ],
)
def test_since_last_does_not_go_on_with_a_wiped_topic(start, tmp_path, count, error):
    """The first ten messages of the new one counted as exported: they were lost."""
    old = start(10)
    export_of(tmp_path, reached(old)).run()
    new = start(count, old)
    with pytest.raises(RefusedError, match=error) as raised:
        export_of(tmp_path, reached(new), since_last=True).run()
    assert raised.value.hint == "export the new topic into an empty folder"
    assert len(offsets_in(tmp_path)) == 10


def test_a_run_that_was_cut_is_not_resumed_with_a_wiped_topic(start, tmp_path):
    old = start(10)
    runner = InlineRunner(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        export_of(tmp_path, reached(old), runner=runner).run()
    new = start(14, old)
    with pytest.raises(RefusedError, match="has another message at offset 4 than run"):
        export_of(tmp_path, reached(new), resume=True).run()


def test_since_last_goes_on_with_the_same_topic(start, tmp_path):
    cluster, notes = start(10), []
    export_of(tmp_path, reached(cluster)).run()
    cluster.send("orders", [b"more"] * 4)
    export_of(tmp_path, reached(cluster, notes), since_last=True).run()
    assert len(offsets_in(tmp_path)) == 14
    assert notes == []
