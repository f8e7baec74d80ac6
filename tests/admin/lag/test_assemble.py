"""Joining what brokers reported, and above all showing what they did not report."""

from __future__ import annotations

import pytest

from rmqcli.admin.lag.assemble import Assembler, BrokerPart, LagQuery, SharedAnswers
from rmqcli.admin.lag.model import GroupState, compute_lag
from rmqcli.errors import BrokerError, DeadlineError
from rmqcli.model import BrokerData, MessageQueue, QueueData, TopicRoute
from rmqcli.wire.bodies.consumer import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    ProcessQueueInfo,
)

HUNG = DeadlineError("no answer in 5000 ms", address="127.0.0.1:2")
DENIED = BrokerError("consume stats of group G: no", code=1, name="SYSTEM_ERROR")


def told(name="broker-a", *, committed=None, ends=None, **more):
    return BrokerPart(
        broker_name=name,
        address="127.0.0.1:1",
        committed={("G", t): offsets for t, offsets in (committed or {}).items()},
        ends={"T": {0: (0, 10)}} if ends is None else ends,
        **more,
    )


def hung(name="broker-b", **more):
    return BrokerPart(broker_name=name, address="127.0.0.1:2", failure=HUNG, **more)


def route(topic, *names, queues=2):
    return TopicRoute(
        topic=topic,
        brokers=tuple(
            BrokerData(cluster="c", broker_name=n, addresses={0: "127.0.0.1:1"})
            for n in names
        ),
        queues=tuple(
            QueueData(
                broker_name=n, read_queue_nums=queues, write_queue_nums=queues, perm=6
            )
            for n in names
        ),
    )


def assemble(*parts, routes=None, shared=None, topics=()):
    assembler = Assembler(
        parts,
        LagQuery(groups=("G",), topics=topics),
        shared or SharedAnswers(),
        routes=routes or {},
        now_ms=1,
    )
    return assembler.assemble("G")


def rows(reading):
    return [
        (q.topic, q.broker_name, q.queue_id, q.failure is not None)
        for q in reading.queues
    ]


def test_a_group_of_one_broker():
    part = told(committed={"T": {0: 4}}, inflight={("G", "T"): {0: 3}})
    reading = assemble(part)
    (queue,) = reading.queues
    assert (queue.committed, queue.max_offset, queue.inflight) == (4, 10, 3)
    assert reading.failures == []


def test_a_queue_without_an_offset_was_never_committed():
    reading = assemble(told(committed={"T": {}}))
    assert compute_lag(reading).state is GroupState.NO_COMMIT


def test_a_hung_brokers_queues_come_from_the_route():
    reading = assemble(
        told(committed={"T": {0: 4}}),
        hung(),
        routes={"T": route("T", "broker-a", "broker-b"), "%RETRY%G": None},
    )
    assert rows(reading) == [
        ("T", "broker-a", 0, False),
        ("T", "broker-b", 0, True),
        ("T", "broker-b", 1, True),
    ]
    assert [f.broker_name for f in reading.failures] == ["broker-b"]


def test_what_a_broker_reported_before_it_hung_is_kept():
    part = hung(committed={("G", "T"): {1: 7}})
    reading = assemble(part, routes={"T": route("T", "broker-b")})
    assert [q.committed for q in reading.queues] == [None, 7]
    assert compute_lag(reading).state is GroupState.UNKNOWN


def test_a_broker_that_the_group_never_used_does_not_matter():
    reading = assemble(
        told(committed={"T": {0: 4}}),
        hung(),
        routes={"T": route("T", "broker-a"), "%RETRY%G": route("%RETRY%G", "broker-a")},
    )
    assert rows(reading) == [("T", "broker-a", 0, False)]
    assert reading.failures == []


def test_without_a_route_a_failed_broker_may_have_queues():
    reading = assemble(
        told(committed={"T": {0: 4}}), hung(), routes={"T": route("T", "broker-a")}
    )
    assert rows(reading)[1:] == [(None, "broker-b", None, True)]


def test_when_nothing_is_known_one_row_stands_for_all_queues():
    reading = assemble(hung(), routes={"%RETRY%G": None})
    assert rows(reading) == [(None, "broker-b", None, True)]
    assert compute_lag(reading).total_lag is None


def test_a_refusal_is_a_failure_of_this_group():
    part = told(committed={"T": {0: 4}}, group_failures={"G": DENIED})
    reading = assemble(part)
    assert rows(reading) == [("T", "broker-a", 0, True)]
    assert reading.failures[0].message == DENIED.message


def test_offsets_of_a_deleted_topic_are_a_note():
    reading = assemble(told(committed={"T": {0: 1, 1: 2}}, ends={"T": None}))
    assert reading.queues == []
    assert reading.notes == [
        "broker-a has no topic T any more, but 2 offsets of the group in it"
    ]


@pytest.mark.parametrize(
    ("answer", "failure"),
    [(None, "its broker did not answer"), (HUNG, "no answer in 5000 ms")],
)
def test_a_member_that_did_not_answer_is_named(answer, failure):
    online = ConsumerConnection(
        connections=(
            Connection(
                client_id="c1", client_addr="127.0.0.1:9", language=0, version=409
            ),
        ),
        subscriptions={},
    )
    reading = assemble(
        told(committed={"T": {0: 4}}, connections={"G": online}),
        shared=SharedAnswers(clients={("G", "c1"): answer}),
    )
    assert reading.notes == [f"c1 did not answer: {failure}"]


def test_a_queue_with_two_holders_is_named():
    connections = tuple(
        Connection(client_id=c, client_addr="127.0.0.1:9", language=0, version=409)
        for c in ("c2", "c1")
    )
    online = ConsumerConnection(connections=connections, subscriptions={})
    info = ConsumerRunningInfo(
        properties={},
        process_queues={MessageQueue("T", "broker-a", 0): ProcessQueueInfo()},
    )
    shared = SharedAnswers(clients={("G", "c2"): info, ("G", "c1"): info})
    reading = assemble(
        told(committed={"T": {0: 4}}, connections={"G": online}), shared=shared
    )
    assert list(reading.clients or {}) == ["c2", "c1"]
    assert reading.notes == ["T@broker-a:0 is held by c1 and c2"]
    assert compute_lag(reading).queues[0].client_id == "c1,c2"


@pytest.mark.parametrize(
    ("queue", "topics", "is_missed"),
    [
        (MessageQueue("T", "broker-b", 3), (), True),
        (MessageQueue("T", "broker-b", 3), ("T",), True),
        (MessageQueue("U", "broker-b", 3), ("T",), False),
        # routes change, and members learn of it later
        (MessageQueue("T", "broker-a", 3), (), False),
        # a queue of a proxy, which maps it to queues of brokers
        (MessageQueue("T", "__syslo__global__", 3), (), False),
    ],
)
def test_a_held_queue_of_a_broker_in_no_route_is_missed(queue, topics, is_missed):
    online = ConsumerConnection(
        connections=(
            Connection(
                client_id="c1", client_addr="127.0.0.1:9", language=0, version=409
            ),
        ),
        subscriptions={},
    )
    info = ConsumerRunningInfo(
        properties={}, process_queues={queue: ProcessQueueInfo()}
    )
    reading = assemble(
        told(committed={"T": {0: 4}}, connections={"G": online}),
        shared=SharedAnswers(clients={("G", "c1"): info}),
        topics=topics,
    )
    missed = [q.failure for q in reading.queues if q.failure is not None]
    reason = (
        f"{queue.broker_name} is no longer in the route, but member c1 still holds the"
        " queue"
    )
    assert missed == [reason] * is_missed


def test_topics_of_a_refusing_broker_need_no_row_for_all_queues():
    part = told(committed={}, group_failures={"G": DENIED})
    assert rows(assemble(part)) == [(None, "broker-a", None, True)]


def test_a_topic_asked_for_is_the_only_one_of_a_hung_broker():
    reading = assemble(
        hung(),
        routes={"T": route("T", "broker-b"), "%RETRY%G": route("%RETRY%G", "broker-b")},
        topics=("T",),
    )
    assert {row[0] for row in rows(reading)} == {"T"}


def test_members_that_broadcast_share_queues_without_a_word():
    connections = tuple(
        Connection(client_id=c, client_addr="127.0.0.1:9", language=0, version=409)
        for c in ("c1", "c2")
    )
    online = ConsumerConnection(
        connections=connections, subscriptions={}, message_model="BROADCASTING"
    )
    info = ConsumerRunningInfo(
        properties={},
        process_queues={MessageQueue("T", "broker-a", 0): ProcessQueueInfo()},
    )
    shared = SharedAnswers(clients={("G", "c1"): info, ("G", "c2"): info})
    reading = assemble(
        told(committed={"T": {0: 4}}, connections={"G": online}), shared=shared
    )
    assert reading.notes == []


def test_a_committed_queue_without_reported_ends_is_unknown():
    reading = assemble(told(committed={"T": {0: 4, 5: 3}}))
    found = {q.queue_id: (q.state.value, q.lag) for q in compute_lag(reading).queues}
    assert found == {0: ("KNOWN", 6), 5: ("UNKNOWN", None)}
