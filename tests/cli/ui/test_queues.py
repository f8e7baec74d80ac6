"""What is said about many queues is short, and true of each."""

from __future__ import annotations

from rmqcli.cli.ui.queues import lines_about, queue_ranges
from rmqcli.model import MessageQueue


def test_queues_that_are_alike_share_a_line():
    texts = {MessageQueue("T", "a", number): "empty" for number in range(1024)}
    texts[MessageQueue("T", "a", 7)] = "offsets 0-3"
    texts[MessageQueue("T", "b", 0)] = "empty"
    texts[MessageQueue("U", "a", 0)] = "empty"
    assert lines_about(texts) == [
        "T@a:0-6,8-1023: each empty",
        "T@a:7: offsets 0-3",
        "T@b:0: empty",
        "U@a:0: empty",
    ]


def test_queues_of_a_broker_that_does_not_answer_are_one_line():
    texts = {
        MessageQueue("T", "broker-a", 0): "abandoned: no answer from a:1 in 5000 ms",
        MessageQueue("T", "broker-a", 1): "abandoned: no answer from a:1 in 4999 ms",
        MessageQueue("T", "broker-a", 2): "abandoned at offset 7: no answer in 5000 ms",
    }
    assert lines_about(texts) == [
        "T@broker-a:0-1: each abandoned: no answer from a:1 in 5000 ms",
        "T@broker-a:2: abandoned at offset 7: no answer in 5000 ms",
    ]


def test_queues_are_ranges_of_their_ids_by_broker():
    ids = [("a", 0), ("a", 1), ("a", 2), ("a", 4), ("a", 6), ("a", 7), ("b", 3)]
    queues = [MessageQueue("T", broker, queue_id) for broker, queue_id in ids]
    assert queue_ranges(queues) == "T@a:0-2,4,6-7; T@b:3"
    every = MessageQueue("T", "a", -1)
    assert queue_ranges([every, queues[-1]]) == "T@a; T@b:3"
    assert queue_ranges([]) == ""
