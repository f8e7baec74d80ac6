"""Which queues the broker assigns to the members of a group, and in which mode."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.embedded import EmbeddedCluster
from rmqcli.broker.effects import Peer
from rmqcli.broker.requests.pop.query_assignment import (
    allocate_averagely,
    allocate_averagely_by_circle,
)
from rmqcli.broker.state import request_modes
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData
from rmqcli.wire.bodies.pop import (
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import RequestCode
from tests.broker.driving import Driver, need
from tests.broker.pulling import driver_with_topic
from tests.golden_vectors import load

STRATEGIES = {
    "AVG": allocate_averagely,
    "AVG_BY_CIRCLE": allocate_averagely_by_circle,
}
VECTORS = [
    case
    for case in load("allocation")
    if case["strategy"] in STRATEGIES and "case" not in case
]


def test_queues_are_allocated_as_java_does():
    assert len(VECTORS) == 480
    for case in VECTORS:
        queues = [MessageQueue(*each) for each in case["queues"]]
        allocate = STRATEGIES[case["strategy"]]
        for client_id, expected in case["expected"].items():
            found = allocate(client_id, queues, case["clients"])
            shown = [[each.topic, each.broker_name, each.queue_id] for each in found]
            assert shown == expected, case
        assert allocate("a stranger", queues, case["clients"]) == []


def join(driver: Driver, *client_ids: str) -> None:
    """Let clients join the group g."""
    for number, client_id in enumerate(client_ids, start=10):
        data = HeartbeatData(
            client_id=client_id,
            consumers=(
                ConsumerData(
                    group_name="g",
                    consume_type="CONSUME_PASSIVELY",
                    message_model="CLUSTERING",
                    consume_from_where="CONSUME_FROM_LAST_OFFSET",
                ),
            ),
        )
        peer = Peer(number, f"127.0.0.1:{number}")
        driver.ask(RequestCode.HEART_BEAT, body=encode_body(data), peer=peer)


def set_mode(driver: Driver, mode: str, shared: int = 0) -> int:
    body = SetMessageRequestModeRequestBody(
        topic="T", consumer_group="g", mode=mode, pop_share_queue_num=shared
    )
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    return need(driver.ask(code, body=encode_body(body))).code


def assigned(driver: Driver, client_id: str, **changes: str) -> list[str] | None:
    """`MODE queue id` of each assignment; None for no answer."""
    fields = {
        "topic": "T",
        "consumer_group": "g",
        "client_id": client_id,
        "strategy_name": "AVG",
        "message_model": "CLUSTERING",
    }
    body = QueryAssignmentRequestBody(**{**fields, **changes})
    answer = need(driver.ask(RequestCode.QUERY_ASSIGNMENT, body=encode_body(body)))
    assert answer.code == 0, answer
    found = decode_body(QueryAssignmentResponseBody, bytes(answer.body))
    if found.message_queue_assignments is None:
        return None
    return [
        f"{each.mode} {need(each.message_queue).queue_id}"
        for each in found.message_queue_assignments
    ]


def test_a_group_pulls_unless_another_mode_was_set():
    driver = driver_with_topic(queues=5)
    join(driver, "a", "b")

    assert assigned(driver, "a") == ["PULL 0", "PULL 1", "PULL 2"]
    assert assigned(driver, "b") == ["PULL 3", "PULL 4"]
    assert assigned(driver, "b", strategy_name="AVG_BY_CIRCLE") == ["PULL 1", "PULL 3"]
    assert assigned(driver, "stranger") == []


def test_in_pop_mode_each_client_has_all_queues_of_a_broker():
    driver = driver_with_topic(queues=5)
    join(driver, "a", "b")
    assert set_mode(driver, "POP") == 0

    assert assigned(driver, "a") == ["POP -1"]
    assert assigned(driver, "b") == ["POP -1"]
    assert set_mode(driver, "PULL") == 0
    assert assigned(driver, "b") == ["PULL 3", "PULL 4"]


def test_in_pop_mode_a_client_may_share_the_queues_of_its_successors():
    driver = driver_with_topic(queues=4)
    join(driver, "a", "b", "c", "d")
    set_mode(driver, "POP", shared=1)

    assert assigned(driver, "a") == ["POP 0", "POP 1"]
    assert assigned(driver, "d") == ["POP 3", "POP 0"]
    set_mode(driver, "POP", shared=3)
    assert assigned(driver, "a") == ["POP -1"]


def test_in_pop_mode_each_of_many_clients_has_a_queue():
    driver = driver_with_topic(queues=2)
    join(driver, "a", "b", "c", "d")
    set_mode(driver, "POP", shared=1)

    assert [assigned(driver, each) for each in "abcd"] == [
        ["POP 0"],
        ["POP 1"],
        ["POP 0"],
        ["POP 1"],
    ]


def test_a_broadcasting_client_has_all_queues():
    driver = driver_with_topic(queues=2)

    assert assigned(driver, "a", message_model="BROADCASTING") == ["PULL 0", "PULL 1"]


@pytest.mark.parametrize(
    "changes",
    [{"topic": "none-there"}, {"strategy_name": "BEST"}, {"consumer_group": "none"}],
)
def test_where_the_broker_cannot_tell_there_is_no_assignment(changes):
    driver = driver_with_topic()
    join(driver, "a")

    assert assigned(driver, "a", **changes) is None


def test_the_number_of_modes_is_bounded(monkeypatch):
    monkeypatch.setattr(request_modes, "MODES_MAX", 0)

    assert set_mode(driver_with_topic(), "POP") == 1


def test_the_queues_of_all_brokers_of_a_cluster_are_assigned():
    with EmbeddedCluster(brokers=2) as cluster:
        cluster.create_topic("T", queues=2)
        found = cluster.call(lambda: cluster.broker().state.topic_queues("T"))
        unknown = cluster.call(lambda: cluster.broker().state.topic_queues("U"))

    assert found == [
        MessageQueue("T", name, queue_id)
        for name in ("broker-a", "broker-b")
        for queue_id in range(2)
    ]
    assert unknown is None
