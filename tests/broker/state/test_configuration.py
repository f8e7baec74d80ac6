"""Settings changed while a broker runs take effect, or are refused."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from rmqcli.broker.settings import BrokerSettings
from rmqcli.wire.bodies.config import parse_properties_text
from rmqcli.wire.codes import RequestCode
from tests.broker.driving import EPOCH_MS, Driver, need
from tests.broker.pulling import driver_with_topic, offsets, pull, put
from tests.broker.sending import like, send_header
from tests.kit.rows import each_row


def update(driver: Driver, **settings: object) -> tuple[int, str | None]:
    body = "".join(f"{name}={text}\n" for name, text in settings.items()).encode()
    answer = need(driver.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body))
    return answer.code, answer.remark


def shown(driver: Driver) -> dict[str, str]:
    answer = need(driver.ask(RequestCode.GET_BROKER_CONFIG))
    return parse_properties_text(bytes(answer.body))


def test_a_changed_setting_is_shown_and_counted():
    driver = Driver()
    assert update(driver, longPollingEnable="false", maxMessageSize=5) == (0, None)

    assert not driver.broker.settings.long_polling_enable
    assert driver.broker.settings.max_message_size == 5
    assert shown(driver)["longPollingEnable"] == "false"
    assert shown(driver)["maxMessageSize"] == "5"
    answer = need(driver.ask(RequestCode.GET_BROKER_CONFIG))
    assert json.loads(answer.ext_fields["version"]) == {
        "counter": 1,
        "stateVersion": 0,
        "timestamp": EPOCH_MS,
    }


@pytest.mark.parametrize(
    ("broker_id", "role"), [(0, "ASYNC_MASTER"), (1, "SLAVE"), (2, "SLAVE")]
)
def test_the_role_follows_from_the_id(broker_id, role):
    driver = Driver(BrokerSettings(broker_id=broker_id))
    assert shown(driver)["brokerRole"] == role
    assert shown(driver)["brokerId"] == str(broker_id)


@each_row("version", ["4.6.0", "4.9.7", "5.5.0"])
@each_row(
    ("name", "text"),
    [
        ("foo", "bar"),
        ("flushDelayOffsetInterval", "1000"),
        ("brokerName", "x"),
        ("brokerPermission", "4"),
        ("listenPort", "1"),
        ("messageDelayLevel", "1s"),
        ("transactionCheckInterval", "5"),
    ],
)
def test_other_settings_are_refused_and_not_shown(version, name, text):
    driver = Driver(like(version))
    before = shown(driver)

    code, remark = update(driver, maxMessageSize=7, **{name: text})

    assert code == 16
    assert remark == (
        f"setting {name} cannot be changed in an embedded broker;"
        " no setting was changed"
    )
    assert shown(driver) == before
    assert driver.broker.settings.max_message_size == 4_194_304


def test_a_broker_before_5_has_no_setting_for_resets():
    assert update(Driver(like("4.9.7")), useServerSideResetOffset="true")[0] == 16
    driver = Driver()
    assert update(driver, useServerSideResetOffset="false") == (0, None)
    assert shown(driver)["useServerSideResetOffset"] == "false"


@each_row(("version", "code"), [("4.9.7", 1), ("5.5.0", 29)])
@each_row(
    ("name", "text"),
    [
        ("autoCreateTopicEnable", "maybe"),
        ("maxMessageSize", "-1"),
        ("maxMessageSize", "1.5"),
        ("maxMessageSize", ""),
        ("maxMessageSize", "2147483648"),
        ("maxMessageSize", "99999999999999999999"),
        ("defaultTopicQueueNums", "0"),
    ],
)
def test_illegal_values_are_refused(version, code, name, text):
    driver = Driver(like(version))
    assert update(driver, slaveReadEnable="true", **{name: text}) == (
        code,
        f"invalid value {text!r} for setting {name}; no setting was changed",
    )
    assert not driver.broker.settings.slave_read_enable


def test_what_is_shown_can_be_sent_back():
    driver = Driver()
    assert update(driver, **shown(driver)) == (0, None)
    assert driver.broker.settings == BrokerSettings()


# --- that each of them does something ---


def set_up(on_disk: bool = False, **settings: Any) -> Driver:
    """A broker with 40 messages of some 200 bytes in queue 0 of T."""
    if on_disk:
        settings["in_memory_bytes_max"] = 0
    driver = driver_with_topic(BrokerSettings(**settings))
    put(driver, *["a"] * 40, body_bytes=100)
    return driver


@pytest.mark.parametrize(
    ("on_disk", "name", "usual"),
    [
        (False, "maxTransferCountOnMessageInMemory", 32),
        (True, "maxTransferCountOnMessageInDisk", 8),
    ],
)
@pytest.mark.parametrize("expression", ["*", "a"])
def test_the_number_of_messages_in_an_answer_is_a_setting(
    on_disk, name, usual, expression
):
    driver = set_up(on_disk)
    ask = {"max_msg_nums": 40, "subscription": expression}
    assert len(offsets(pull(driver, **ask))) == usual
    for count in (0, 1, 3, 40):
        assert update(driver, **{name: count}) == (0, None)
        assert len(offsets(pull(driver, **ask))) == max(1, count)


@pytest.mark.parametrize(
    ("on_disk", "name"),
    [
        (False, "maxTransferBytesOnMessageInMemory"),
        (True, "maxTransferBytesOnMessageInDisk"),
    ],
)
@pytest.mark.parametrize("expression", ["*", "a"])
def test_the_bytes_of_an_answer_are_a_setting(on_disk, name, expression):
    driver = set_up(on_disk)
    update(driver, maxTransferCountOnMessageInDisk=32)
    size = driver.store.log_bounds()[1] // 40
    ask = {"max_msg_nums": 40, "subscription": expression}
    for limit, count in ((0, 1), (5 * size - 1, 4), (5 * size, 5)):
        assert update(driver, **{name: limit}) == (0, None)
        assert len(offsets(pull(driver, **ask))) == count


def test_how_much_a_filter_reads_is_a_setting():
    driver = set_up()
    put(driver, "b")
    assert offsets(pull(driver, subscription="b")) == [40]
    assert update(driver, maxFilterMessageSize=20 * 38) == (0, None)
    answer = pull(driver, subscription="b")
    assert offsets(answer) == []
    assert answer.ext_fields["nextBeginOffset"] == "38"


def test_an_answer_fits_in_a_frame_whatever_the_settings_say():
    driver = driver_with_topic()
    body = b"x" * 3_000_000
    for _ in range(6):
        driver.ask(RequestCode.SEND_MESSAGE_V2, send_header("T"), body=body)
    update(driver, maxTransferBytesOnMessageInMemory=2**31 - 1)
    assert offsets(pull(driver)) == [0, 1, 2, 3, 4]


def created_queues(driver: Driver, topic: str) -> int | None:
    header = dataclasses.replace(send_header(topic), default_topic_queue_nums=100)
    driver.ask(RequestCode.SEND_MESSAGE_V2, header, body=b"x")
    config = driver.broker.topics.get(topic)
    return None if config is None else config.write_queue_nums


def test_creation_of_topics_can_be_switched_off_and_on_again():
    driver = Driver()
    assert created_queues(driver, "one") == 8
    update(driver, autoCreateTopicEnable="false")
    assert created_queues(driver, "two") is None
    update(driver, autoCreateTopicEnable="true", defaultTopicQueueNums=12)
    assert created_queues(driver, "three") == 12


def test_creation_of_topics_can_be_switched_on_in_a_broker_that_began_without():
    driver = Driver(BrokerSettings(auto_create_topic_enable=False))
    assert created_queues(driver, "one") is None
    update(driver, autoCreateTopicEnable="true")
    assert created_queues(driver, "two") == 8


def test_the_size_of_a_message_is_a_setting():
    driver = driver_with_topic()
    update(driver, maxMessageSize=3)
    codes = [
        need(
            driver.ask(RequestCode.SEND_MESSAGE_V2, send_header("T"), body=b"x" * size)
        ).code
        for size in (3, 4)
    ]
    assert codes == [0, 13]
