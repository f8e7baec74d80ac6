"""A topic of a real broker that was deleted and made anew is not taken for the old one.

Its ids, store times and offsets are those of brokers of each version.
"""

from __future__ import annotations

import json

import pytest

from rmqcli import connect
from rmqcli.errors import ConfigError, RefusedError
from tests.acceptance.command import rmq
from tests.kit.waiting import wait_until
from tests.spark.imports.exported import export
from tests.spark.source.reading import rows_of, stream_reader

pytestmark = pytest.mark.java

COUNT = 400


def messages_in(cluster, topic):
    done = rmq("topic", "show", topic, "-o", "json", namesrv=cluster.namesrv)
    (queue,) = json.loads(done.stdout)["queues"]
    return queue["max_offset"]


def fill(cluster, topic, word, *, total):
    """Send COUNT messages, and wait until the topic has `total`."""
    lines = b"".join(
        json.dumps({"body": f"{word} {n}"}).encode() + b"\n" for n in range(COUNT)
    )
    rmq("send", topic, "--jsonl", "-", "-q", namesrv=cluster.namesrv, stdin=lines)
    wait_until(lambda: messages_in(cluster, topic) == total)


def made_anew(cluster, topic):
    with connect(cluster.namesrv) as clients, clients.admin() as admin:
        admin.delete_topic(topic)
    cluster.create_topic(topic, queues=1)


def test_export_import_and_stream_notice_it(real_cluster, new_topic, tmp_path):
    cluster = real_cluster
    topic, copy = new_topic(queues=1), new_topic(queues=1)
    fill(cluster, topic, "old", total=COUNT)
    path = export(cluster.namesrv, topic, tmp_path / "out")
    arguments = ("import", copy, "--from-parquet", str(path), "-o", "json")
    assert json.loads(rmq(*arguments, namesrv=cluster.namesrv).stdout)["sent"] == COUNT
    # 4.6.0 does not count them all yet.
    assert json.loads(rmq(*arguments, namesrv=cluster.namesrv).stdout)["sent"] == 0
    reader = stream_reader(cluster, topic, startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset())

    # Nothing is wrong with topics that have more messages now.
    for name in (topic, copy):
        fill(cluster, name, "more", total=2 * COUNT)
    follow = {"since_last": True, "from_position": "since-last"}
    export(cluster.namesrv, topic, path, **follow)
    summary = json.loads(rmq(*arguments, namesrv=cluster.namesrv).stdout)
    assert (summary["before"], summary["sent"]) == (COUNT, COUNT)
    end = reader.latestOffset(start)
    assert len(rows_of(reader, start, end)) == COUNT
    reader.stop()

    for name in (topic, copy):
        made_anew(cluster, name)
        for times in (1, 2, 3):
            fill(cluster, name, "new", total=times * COUNT)
    with pytest.raises(RefusedError, match="has another message at offset 799 than"):
        export(cluster.namesrv, topic, path, **follow)
    done = rmq(*arguments, namesrv=cluster.namesrv, expect=[7])
    assert "has another message at offset" in done.stderr.decode()
    later = stream_reader(cluster, topic)
    with pytest.raises(ConfigError, match="another message is at offset 799"):
        later.partitions(end, later.latestOffset(end))
    later.stop()
    lossy = stream_reader(cluster, topic, failOnDataLoss="false")
    rows = rows_of(lossy, end, lossy.latestOffset(end))
    lossy.stop()
    assert rows == [(0, offset) for offset in range(3 * COUNT)]

    made_anew(cluster, topic)
    fill(cluster, topic, "newer", total=COUNT)
    lossy = stream_reader(cluster, topic, failOnDataLoss="false")
    rows = rows_of(lossy, end, lossy.latestOffset(end))
    lossy.stop()
    assert rows == [(0, offset) for offset in range(COUNT)]
