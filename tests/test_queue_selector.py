"""`--queue [BROKER:]ID`."""

from __future__ import annotations

import pytest

from rmqcli.errors import TextError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.queue_selector import QueueSelector, parse_queue_selector, select_queues

QUEUES = [MessageQueue("t", broker, i) for broker in ("a", "b:c") for i in range(2)]


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("0", QueueSelector(None, 0)),
        ("broker-a:3", QueueSelector("broker-a", 3)),
        ("b:c:1", QueueSelector("b:c", 1)),
        ("65535", QueueSelector(None, 65535)),
    ],
)
def test_selectors(text, selector):
    assert parse_queue_selector(text) == selector
    assert str(selector) == text


@pytest.mark.parametrize(
    "text", ["", ":", ":1", "a:", "a:x", "-1", "65536", "9" * 30, "1 ", "\u0661"]
)
def test_bad_selectors(text):
    with pytest.raises(TextError):
        parse_queue_selector(text)


def test_selection_keeps_the_queues_order():
    selectors = [QueueSelector("b:c", 1), QueueSelector(None, 0)]
    assert select_queues(QUEUES, selectors) == [QUEUES[0], QUEUES[2], QUEUES[3]]
    assert select_queues(QUEUES, []) == QUEUES


def test_a_selector_that_means_nothing_is_an_error():
    with pytest.raises(UsageError, match="no such queue: a:7") as caught:
        select_queues(QUEUES, [QueueSelector("a", 7)])
    assert caught.value.hint == "queues 0 to 1 exist on a, b:c"
    with pytest.raises(UsageError):
        select_queues([], [QueueSelector(None, 0)])
