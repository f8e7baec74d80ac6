"""Queues are shared out in the same way as by Java's strategies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.engine.allocate import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
    md5_hash,
    queue_key,
    sort_client_ids,
    sort_queues,
)
from rmqcli.errors import ConfigError, UsageError
from rmqcli.model import MessageQueue
from tests import golden_vectors
from tests.kit.rows import each_row

VECTORS = golden_vectors.load("allocation")
STRANGER = "10.99.99.99@1#1"


def queues_of(rows):
    return [MessageQueue(*row) for row in rows or []]


def room_of_queue(queue):
    return queue.broker_name.partition("-")[0]


def room_of_client(cid):
    return cid.partition("-")[0]


BY_NAME: dict[str, type[AllocateMessageQueueStrategy]] = {
    "AVG": AllocateMessageQueueAveragely,
    "AVG_BY_CIRCLE": AllocateMessageQueueAveragelyByCircle,
    "CIRCLE": AllocateMessageQueueAveragelyByCircle,
}


def strategy_of(vector):
    name, settings = vector["strategy"], vector["settings"]
    if name == "MACHINE_ROOM":
        return AllocateMessageQueueByMachineRoom(
            settings["rooms"], like_4_6=vector["rocketmq"] == "4.6.0"
        )
    if name == "CONFIG":
        return AllocateMessageQueueByConfig(queues_of(settings["configured"]))
    if name == "CONSISTENT_HASH":
        count = settings.get("virtual_nodes", 10)
        if count == 10:  # the default of Java's class, and so of ours
            return AllocateMessageQueueConsistentHash()
        return AllocateMessageQueueConsistentHash(count)
    if name.startswith("MACHINE_ROOM_NEARBY-"):
        return AllocateMachineRoomNearby(
            BY_NAME[name.removeprefix("MACHINE_ROOM_NEARBY-")](),
            room_of_queue=room_of_queue,
            room_of_client=room_of_client,
        )
    return BY_NAME[name]()


def allocate(strategy, cid, queues, cids):
    return strategy.allocate(group="g", current_cid=cid, queues=queues, cids=cids)


def id_of(vector):
    return f"{vector['strategy']}-{vector['rocketmq']}-{vector.get('case', '')}"


@each_row("vector", [v for v in VECTORS if "expected" in v], ids=id_of)
def test_every_member_gets_what_java_gives_it(vector):
    strategy, queues = strategy_of(vector), queues_of(vector["queues"])
    assert strategy.name == vector["strategy"]
    for cid, expected in vector["expected"].items():
        found = allocate(strategy, cid, queues, vector["clients"])
        assert found == queues_of(expected), cid
    stranger = allocate(strategy, STRANGER, queues, vector["clients"])
    assert stranger == queues_of(vector["expected_for_a_stranger"])


@each_row("vector", [v for v in VECTORS if "case" in v], ids=id_of)
def test_unusual_arguments_give_the_same_result_or_error_as_in_java(vector):
    arguments = (
        strategy_of(vector),
        vector["client"] or "",
        queues_of(vector["queues"]),
        vector["clients"] or [],
    )
    if isinstance(vector["expected_one"], dict):
        with pytest.raises(UsageError):
            allocate(*arguments)
    else:
        assert allocate(*arguments) == queues_of(vector["expected_one"])


def many(count, broker="b"):
    return [MessageQueue("t", broker, n) for n in range(count)]


def ids(found):
    return [queue.queue_id for queue in found]


def shares(strategy, queues, cids):
    return {cid: allocate(strategy, cid, queues, cids) for cid in cids}


def test_allocate_averagely_shares_10_queues_among_4_members_as_java_does():
    """Source: AllocateMessageQueueAveragelyTest."""
    found = shares(AllocateMessageQueueAveragely(), many(10), ["a", "b", "c", "d"])
    assert list(map(ids, found.values())) == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]


def test_allocate_by_circle_shares_queues_as_java_does():
    found = shares(
        AllocateMessageQueueAveragelyByCircle(), many(10), ["a", "b", "c", "d"]
    )
    assert list(map(ids, found.values())) == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_the_hash_ring_uses_the_same_hashes_as_java():
    assert md5_hash("CID-0-0") == 1900518137
    assert md5_hash("CID-0-1") == 2611424514
    queue = MessageQueue("topic_test", "brokerName", 0)
    assert md5_hash(queue_key(queue)) == 2171879703


@pytest.mark.parametrize("count", [-1, 1_000_001, 2**70])
def test_a_number_of_virtual_nodes_out_of_range_is_refused(count):
    with pytest.raises(ConfigError, match=f"virtual_node_count is {count}"):
        AllocateMessageQueueConsistentHash(count)


@pytest.mark.parametrize("count", ["10", 1.0, True, None])
def test_a_number_of_virtual_nodes_is_an_int(count):
    with pytest.raises(TypeError, match="virtual_node_count"):
        AllocateMessageQueueConsistentHash(count)


def test_allocate_by_machine_room_shares_queues_as_clients_before_4_8_do():
    """The first part of a member's share is taken from the list of all queues, not from
    the queues of its machine room."""
    queues = many(5, "room1@broker-a") + [
        MessageQueue("t", "room2@broker-b", n) for n in range(5, 10)
    ]
    new = AllocateMessageQueueByMachineRoom(["room2"])
    old = AllocateMessageQueueByMachineRoom(["room2"], like_4_6=True)
    cids = ["a", "b"]
    assert list(map(ids, shares(new, queues, cids).values())) == [[5, 6, 9], [7, 8]]
    assert list(map(ids, shares(old, queues, cids).values())) == [[0, 1, 9], [2, 3]]


@pytest.mark.parametrize(
    ("broker_name", "is_ours"),
    [("room@a", True), ("room@a@@", True), ("room@a@ ", False), ("room@", False)],
)
def test_the_room_of_a_broker_is_read_as_java_s_split_does(broker_name, is_ours):
    """It drops empty parts at the end, and nothing else."""
    strategy = AllocateMessageQueueByMachineRoom(["room"])
    queues = many(1, broker_name)
    assert allocate(strategy, "a", queues, ["a"]) == (queues if is_ours else [])


def test_a_member_without_a_machine_room_is_an_error():
    nearby = AllocateMachineRoomNearby(
        AllocateMessageQueueAveragely(),
        room_of_queue=lambda _: "r",
        room_of_client=lambda _: None,
    )
    with pytest.raises(UsageError, match="is in no machine room"):
        allocate(nearby, "a", many(1), ["a"])


def test_client_ids_are_sorted_by_their_utf_16_units():
    """Java compares chars: U+10000 consists of two, the first of which is before
    U+FFFD."""
    assert sort_client_ids(["\ufffd", "\U00010000", "a"]) == [
        "a",
        "\U00010000",
        "\ufffd",
    ]
    first, last = MessageQueue("\U00010000", "b", 0), MessageQueue("\ufffd", "b", 0)
    assert sort_queues([last, first]) == [first, last]


STRATEGIES = st.sampled_from(
    [
        AllocateMessageQueueAveragely(),
        AllocateMessageQueueAveragelyByCircle(),
        AllocateMessageQueueConsistentHash(),
    ]
)


@given(STRATEGIES, st.integers(1, 40), st.integers(1, 12))
def test_every_queue_has_exactly_one_owner(strategy, queue_count, member_count):
    queues, cids = many(queue_count), [f"cid-{n:02}" for n in range(member_count)]
    owned = [q for share in shares(strategy, queues, cids).values() for q in share]
    assert sorted(owned) == queues


@given(st.integers(1, 40), st.integers(2, 10), st.data())
def test_a_member_that_leaves_a_hash_ring_moves_only_its_own_queues(
    queue_count, member_count, data
):
    strategy, queues = AllocateMessageQueueConsistentHash(3), many(queue_count)
    cids = [f"cid-{n:02}" for n in range(member_count)]
    gone = data.draw(st.sampled_from(cids))
    before = shares(strategy, queues, cids)
    after = shares(strategy, queues, [cid for cid in cids if cid != gone])
    for cid, share in after.items():
        assert set(before[cid]) <= set(share)


def test_names_that_are_no_unicode_text_are_sorted_and_hashed_as_java_does():
    """Java keeps a lone surrogate in a string, and encodes it as '?'."""
    assert sort_client_ids(["\ue000", "\ud800"]) == ["\ud800", "\ue000"]
    assert md5_hash("\ud800") == md5_hash("?") == 3_510_991_730


class Recorder:
    """An inner strategy that records the arguments of its calls."""

    name = "RECORDER"

    def __init__(self):
        self.asked = []

    def allocate(self, *, group, current_cid, queues, cids):
        self.asked.append((group, current_cid, list(queues), list(cids)))
        return list(queues)


def test_queues_of_the_own_machine_room_and_of_rooms_without_members_are_shared():
    inner = Recorder()
    nearby = AllocateMachineRoomNearby(
        inner, room_of_queue=room_of_queue, room_of_client=room_of_client
    )
    own, far, empty = many(2, "r1-b"), many(2, "r2-b"), many(1, "r3-b")
    found = allocate(nearby, "r1-a", [*empty, *far, *own], ["r1-a", "r1-b", "r2-a"])
    assert found == [*own, *empty]
    assert inner.asked == [
        ("g", "r1-a", own, ["r1-a", "r1-b"]),
        ("g", "r1-a", empty, ["r1-a", "r1-b", "r2-a"]),
    ]
