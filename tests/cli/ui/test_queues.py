"""What is said about many queues is short, and true of each."""

from __future__ import annotations

from rmqcli.cli.ui.queues import lines_about
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
