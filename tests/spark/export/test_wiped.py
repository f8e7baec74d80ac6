"""An export does not go on with a topic that is no longer the one that it has read.

A cluster that was wiped and started again at the same addresses has the same brokers,
topics and queues; only the messages are others.
"""

from __future__ import annotations

import json

import pytest

from rmqcli import Admin
from rmqcli.config import ClientConfig
from rmqcli.errors import BrokerError, PartialError, RefusedError
from rmqcli.position import AtOffset, Earliest, Latest
from rmqcli.spark.export.cluster import BrokerCluster
from rmqcli.testing import faults
from rmqcli.wire.codes import RequestCode
from tests.kit.wiped import wiped
from tests.spark.export.inline import InlineRunner, export_of, offsets_in


def reached(cluster, notes=None, *, start=None, end=None):
    return BrokerCluster(
        config=ClientConfig(namesrv=(cluster.namesrv,)),
        start=start or Earliest(),
        end=end or Latest(),
        note=(notes if notes is not None else []).append,
    )


def as_before(path):
    """Make the manifest one of an earlier version, which noted no messages."""
    for name in [path / "_rmq" / "manifest.json", *path.glob("_rmq/manifest/*")]:
        document = json.loads(name.read_text())
        for run in document.get("runs", [document]):
            for queue in run["queues"]:
                del queue["last"]
        name.write_text(json.dumps(document))


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


def test_a_topic_that_is_made_anew_during_a_run_is_refused(start, tmp_path):
    """Its second part was of the new topic, and the run counted as complete."""
    cluster = start(10)

    class MakesAnew(InlineRunner):
        def write(self, parts, context, /, *, watch):
            first = super().write(parts[:1], context, watch=watch)
            with Admin(namesrv=cluster.namesrv) as admin:
                admin.delete_topic("orders")
            cluster.create_topic("orders", queues=2)
            cluster.send("orders", ["new"] * 20)
            return [*first, *super().write(parts[1:], context, watch=watch)]

    error = "broker-a:0 has another message at offset 4 than run .* has noted"
    with pytest.raises(RefusedError, match=error):
        export_of(tmp_path, reached(cluster), runner=MakesAnew()).run()
    with pytest.raises(RefusedError, match=error):
        export_of(tmp_path, reached(cluster), resume=True).run()


def test_since_last_goes_on_with_the_same_topic(start, tmp_path):
    cluster = start(10)
    notes: list[str] = []
    export_of(tmp_path, reached(cluster)).run()
    cluster.send("orders", [b"more"] * 4)
    export_of(tmp_path, reached(cluster, notes), since_last=True).run()
    assert len(offsets_in(tmp_path)) == 14
    assert notes == []


def test_a_wiped_topic_without_messages_is_not_the_same(start, tmp_path):
    old = start(10)
    export_of(tmp_path, reached(old)).run()
    new = start(0, old)
    with pytest.raises(RefusedError, match="broker-a:0 ends at 0, but the export has"):
        export_of(tmp_path, reached(new), since_last=True).run()


def test_another_range_of_a_wiped_topic_is_not_added(start, tmp_path):
    old = start(10)
    first = reached(old, end=AtOffset(3))
    export_of(tmp_path, first, request={"to_position": "3"}).run()
    new = start(14, old)
    rest = reached(new, start=AtOffset(3))
    with pytest.raises(RefusedError, match="has another message at offset 2"):
        export_of(tmp_path, rest, request={"from_position": "3"}).run()


@pytest.mark.parametrize("count", [8, 10, 14])
def test_the_last_row_shows_it_to_a_manifest_of_an_earlier_version(
    start, tmp_path, count
):
    old = start(10)
    export_of(tmp_path, reached(old)).run()
    as_before(tmp_path)
    new = start(count, old)
    with pytest.raises(RefusedError, match="deleted and created again"):
        export_of(tmp_path, reached(new), since_last=True).run()


def test_a_manifest_of_an_earlier_version_is_followed(start, tmp_path):
    cluster = start(10)
    notes: list[str] = []
    export_of(tmp_path, reached(cluster)).run()
    as_before(tmp_path)
    cluster.send("orders", [b"more"] * 4)
    for total in (14, 16):
        export_of(tmp_path, reached(cluster, notes), since_last=True).run()
        assert len(offsets_in(tmp_path)) == total
        cluster.send("orders", [b"more"] * 2)
    assert notes == []


def test_an_export_without_rows_by_which_queues_could_be_recognized_says_so(
    start, tmp_path
):
    """Nothing proves a wipe, and nothing excludes one."""
    cluster = start(10)
    notes: list[str] = []
    export_of(tmp_path, reached(cluster), request={"tag": "none"}).run()
    as_before(tmp_path)
    export_of(tmp_path, reached(cluster, notes), since_last=True).run()
    (note,) = notes
    assert note == (
        "nothing shows that these queues are still the same, because no message of an"
        " earlier run is known and still stored: orders@broker-a:0, orders@broker-a:1"
    )


def test_queues_that_were_empty_are_followed(start, tmp_path):
    """There was nothing that could be taken for exported."""
    cluster = start(0)
    notes: list[str] = []
    export_of(tmp_path, reached(cluster)).run()
    cluster = start(0, cluster)
    cluster.send("orders", [b"first"] * 3, queue_id=1)
    export_of(tmp_path, reached(cluster, notes), since_last=True).run()
    cluster.send("orders", [b"second"] * 3, queue_id=0)
    export_of(tmp_path, reached(cluster, notes), since_last=True).run()
    assert offsets_in(tmp_path) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert notes == []


@pytest.mark.parametrize(("trimmed", "noted"), [(2, 0), (4, 0), (5, 1)])
def test_retention_is_not_a_wipe(start, tmp_path, trimmed, noted):
    """When all that was exported has expired, nothing is left to compare."""
    cluster = start(10)
    notes: list[str] = []
    export_of(tmp_path, reached(cluster)).run()
    cluster.send("orders", [b"more"] * 4)
    cluster.broker().trim("orders", trimmed)
    export_of(tmp_path, reached(cluster, notes), since_last=True).run()
    assert len(offsets_in(tmp_path)) == 14
    assert len(notes) == noted


def test_messages_that_expired_before_they_were_exported_are_lost_as_ever(
    start, tmp_path
):
    cluster = start(10)
    export_of(tmp_path, reached(cluster)).run()
    cluster.send("orders", [b"more"] * 4)
    cluster.broker().trim("orders", 6)
    with pytest.raises(PartialError, match="queue 0 has lost offsets 5 to 5 since"):
        export_of(tmp_path, reached(cluster), since_last=True).run()


def test_a_broker_that_does_not_let_it_compare_ends_the_export(start, tmp_path):
    cluster = start(10)
    export_of(tmp_path, reached(cluster)).run()
    cluster.send("orders", [b"more"] * 4)
    cluster.faults.add(faults.answer(1, "no disk"), code=RequestCode.PULL_MESSAGE)
    with pytest.raises(BrokerError, match="no disk"):
        export_of(tmp_path, reached(cluster), since_last=True).run()
    assert len(offsets_in(tmp_path)) == 10


def test_queues_that_are_not_exported_are_not_compared(rmq_cluster_factory, tmp_path):
    """Their broker may be down."""
    cluster = rmq_cluster_factory(brokers=2)
    cluster.create_topic("orders", queues=1)
    cluster.send("orders", [b"first"] * 4)
    export_of(tmp_path, reached(cluster)).run()
    cluster.send("orders", [b"more"] * 4)
    cluster.broker("broker-b").kill()
    request = {"queues": ("broker-a:0",)}
    export = export_of(
        tmp_path,
        reached(cluster),
        since_last=True,
        given=frozenset({"queues"}),
        request=request,
    )
    export.run()
    assert len(offsets_in(tmp_path)) == 6
