"""Bodies of clients that are not written in Java."""

from __future__ import annotations

import json

import pytest

from rmqcli.admin.lag.process_queues import DROPPED, read_running_info
from rmqcli.wire.bodies.consumer import ConsumerRunningInfo
from rmqcli.wire.bodies.heartbeat import ConsumeMessageDirectlyResult
from rmqcli.wire.body import decode_body

NOW_MS = 1_767_322_800_000


@pytest.mark.parametrize(
    ("sent", "result"),
    [
        (0, "CR_SUCCESS"),
        (1, "CR_LATER"),
        (4, "CR_THROW_EXCEPTION"),
        (6, None),
        ("CR_SUCCESS", "CR_SUCCESS"),
    ],
)
def test_the_result_of_a_client_in_go_is_an_ordinal(sent, result):
    body = {
        "order": False,
        "autoCommit": True,
        "consumeResult": sent,
        "remark": "",
        "spentTimeMills": 3,
    }
    decoded = decode_body(ConsumeMessageDirectlyResult, json.dumps(body))
    assert decoded.consume_result == result


def the_queue(**fields):
    """Return the only queue of a member that reports it with these fields."""
    queue = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
    times = {"lastPullTimestamp": NOW_MS, "lastConsumeTimestamp": NOW_MS}
    body = f'{{"mqTable":{{{queue}:{json.dumps({**times, **fields})}}}}}'
    info = decode_body(ConsumerRunningInfo, body)
    (held,) = read_running_info("c1", info, now_ms=NOW_MS).queues
    return held


@pytest.mark.parametrize("name", ["droped", "dropped"])
def test_a_queue_that_a_client_in_go_has_lost_is_not_held(name):
    held = the_queue(**{name: True, "cachedMsgSizeInMiB": 2})
    assert (held.flags, held.cached_size_mib) == ((DROPPED,), 2)


def test_a_size_that_a_client_in_cpp_does_not_tell_is_unknown():
    assert the_queue(cachedMsgCount=7, droped=False).cached_size_mib is None
