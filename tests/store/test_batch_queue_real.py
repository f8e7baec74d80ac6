"""Topics of batches (queue.type=BatchCQ) of a real broker: its answers, its files."""

from __future__ import annotations

import json

import pytest

from rmqcli import ConsumeFromWhere, ConsumerConfig
from rmqcli.cli.main import run
from tests.consumer.collecting import ConsumerUnderTest, Seen
from tests.kit.raw import Link
from tests.kit.waiting import wait_until
from tests.store.folders import state_of

pytestmark = [pytest.mark.java, pytest.mark.rmq_versions("5.5.0")]


def lines_of(capfd, *arguments):
    code = run([*map(str, arguments), "-o", "jsonl"])
    out, err = capfd.readouterr()
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def item(body):
    """A message of a batch, as Java's producers write it."""
    rest = len(body).to_bytes(4, "big") + body + b"\0\0"
    return (16 + len(rest)).to_bytes(4, "big") + bytes(12) + rest


def send_batch(cluster, topic, bodies):
    """Send a batch with an id of its own, which such a topic stores as one record."""
    fields = {
        "a": "senders",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1767322800000",
        "h": "0",
        "i": f"UNIQ_KEY\x01{bodies[0].hex():0<32.32}\x02",
        "j": "0",
        "k": "false",
        "m": "true",
    }
    with Link(cluster.broker_address()) as link:
        answer = link.ask(320, fields, body=b"".join(map(item, bodies)))
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields["queueOffset"])


def test_each_message_of_each_batch_is_read_from_the_broker_and_from_its_folder(
    fresh_cluster, capfd
):
    """From the folder only the first message was shown, and nothing called missing."""
    cluster = fresh_cluster()
    cluster.create_topic("batches", queues=1, attributes="+queue.type=BatchCQ")
    bodies = [b"%d" % number for number in range(21)]
    for start in (0, 5, 10, 15):
        assert send_batch(cluster, "batches", bodies[start : start + 5]) == start
    assert send_batch(cluster, "batches", bodies[20:]) == 20
    folder = cluster.store_directory()
    seen = Seen()
    first = ConsumerConfig(
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    with ConsumerUnderTest(
        "g", ["batches"], seen, namesrv=cluster.namesrv, config=first
    ):
        wait_until(lambda: len(seen.messages) >= 21)
    consumed = sorted((m.queue_offset, m.body) for m in seen.messages)
    assert consumed == list(enumerate(bodies))
    (lag,) = lines_of(capfd, "lag", "g", "-n", cluster.namesrv)
    assert (lag["total_lag"], lag["queues"][0]["max_offset"]) == (0, 21)
    for position, expected in [("earliest", bodies), ("7", bodies[7:])]:
        part = ["--from", position, "--to", "latest"]
        served = lines_of(capfd, "tail", "batches", "-n", cluster.namesrv, *part)
        found = lines_of(capfd, "tail", "batches", "--store", folder, *part)
        assert [row["body"].encode() for row in served] == expected
        assert found == served
    cluster.stop_broker()
    before = state_of(folder)
    found = lines_of(
        capfd, "tail", "batches", "--store", folder, "--from", "3", "--to", "18"
    )
    assert [row["body"].encode() for row in found] == bodies[3:18]
    assert state_of(folder) == before
