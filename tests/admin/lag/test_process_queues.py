"""The process queues of consumers, and the problems that they show."""

from __future__ import annotations

import pytest

from rmqcli.admin.lag.explain import explain
from rmqcli.admin.lag.model import GroupReading, compute_lag
from rmqcli.admin.lag.process_queues import (
    QueueLimits,
    queue_flags,
    read_running_info,
)
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.consumer import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from tests.kit.rows import each_row

NOW_MS = 1_767_322_800_000
FRESH = {
    "last_pull_timestamp": NOW_MS - 100,
    "last_consume_timestamp": NOW_MS - 100,
    "last_lock_timestamp": NOW_MS - 100,
    "locked": True,
}


def held(**fields):
    return ProcessQueueInfo(**{**FRESH, **fields})


@each_row(
    ("item", "is_orderly", "flags"),
    [
        (held(), False, ()),
        (held(cached_msg_count=1000, cached_msg_max_offset=2000), False, ()),
        (held(cached_msg_count=1001), False, ("FLOW_CONTROL",)),
        (held(cached_msg_size_in_mib=100), False, ()),
        (held(cached_msg_size_in_mib=101), False, ("FLOW_CONTROL",)),
        (
            held(cached_msg_count=2, cached_msg_max_offset=2001),
            False,
            ("FLOW_CONTROL", "STUCK_HEAD"),
        ),
        # an orderly consumer has no span limit
        (held(cached_msg_count=2, cached_msg_max_offset=2001), True, ()),
        (
            held(cached_msg_count=1, last_consume_timestamp=NOW_MS - 60_001),
            False,
            ("STUCK_HEAD",),
        ),
        (
            held(cached_msg_count=1, last_consume_timestamp=NOW_MS - 60_000),
            False,
            (),
        ),
        (held(last_consume_timestamp=NOW_MS - 60_001), False, ()),
        (held(last_lock_timestamp=NOW_MS - 30_000), True, ()),
        (held(last_lock_timestamp=NOW_MS - 30_001), True, ("EXPIRED_LOCK",)),
        (held(locked=False), True, ("EXPIRED_LOCK",)),
        (held(locked=False), False, ()),
        (held(droped=True, last_pull_timestamp=0), False, ("DROPPED",)),
        (held(last_pull_timestamp=NOW_MS - 120_000), False, ()),
        (held(last_pull_timestamp=NOW_MS - 120_001), False, ("PULL_STOPPED",)),
    ],
)
def test_flags(item, is_orderly, flags):
    found = queue_flags(
        item, limits=QueueLimits(), is_orderly=is_orderly, now_ms=NOW_MS
    )
    assert found == flags


def read(item, **properties):
    queue = MessageQueue("T", "broker-a", 0)
    info = ConsumerRunningInfo(properties=properties, process_queues={queue: item})
    client = read_running_info("c1", info, now_ms=NOW_MS)
    return client, client.queues[0]


def test_the_clients_own_limits_count():
    item = held(cached_msg_count=50, cached_msg_max_offset=120)
    _, queue = read(item, consumeConcurrentlyMaxSpan="100")
    assert (queue.span, queue.span_limit) == (120, 100)
    assert "FLOW_CONTROL" in queue.flags


@pytest.mark.parametrize("text", ["", "-1", "1e9", "9" * 20, "0", "x\x1b[2J"])
def test_a_limit_that_makes_no_sense_is_javas_default(text):
    _, queue = read(held(), consumeConcurrentlyMaxSpan=text)
    assert queue.span_limit == 2000


def test_offsets_of_an_empty_cache_are_unknown_not_zero():
    _, queue = read(held())
    assert (queue.cached_min_offset, queue.cached_max_offset, queue.span) == (
        None,
        None,
        0,
    )


def test_a_dropped_queue_has_no_owner():
    client, _ = read(held(droped=True))
    assert client.held_queues() == []


def test_who_broadcasts_needs_no_lock():
    item = held(locked=False)
    _, queue = read(item, PROP_CONSUMEORDERLY="true", messageModel="BROADCASTING")
    assert queue.flags == ()
    client, queue = read(item, PROP_CONSUMEORDERLY="true", messageModel="CLUSTERING")
    assert queue.flags == ("EXPIRED_LOCK",)
    assert client.is_orderly


@pytest.mark.parametrize(
    ("is_orderly", "model", "locked"),
    [
        ("true", "CLUSTERING", True),
        ("false", "CLUSTERING", None),
        ("true", "BROADCASTING", None),
    ],
)
def test_only_an_orderly_consumer_has_locks(is_orderly, model, locked):
    """`locked` was true for concurrent consumers, which report any value there."""
    _, queue = read(held(), PROP_CONSUMEORDERLY=is_orderly, messageModel=model)
    assert queue.locked is locked
    assert (queue.last_lock_ms is None) is (locked is None)


def test_an_explanation_names_the_queues_that_wait_for_their_locks():
    queues = {
        MessageQueue("T", "broker-a", number): held(locked=number == 3)
        for number in range(4)
    }
    info = ConsumerRunningInfo(
        properties={"PROP_CONSUMEORDERLY": "true"}, process_queues=queues
    )
    client = read_running_info("c1", info, now_ms=NOW_MS)
    reading = GroupReading(group="G", queues=[], clients={"c1": client})
    assert (
        "c1 waits for the broker's lock of T@broker-a:0, T@broker-a:1, T@broker-a:2."
        in explain(compute_lag(reading))
    )


def test_an_explanation_says_how_fast_each_member_consumes():
    slow = ConsumeStatus(
        consume_rt=1_200.0,
        consume_ok_tps=15.9,
        consume_failed_tps=0.25,
        consume_failed_msgs=41,
    )
    info = ConsumerRunningInfo(
        properties={"PROP_THREADPOOL_CORE_SIZE": "20"},
        process_queues={
            MessageQueue("T", "broker-a", 0): ProcessQueueInfo(cached_msg_count=300)
        },
        statuses={"T": slow, "%RETRY%G": ConsumeStatus()},
    )
    silent = ConsumerRunningInfo(statuses={"T": ConsumeStatus()})
    reading = GroupReading(
        group="G",
        clients={
            name: read_running_info(name, each, now_ms=NOW_MS)
            for name, each in (("c1", info), ("c2", silent))
        },
    )
    assert explain(compute_lag(reading))[-1] == (
        "c1 has 20 threads and 300 cached messages; of T it consumes 15.9/s, fails"
        " 0.2/s (41 in the last hour), and its listener takes 1.2s (calls on all"
        " threads: at most 16.7/s)."
    )


def test_no_limit_is_computed_of_a_listener_that_takes_less_than_a_millisecond():
    """Of 20 threads and 0.0037 ms it said "1ms (... at most 5.405e+06/s)"."""
    quick = ConsumeStatus(consume_rt=0.0037, consume_ok_tps=17.6)
    info = ConsumerRunningInfo(
        properties={"PROP_THREADPOOL_CORE_SIZE": "20"}, statuses={"T": quick}
    )
    client = read_running_info("c1", info, now_ms=NOW_MS)
    reading = GroupReading(group="G", clients={"c1": client})
    assert explain(compute_lag(reading))[-1] == (
        "c1 has 20 threads and 0 cached messages; of T it consumes 17.6/s, fails 0/s,"
        " and its listener takes less than 1ms."
    )
