"""Topics of batches in the embedded broker: restarts, POP, and messages that fail."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from rmqcli import ConsumeConcurrentlyStatus
from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.cli.main import run
from rmqcli.store.disk_store import DiskStore
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.message.batch import BatchItem, encode_batch
from tests.broker.behaviour.batches import Batches
from tests.broker.driving import Driver
from tests.broker.popping import ack, handles, messages, pop
from tests.broker.sending import UNIQ_KEY, send, send_header
from tests.broker.wire_client import WireClient
from tests.consumer.collecting import Seen, committed, consumer
from tests.kit.waiting import wait_until

BATCH_TOPIC = TopicConfig(topic_name="T", attributes={"queue.type": "BatchCQ"})


@pytest.mark.parametrize("first", ["single", "batch"])
@pytest.mark.parametrize("end", ["kill", "restart"])
def test_a_restart_keeps_batches_whole_and_their_offsets(tmp_path, first, end):
    with EmbeddedCluster(store=tmp_path) as cluster:
        broker = cluster.broker()
        with closing(Batches(broker.address)) as scene:
            if first == "single":
                scene.send("s")
            scene.send_batch("ab")
            scene.send("t")
            before = scene.pull(0)
        if end == "kill":
            broker.kill()
        broker.restart()
        scene.client = WireClient(broker.address)
        with closing(scene):
            assert scene.pull(0) == before
            scene.send_batch("cd")
            text, end_offset = before
            assert scene.pull(0) == (f"{text}[cd]", end_offset + 2)
    assert [each.name for each in tmp_path.glob("batchconsumequeue/*")] == [scene.topic]
    assert not (tmp_path / "consumequeue" / scene.topic).exists()


def test_a_queue_whose_files_were_lost_is_made_again_as_one_of_batches(tmp_path):
    """Its first record is a single message, which does not show the kind of queue."""
    with (
        EmbeddedCluster(store=tmp_path) as cluster,
        closing(Batches(cluster.broker().address)) as scene,
    ):
        scene.send("s")
        scene.send_batch("ab")
    for path in tmp_path.glob("batchconsumequeue/*/0/*"):
        path.unlink()

    store = DiskStore(tmp_path)

    assert store.queue_bounds(scene.topic, 0) == (0, 3)
    store.close()
    assert len(list(tmp_path.glob(f"batchconsumequeue/{scene.topic}/0/*"))) == 1
    assert not (tmp_path / "consumequeue" / scene.topic).exists()


def test_a_topic_that_is_made_again_as_an_ordinary_one_has_no_batches(tmp_path):
    with (
        EmbeddedCluster(store=tmp_path) as cluster,
        closing(Batches(cluster.broker().address)) as scene,
    ):
        scene.send_batch("ab")
        assert scene.client.ask(215, topic=scene.topic).code == 0
        assert scene.make_topic(scene.topic, "").code == 0
        scene.send_batch("cd")
        assert scene.pull(1) == ("d", 2)
    assert not (tmp_path / "batchconsumequeue" / scene.topic).exists()


def test_a_batch_that_pop_gave_out_comes_back_message_by_message():
    """A real broker never gives it out again."""
    driver = Driver()
    driver.broker.topics.put(BATCH_TOPIC)
    send(driver, properties={"TAGS": "A"})
    header = send_header(properties={"UNIQ_KEY": UNIQ_KEY}, batch=True)
    items = [BatchItem(each, {"TAGS": each.decode()}) for each in (b"B", b"C", b"D")]
    driver.ask(RequestCode.SEND_BATCH_MESSAGE, header, body=encode_batch(items))
    given = pop(driver)
    single, batch = handles(given)[0], handles(given)[1]
    assert (single.offset, batch.offset) == (0, 1)
    assert ack(driver, single) == 0
    driver.wait(60_000)

    again = pop(driver)

    found = messages(again)
    assert [each.properties["TAGS"] for each in found] == ["B", "C", "D"]
    assert [each.body for each in found] == [b"B", b"C", b"D"]
    assert {(each.sys_flag, each.reconsume_times) for each in found} == {(0, 1)}
    assert [ack(driver, each) for each in handles(again)] == [0, 0, 0]
    driver.wait(60_000)
    assert messages(pop(driver)) == []


def test_an_acknowledged_batch_does_not_come_back():
    driver = Driver()
    driver.broker.topics.put(BATCH_TOPIC)
    header = send_header(properties={"UNIQ_KEY": UNIQ_KEY}, batch=True)
    items = [BatchItem(b"a"), BatchItem(b"b")]
    driver.ask(RequestCode.SEND_BATCH_MESSAGE, header, body=encode_batch(items))
    assert ack(driver, handles(pop(driver))[0]) == 0
    driver.wait(60_000)

    assert messages(pop(driver)) == []
    assert len(driver.broker.check_points) == 0


def test_a_message_of_a_batch_that_fails_comes_back_alone():
    def act(message, _index):
        if message.body == b"b" and not message.reconsume_times:
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        return None

    settings = {"message_delay_level": "1s 1s 1s 1s"}
    with (
        EmbeddedCluster(settings=settings) as cluster,
        closing(Batches(cluster.broker().address)) as scene,
    ):
        scene.send_batch("abc")
        seen = Seen(act)
        with consumer(cluster, "g", [scene.topic], seen):
            wait_until(lambda: len(seen.messages) == 4)
    found = sorted((m.body, m.reconsume_times, m.topic) for m in seen.messages)
    assert found == [
        (b"a", 0, scene.topic),
        (b"b", 0, scene.topic),
        (b"b", 1, scene.topic),
        (b"c", 0, scene.topic),
    ]


def test_a_slave_has_the_same_batches():
    with EmbeddedCluster() as cluster:
        with closing(Batches(cluster.broker().address)) as scene:
            scene.send_batch("ab")
            slave = cluster.add_slave()
            scene.send("s")
            scene.send_batch("cd")
            end = cluster.call(cluster.broker().store.log_bounds)
            wait_until(lambda: cluster.call(slave.store.log_bounds) == end)
        scene.client = WireClient(slave.address)
        with closing(scene):
            assert scene.pull(0) == ("[ab]s[cd]", 5)


def test_an_empty_queue_of_batches_has_no_messages_for_anyone(capfd):
    """Its lower end is -1, which once stopped a consumer and counted as a message."""
    with (
        EmbeddedCluster() as cluster,
        closing(Batches(cluster.broker().address)) as scene,
    ):
        config = {"groupName": scene.group}
        assert scene.client.ask(200, body=json.dumps(config).encode()).code == 0
        for queue_id in range(4):
            commit = {
                "consumerGroup": scene.group,
                "topic": scene.topic,
                "commitOffset": 5,
            }
            assert scene.client.ask(15, queueId=queue_id, **commit).code == 0
        seen = Seen()
        with consumer(cluster, scene.group, [scene.topic], seen):
            wait_until(
                lambda: (
                    committed(cluster, scene.group, scene.topic)
                    == dict.fromkeys(range(4), 0)
                )
            )
            for queue_id in range(4):
                scene.send_batch("ab", queue_id=queue_id)
            wait_until(lambda: len(seen.messages) == 8)
        scene.make_topic("empty", "+queue.type=BatchCQ")
        arguments = ["tail", "empty", "--from", "earliest", "--to", "latest"]
        code = run([*arguments, "-n", cluster.namesrv, "-o", "jsonl"])
    out, err = capfd.readouterr()
    assert (code, out) == (0, ""), err
