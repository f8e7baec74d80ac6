"""`--queue [BROKER:]ID`."""

from __future__ import annotations

import pytest

from rmqcli.errors import NotFoundError, TextError
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


@pytest.mark.parametrize(
    ("selector", "message", "hint"),
    [
        (
            QueueSelector("a", 7),
            "queue a:7 does not exist",
            "topic t has queues 0 to 1 on a, b:c",
        ),
        (
            QueueSelector(None, 7),
            "queue 7 does not exist",
            "topic t has queues 0 to 1 on a, b:c",
        ),
        (
            QueueSelector("nothing", 1),
            "queue nothing:1 does not exist",
            "topic t has queues 0 to 1 on a, b:c",
        ),
        (QueueSelector("bc", 1), "queue bc:1 does not exist; did you mean b:c:1?", ""),
    ],
    ids=str,
)
def test_a_queue_that_does_not_exist_is_named_with_those_that_do(
    selector, message, hint
):
    with pytest.raises(NotFoundError) as caught:
        select_queues(QUEUES, [selector])
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_topic_without_queues_has_none_to_select():
    with pytest.raises(NotFoundError, match="queue 0 does not exist"):
        select_queues([], [QueueSelector(None, 0)])
