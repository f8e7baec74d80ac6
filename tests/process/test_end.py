"""What happens to clients that are still open when their process ends."""

from __future__ import annotations

from tests.kit.program import Program


def test_at_the_end_a_consumer_closes_before_the_producer_that_its_listener_uses(
    rmq_cluster, tmp_path
):
    rmq_cluster.create_topic("orders", queues=1)
    rmq_cluster.create_topic("copies", queues=1)
    rmq_cluster.send("orders", ["one"])
    source = """
import sys, threading, time
from rmqcli import Consumer, ConsumeFromWhere, ConsumerConfig
from rmqcli import Producer, ProducerMessage, RmqError

began = threading.Event()
producer = Producer(namesrv=sys.argv[1])
producer.start()

def handle(message):
    began.set()
    while threading.main_thread().is_alive():
        time.sleep(0.001)
    try:
        for number in range(300):
            producer.send(ProducerMessage("copies", b"%d" % number))
    except RmqError as error:
        print(error.message)
    else:
        print("sent")

first = ConsumerConfig(consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
consumer = Consumer("g", "orders", handle, namesrv=sys.argv[1], config=first)
consumer.start()
began.wait()
"""
    with Program(source, tmp_path, rmq_cluster.namesrv) as running:
        assert running.rest() == ["sent"]
        assert running.exit_code() == 0
