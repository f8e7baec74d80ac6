"""Bounds on what clients can make a broker keep: topics, groups, and their cost."""

from __future__ import annotations

import pytest

from rmqcli.broker.cluster.broker import EmbeddedBroker
from rmqcli.broker.cluster.storage import storage_in
from rmqcli.broker.effects import Peer
from rmqcli.broker.server.server import Server
from rmqcli.broker.settings import BrokerSettings
from rmqcli.clock import SYSTEM_CLOCK
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.config import CreateTopicRequestHeader
from tests.broker.driving import Driver, need
from tests.broker.sending import send_header
from tests.broker.wire_client import WireClient


def heartbeat(*groups: str, producers: tuple[str, ...] = ()) -> bytes:
    consumers = tuple(
        ConsumerData(
            group_name=group,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=(),
        )
        for group in groups
    )
    data = HeartbeatData(
        client_id="c",
        consumers=consumers,
        producers=tuple(ProducerData(group_name=group) for group in producers),
    )
    return encode_body(data)


@pytest.fixture
def announced():
    """A running broker, and how many topics each of its registrations had."""
    counts: list[int] = []
    server = Server(clock=SYSTEM_CLOCK)
    server.start()
    port = server.call(lambda: server.open("broker-a", host="127.0.0.1", port=0))
    broker = EmbeddedBroker(
        server,
        port,
        BrokerSettings(address=port.address),
        storage=storage_in(None),
        announce=lambda core: counts.append(len(core.topics.all())),
        retract=lambda _core: None,
    )
    broker.start()
    yield broker, counts
    broker.close()
    server.close()


def test_the_new_groups_of_a_heartbeat_are_registered_at_once(announced):
    """Each group adds its retry topic; formerly each registered all topics again."""
    broker, counts = announced
    (before,) = counts
    with WireClient(broker.address) as client:
        groups = [f"g{number}" for number in range(1_000)]
        opaque = client.send(RequestCode.HEART_BEAT, body=heartbeat(*groups))
        pushes = 0
        while (command := client.receive()).code == 40:
            pushes += 1

    assert (command.opaque, command.code, pushes) == (opaque, 0, 1_000)
    assert counts == [before, before + 1_000]


def test_a_topic_is_registered_before_its_creation_is_answered(announced):
    broker, counts = announced
    (before,) = counts
    with WireClient(broker.address) as client:
        for number in range(3):
            client.ask(
                RequestCode.UPDATE_AND_CREATE_TOPIC,
                topic=f"T{number}",
                defaultTopic="TBW102",
                readQueueNums=1,
                writeQueueNums=1,
                perm=6,
                topicFilterType="SINGLE_TAG",
                topicSysFlag=0,
                order="false",
            )
            assert counts[-1] == before + number + 1


def test_a_topic_of_a_call_is_registered_when_the_call_returns(announced):
    broker, counts = announced
    broker.set_queues("TBW102", read=3)
    assert len(counts) == 2


def with_topics(count: int) -> Driver:
    driver = Driver()
    missing = count - len(driver.broker.topics.all())
    driver.broker.topics.load(
        TopicConfig(topic_name=f"full{number}") for number in range(missing)
    )
    return driver


def create_topic(driver: Driver, topic: str):
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=1,
        write_queue_nums=1,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    return need(driver.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, header))


def test_topics_are_created_up_to_the_limit_and_no_further():
    driver = with_topics(49_999)
    assert create_topic(driver, "last").code == 0

    answer = create_topic(driver, "over")
    assert answer.code == 1
    assert answer.remark == (
        "topic over was not created: the broker already has 50000 topics"
    )
    assert create_topic(driver, "last").code == 0


def test_a_send_creates_no_topic_over_the_limit():
    driver = with_topics(50_000)
    answer = driver.ask(RequestCode.SEND_MESSAGE_V2, send_header("over"), body=b"x")
    assert need(answer).code == 17
    assert driver.broker.topics.get("over") is None


def test_a_heartbeat_creates_no_retry_topic_over_the_limit():
    driver = with_topics(50_000)
    answer = need(driver.ask(RequestCode.HEART_BEAT, body=heartbeat("g")))
    assert answer.code == 1
    assert driver.broker.topics.get("%RETRY%g") is None


def with_groups(count: int) -> Driver:
    driver = Driver()
    missing = count - len(driver.broker.groups.all())
    driver.broker.groups.load(
        SubscriptionGroupConfig(group_name=f"full{number}") for number in range(missing)
    )
    return driver


def update_group(driver: Driver, group: str):
    body = encode_body(SubscriptionGroupConfig(group_name=group))
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return need(driver.ask(code, body=body))


def test_groups_are_created_up_to_the_limit_and_no_further():
    driver = with_groups(19_999)
    assert update_group(driver, "last").code == 0

    answer = update_group(driver, "over")
    assert answer.code == 1
    assert answer.remark == (
        "group over was not created: the broker already has 20000 groups"
    )
    assert update_group(driver, "last").code == 0
    assert driver.broker.groups.find_or_create("over") is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["consumers", "producers"])
def test_more_groups_with_members_than_may_be_are_refused(kind):
    driver = Driver()

    def join(number: int, *groups: str):
        body = heartbeat(*groups)
        if kind == "producers":
            body = heartbeat(producers=groups)
        peer = Peer(number + 1, f"127.0.0.1:{40_001 + number}")
        return need(driver.ask(RequestCode.HEART_BEAT, body=body, peer=peer))

    for number in range(20):
        groups = [f"g{number}-{index}" for index in range(1_000)]
        assert join(number, *groups).code == 0

    answer = join(20, "g0-0", "over")
    assert (answer.code, answer.remark) == (
        1,
        "the broker can have at most 20000 groups with members",
    )
    assert join(20, "g0-0").code == 0
