"""Connections, and requests passed on to clients: 203, 204, 46, 307, 309, 223."""

from __future__ import annotations

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.state import client_calls
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.consumer import ConsumerConnection
from rmqcli.wire.bodies.heartbeat import ProducerData
from rmqcli.wire.bodies.offset import GetConsumerStatusBody
from rmqcli.wire.body import decode_body, encode_body
from rmqcli.wire.codes import LanguageCode, RequestCode
from rmqcli.wire.command import RESPONSE_FLAG, RemotingCommand
from rmqcli.wire.headers.admin import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from rmqcli.wire.headers.client import ConsumeMessageDirectlyResultRequestHeader
from rmqcli.wire.headers.offset import GetConsumerStatusRequestHeader
from rmqcli.wire.ids import encode_offset_msg_id
from rmqcli.wire.message.encode import MessageFields
from rmqcli.wire.version import V5_5_0
from tests.broker.driving import Driver, need
from tests.broker.state.test_clients import beat, consumer

ADMIN = Peer(1, "127.0.0.1:40001")
LIVE = Peer(2, "127.0.0.1:40002")
OTHER = Peer(3, "127.0.0.1:40003")
QUEUE = MessageQueue("orders", "broker-a", 0)
INFO = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id="c2")


@pytest.fixture
def driver():
    driver = Driver()
    beat(driver, LIVE, consumer())
    driver.sent.clear()
    return driver


def asked(driver, peer, code):
    (command,) = [c for c in driver.sent[peer.number] if c.code == code]
    assert not command.is_oneway
    return command


def reply(driver, peer, question, *, code=0, remark=None, body=b"", fields=None):
    driver.send(
        RemotingCommand(
            code=code,
            opaque=question.opaque,
            flag=RESPONSE_FLAG,
            remark=remark,
            ext_fields=fields or {},
            body=body,
        ),
        peer=peer,
    )


def answers(driver):
    return [c for c in driver.sent[ADMIN.number] if c.is_response]


def test_307_and_its_answer_are_passed_on_unchanged(driver):
    request = RemotingCommand(
        code=307,
        opaque=77,
        ext_fields={
            "consumerGroup": "g",
            "clientId": "c2",
            "jstackEnable": "true",
            "AccessKey": "me",
        },
    )

    assert driver.send(request) is None
    question = asked(driver, LIVE, 307)
    assert question.ext_fields == request.ext_fields
    assert (question.version, question.language) == (V5_5_0, LanguageCode.JAVA)
    reply(driver, LIVE, question, remark="not set any response code", body=b"{}")

    (answer,) = answers(driver)
    assert (answer.code, answer.opaque) == (0, 77)
    assert (answer.remark, answer.body) == ("not set any response code", b"{}")


def test_307_times_out_after_10_s(driver):
    driver.ask(307, INFO)

    driver.wait(9_999)
    assert answers(driver) == []
    driver.wait(1)

    (answer,) = answers(driver)
    assert answer.code == 207
    assert answer.remark == "consumer <g> <c2> Timeout: no answer"


def test_307_an_answer_after_the_time_out_is_ignored(driver):
    driver.ask(307, INFO)
    driver.wait(10_000)

    reply(driver, LIVE, asked(driver, LIVE, 307), body=b"late")

    assert [a.code for a in answers(driver)] == [207]


def test_307_is_1_when_the_client_disconnects(driver):
    driver.ask(307, INFO)

    driver.disconnect(LIVE)

    (answer,) = answers(driver)
    assert answer.code == 1
    driver.wait(20_000)
    assert len(answers(driver)) == 1


def test_307_is_2_when_too_many_calls_wait(driver, monkeypatch):
    """An answer makes room for the next one."""
    monkeypatch.setattr(client_calls, "WAITING_MAX", 1)
    assert driver.ask(307, INFO) is None

    refused = need(driver.ask(307, INFO))

    assert (refused.code, refused.remark) == (
        2,
        "1 calls to clients are already waiting for an answer",
    )
    reply(driver, LIVE, asked(driver, LIVE, 307), body=b"{}")
    assert driver.ask(307, INFO) is None


def test_307_only_the_called_client_can_answer(driver):
    driver.ask(307, INFO)

    reply(driver, OTHER, asked(driver, LIVE, 307), body=b"forged")

    assert answers(driver) == []


def test_307_of_an_unknown_client_is_1(driver):
    header = GetConsumerRunningInfoRequestHeader(consumer_group="g", client_id="cX")

    answer = driver.ask(307, header)

    assert (answer.code, answer.remark) == (1, "The Consumer <g> <cX> not online")


def test_309_sends_the_stored_message(driver):
    (place,) = driver.store.append(
        [MessageFields(topic="orders", body=b"hello")], tags_codes=[0]
    )
    msg_id = encode_offset_msg_id("127.0.0.1:10911", place.commit_log_offset)

    driver.ask(
        309,
        ConsumeMessageDirectlyResultRequestHeader(
            consumer_group="g", client_id="c2", msg_id=msg_id, topic="orders"
        ),
    )

    question = asked(driver, LIVE, 309)
    assert question.body == driver.store.message_at(place.commit_log_offset)
    assert question.ext_fields == {
        "consumerGroup": "g",
        "clientId": "c2",
        "msgId": msg_id,
        "topic": "orders",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
        "brokerName": "broker-a",
    }


@pytest.mark.parametrize("msg_id", ["nonsense", "7F00000100002A9F0000000000100000"])
def test_309_of_an_unknown_message_is_1(driver, msg_id):
    header = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group="g", client_id="c2", msg_id=msg_id
    )

    assert driver.ask(309, header).code == 1


def test_223_asks_all_members_and_leaves_out_silent_ones(driver):
    beat(driver, OTHER, consumer())
    driver.ask(223, GetConsumerStatusRequestHeader(topic="orders", group="g"))
    question = asked(driver, LIVE, 221)
    assert question.ext_fields == {"topic": "orders", "group": "g"}

    reply(
        driver,
        LIVE,
        question,
        body=encode_body(GetConsumerStatusBody(message_queue_table={QUEUE: 58})),
    )
    assert answers(driver) == []
    driver.wait(5_000)

    (answer,) = answers(driver)
    assert answer.body == (
        b'{"consumerTable":{"c2":{{"brokerName":"broker-a","queueId":0,'
        b'"topic":"orders"}:58}},"messageQueueTable":{}}'
    )
    status = decode_body(GetConsumerStatusBody, answer.body)
    assert status.consumer_table == {"c2": {QUEUE: 58}}


def test_223_of_one_client_asks_that_client_only(driver):
    beat(driver, OTHER, consumer())
    header = GetConsumerStatusRequestHeader(topic="orders", group="g", client_addr="c3")

    driver.ask(223, header)

    asked(driver, OTHER, 221)
    assert [c for c in driver.sent[LIVE.number] if c.code == 221] == []


def test_223_of_a_group_without_members_is_1():
    answer = need(
        Driver().ask(223, GetConsumerStatusRequestHeader(topic="orders", group="g"))
    )

    assert answer.code == 1
    assert answer.remark == "No Any Consumer online in the consumer group: [g]"


def test_203_lists_members_and_subscriptions(driver):
    header = GetConsumerConnectionListRequestHeader(consumer_group="g")

    connection = decode_body(ConsumerConnection, driver.ask(203, header).body)

    (member,) = connection.connections
    assert (member.client_id, member.client_addr) == ("c2", "127.0.0.1:40002")
    assert (member.language, member.version) == (0, 513)
    assert connection.subscriptions["orders"].sub_string == "*"
    assert connection.consume_type == "CONSUME_PASSIVELY"
    assert connection.message_model == "CLUSTERING"
    assert connection.consume_from_where == "CONSUME_FROM_LAST_OFFSET"


def test_203_of_a_group_without_members_is_206():
    header = GetConsumerConnectionListRequestHeader(consumer_group="gold_never")

    answer = need(Driver().ask(203, header))

    assert answer.code == 206
    assert answer.remark == "the consumer group[gold_never] not online"


def test_204_lists_the_members_of_a_producer_group(driver):
    beat(driver, OTHER, producers=(ProducerData(group_name="pg"),))
    header = GetProducerConnectionListRequestHeader(producer_group="pg")

    assert driver.ask(204, header).body == (
        b'{"connectionSet":[{"clientAddr":"127.0.0.1:40003","clientId":"c3",'
        b'"language":"JAVA","version":513}]}'
    )


def test_204_of_an_unknown_group_is_1(driver):
    header = GetProducerConnectionListRequestHeader(producer_group="pg0")

    answer = driver.ask(204, header)

    assert (answer.code, answer.remark) == (1, "the producer group[pg0] not exist")


def check(settings, kind, text):
    body = (
        '{"clientId":"c","group":"g","subscriptionData":{"topic":"orders",'
        f'"expressionType":"{kind}","subString":"{text}"}}}}'
    )
    return Driver(settings).ask(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode())


def test_46_accepts_tags_always():
    assert check(None, "TAG", "A || B").code == 0


def test_46_accepts_sql_only_with_property_filters_enabled():
    answer = check(None, "SQL92", "a > 1")

    assert answer.code == 1
    assert answer.remark == (
        "The broker does not support consumer to filter message by SQL92"
    )


def test_46_of_an_unknown_expression_type_is_23():
    settings = BrokerSettings(enable_property_filter=True)

    assert check(settings, "REGEX", "a").code == 23


def test_46_of_invalid_sql_is_23():
    settings = BrokerSettings(enable_property_filter=True)

    assert check(settings, "SQL92", "a >").code == 23
