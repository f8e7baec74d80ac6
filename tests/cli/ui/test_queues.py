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
