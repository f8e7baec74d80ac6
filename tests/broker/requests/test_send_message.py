"""Sending one message: what is stored, what is answered, what is refused."""

from __future__ import annotations

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.settings import BrokerSettings
from rmqcli.model import MessageQueue
from rmqcli.store.memory import MemoryStore
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.header import to_ext_fields
from rmqcli.wire.headers.send import SendMessageRequestHeader
from tests.broker.driving import EPOCH_MS, Driver
from tests.broker.sending import BORN_MS, UNIQ_KEY, like, send, send_header
from tests.kit.rows import each_row

VERSIONS = ["4.6.0", "4.9.7", "5.5.0"]


@pytest.mark.parametrize(
    ("version", "stored"),
    [
        ("4.6.0", {"WAIT": "true", "CLUSTER": "DefaultCluster"}),
        ("4.9.7", {"CLUSTER": "DefaultCluster"}),
        (
            "5.5.0",
            {
                "WAIT": "true",
                "CLUSTER": "DefaultCluster",
                "MSG_REGION": "DefaultRegion",
                "TRACE_ON": "true",
            },
        ),
    ],
)
def test_properties_that_a_broker_adds(version: str, stored: dict[str, str]) -> None:
    driver = Driver(like(version))
    asked: dict[str, str | None] = {"TAGS": "a", "UNIQ_KEY": UNIQ_KEY, "WAIT": "true"}

    send(driver, properties=asked)

    (message,) = driver.messages("T")
    assert message.properties == {"TAGS": "a", "UNIQ_KEY": UNIQ_KEY, **stored}


@pytest.mark.parametrize("version", VERSIONS)
def test_answer_says_where_the_message_is(version: str) -> None:
    driver = Driver(like(version))
    send(driver, queue_id=2)

    answer = send(driver, properties={"UNIQ_KEY": UNIQ_KEY}, queue_id=2)

    fields = dict(answer.ext_fields)
    (_, second) = driver.messages("T", 2)
    place = f"{second.commit_log_offset:016X}"
    expected = {
        "msgId": "7F00000100002A9F" + place,
        "queueId": "2",
        "queueOffset": "1",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    if version == "5.5.0":
        expected["transactionId"] = UNIQ_KEY
    assert (answer.code, answer.remark, fields) == (0, None, expected)


def test_record_is_the_request() -> None:
    driver = Driver()
    header = send_header(properties={"TAGS": "a"}, queue_id=1, sys_flag=1)
    header.flag = 5  # type: ignore[misc]  # headers are not frozen at run time

    driver.ask(
        RequestCode.SEND_MESSAGE_V2,
        header,
        body=b"zipped",
        peer=Peer(7, "127.0.0.9:5001"),
    )

    (message,) = driver.messages("T", 1)
    assert (message.topic, message.raw_body, message.tags) == ("T", b"zipped", "a")
    assert (message.flag, message.sys_flag, message.reconsume_times) == (5, 1, 0)
    assert message.born_timestamp_ms == BORN_MS
    assert message.store_timestamp_ms == EPOCH_MS
    assert message.born_host == "127.0.0.9:5001"
    assert message.store_host == "127.0.0.1:10911"
    assert driver.store.units("T", 1, 0, 1)[0].tags_code == ord("a")


def test_a_missing_unique_key_is_added_and_answered() -> None:
    driver = Driver()

    first, second = send(driver), send(driver)

    keys = [each.msg_id for each in driver.messages("T")]
    assert keys == [
        first.ext_fields["transactionId"],
        second.ext_fields["transactionId"],
    ]
    assert len(set(keys)) == 2
    assert all(key is not None and len(key) == 32 for key in keys)


def test_old_code_10_with_long_names() -> None:
    driver = Driver()
    header = SendMessageRequestHeader(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=3,
        sys_flag=0,
        born_timestamp=BORN_MS,
        flag=0,
    )

    answer = driver.ask(RequestCode.SEND_MESSAGE, header, body=b"x")

    assert answer is not None
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "3")
    assert len(driver.messages("T", 3)) == 1


def test_a_new_topic_has_the_settings_of_the_default_topic() -> None:
    changes: list[str] = []
    driver = Driver(on_topics_changed=lambda: changes.append("changed"))

    send(driver, topic="New")

    assert driver.broker.topics.get("New") == TopicConfig(
        topic_name="New", read_queue_nums=4, write_queue_nums=4, perm=6
    )
    assert changes == ["changed"]


def test_no_topic_is_created_with_creation_off() -> None:
    driver = Driver(BrokerSettings(auto_create_topic_enable=False))

    answer = send(driver, topic="New")

    assert answer.code == 17
    assert answer.remark == "topic[New] not exist, apply first please!"
    assert answer.ext_fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
    assert driver.broker.topics.get("New") is None


def test_a_new_topic_can_inherit_from_another_topic() -> None:
    driver = Driver()
    driver.broker.topics.put(
        TopicConfig(topic_name="Mother", write_queue_nums=2, perm=7)
    )
    driver.broker.topics.put(TopicConfig(topic_name="Barren", perm=6))

    for default, code in (("Mother", 0), ("Barren", 17), ("Nobody", 17)):
        header = send_header("Of" + default, default_topic=default)
        answer = driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"x")
        assert answer is not None
        assert (default, answer.code) == (default, code)
    created = driver.broker.topics.get("OfMother")
    assert created is not None
    assert (created.write_queue_nums, created.perm) == (2, 6)


@pytest.mark.parametrize(
    ("topic", "codes"),
    [
        ("bad name", (0, 1, 29)),
        ("bäd", (0, 1, 29)),
        ("x" * 128, (13, 1, 29)),
        ("x" * 127, (0, 0, 0)),
        ("   ", (0, 1, 29)),
        ("\ud800", (13, 1, 29)),
        ("SCHEDULE_TOPIC_XXXX", (0, 16, 16)),
        ("RMQ_SYS_TRANS_HALF_TOPIC", (0, 16, 16)),
        ("SELF_TEST_TOPIC", (0, 16, 16)),
        ("TBW102", (1, 0, 0)),
    ],
)
def test_illegal_topic_names_by_version(
    topic: str, codes: tuple[int, int, int]
) -> None:
    answered = [send(Driver(like(each)), topic=topic).code for each in VERSIONS]

    assert tuple(answered) == codes


@pytest.mark.parametrize(
    ("queue_id", "codes"), [(4, (1, 1, 29)), (3, (0, 0, 0)), (1 << 40, (1, 1, 1))]
)
def test_illegal_queue_ids_by_version(
    queue_id: int, codes: tuple[int, int, int]
) -> None:
    answered = [send(Driver(like(each)), queue_id=queue_id).code for each in VERSIONS]

    assert tuple(answered) == codes


def test_a_negative_queue_id_picks_the_queues_in_turn() -> None:
    driver = Driver()

    queues = [send(driver, queue_id=-1).ext_fields["queueId"] for _ in range(6)]

    assert queues == ["0", "1", "2", "3", "0", "1"]


def test_the_write_permission_of_a_topic_is_not_checked() -> None:
    driver = Driver()
    driver.broker.topics.put(TopicConfig(topic_name="ReadOnly", perm=4))

    assert send(driver, topic="ReadOnly").code == 0


@pytest.mark.parametrize(
    ("version", "code"), [("4.6.0", 0), ("4.9.7", 0), ("5.5.0", 1)]
)
def test_empty_body_by_version(version: str, code: int) -> None:
    assert send(Driver(like(version)), body=b"").code == code


@pytest.mark.parametrize("too_large", ["body", "properties", "surrogate", "inner"])
def test_messages_that_no_record_can_hold_are_illegal(too_large: str) -> None:
    driver = Driver()
    answer = {
        "body": lambda: send(driver, body=bytes(4 * 1024 * 1024 + 1)),
        "properties": lambda: send(driver, properties={"k": "v" * 32_760}),
        "surrogate": lambda: send(driver, properties={"k": "\udcff"}),
        "inner": lambda: send(driver, sys_flag=0x80),
    }[too_large]()

    assert answer.code == 13
    assert driver.store.log_bounds() == (0, 0)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("v" * 31_740, 0),
        ("v" * 31_741, 13),
        ("é" * 15_870, 0),
        ("é" * 15_870 + "v", 13),
        ("\udcff", 13),
        ("\udcff" * 10_000, 13),
    ],
    ids=["most", "one more", "most of two bytes", "one more", "surrogate", "many"],
)
def test_properties_are_stored_up_to_the_last_byte_that_a_record_has_for_them(
    value: str, code: int
) -> None:
    """A record takes 32,767 bytes; 1,024 are kept for what brokers add."""
    driver = Driver()

    assert send(driver, properties={"k": value}).code == code

    assert [each.properties["k"] for each in driver.messages("T")] == (
        [value] if code == 0 else []
    )


def test_a_body_of_the_largest_size_is_stored() -> None:
    driver = Driver()

    assert send(driver, body=bytes(4 * 1024 * 1024)).code == 0


@each_row("name", ["e", "f", "h", "j", "l", "d"])
@each_row("value", ["2147483648", "-2147483649", "x", "99999999999999999999"])
def test_numbers_that_do_not_fit_in_an_int_are_code_1(name: str, value: str) -> None:
    driver = Driver()
    fields = to_ext_fields(send_header()) | {name: value}

    answer = driver.send(
        RemotingCommand(
            code=310,
            language=0,
            version=513,
            opaque=9,
            flag=0,
            ext_fields=fields,
            body=b"x",
        )
    )

    assert answer is not None
    assert answer.code == 1
    assert driver.store.log_bounds() == (0, 0)


def test_one_way_is_stored_and_not_answered() -> None:
    driver = Driver()

    driver.ask(RequestCode.SEND_MESSAGE_V2, send_header(), body=b"x", oneway=True)
    driver.ask(
        RequestCode.SEND_MESSAGE_V2, send_header("bad name"), body=b"x", oneway=True
    )

    assert len(driver.messages("T")) == 1
    assert driver.sent == {}


def test_a_full_store_is_code_14_and_keeps_no_partial_record() -> None:
    driver = Driver(store=MemoryStore(capacity_bytes=1_000))
    while send(driver).code == 0:
        pass

    answer = send(driver)

    assert answer.code == 14
    assert answer.remark is not None
    assert "the broker's disk is full" in answer.remark
    stored = driver.messages("T")
    assert len(stored) >= 3
    assert driver.store.log_bounds()[1] == sum(each.store_bytes for each in stored)


@pytest.mark.parametrize(
    ("version", "times", "times_max", "topic"),
    [
        ("4.6.0", 15, None, "%RETRY%g"),
        ("4.6.0", 16, None, "%DLQ%g"),
        ("4.9.7", 3, 3, "%DLQ%g"),
        ("5.5.0", 16, None, "%RETRY%g"),
        ("5.5.0", 17, None, "%DLQ%g"),
        ("5.5.0", 3, 3, "%RETRY%g"),
        ("5.5.0", 4, 3, "%DLQ%g"),
    ],
)
def test_a_retry_sent_as_a_producer_becomes_a_dead_letter_by_version(
    version: str, times: int, times_max: int | None, topic: str
) -> None:
    driver = Driver(like(version))
    header = send_header(
        "%RETRY%g", reconsume_times=times, max_reconsume_times=times_max
    )

    answer = driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"x")

    assert answer is not None
    assert answer.code == 0
    (message,) = driver.messages(topic)
    assert message.reconsume_times == times
    if topic == "%DLQ%g":
        assert driver.broker.topics.get(topic) == TopicConfig(
            topic_name=topic,
            read_queue_nums=1,
            write_queue_nums=1,
            perm=2 if version == "4.6.0" else 6,
        )


@pytest.mark.parametrize(
    ("version", "topic"), [("4.9.7", "%RETRY%g"), ("5.5.0", "%DLQ%g")]
)
def test_retry_of_an_orderly_group_is_dead_at_once_with_5_x(
    version: str, topic: str
) -> None:
    driver = Driver(like(version))
    queue = MessageQueue(topic="T", broker_name="broker-a", queue_id=0)
    driver.broker.locks.lock("g", "client", [queue], driver.now)

    header = send_header("%RETRY%g", reconsume_times=1, max_reconsume_times=3)
    driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"x")

    assert len(driver.messages(topic)) == 1


def test_retry_topic_is_created_without_a_default() -> None:
    driver = Driver()
    header = send_header("%RETRY%g", default_topic="Nobody")

    answer = driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"x")

    assert answer is not None
    assert answer.code == 0
    created = driver.broker.topics.get("%RETRY%g")
    assert created is not None
    assert (created.read_queue_nums, created.perm) == (1, 6)


def test_retry_of_an_unknown_group_is_code_26() -> None:
    driver = Driver(BrokerSettings(auto_create_subscription_group=False))
    header = send_header("%RETRY%g")

    answer = driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"x")

    assert answer is not None
    assert answer.code == 26
    driver.broker.groups.put(SubscriptionGroupConfig(group_name="g"))
    again = driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"x")
    assert again is not None
    assert again.code == 0
