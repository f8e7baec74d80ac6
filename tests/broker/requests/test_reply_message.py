"""Request and reply: the requester gets the reply on its own connection."""

from __future__ import annotations

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.broker.settings import BrokerSettings
from rmqcli.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.command import RESPONSE_FLAG, RemotingCommand
from rmqcli.wire.headers.client import UnregisterClientRequestHeader
from rmqcli.wire.headers.send import SendMessageRequestHeader
from rmqcli.wire.message.properties import encode_properties
from tests.broker.driving import EPOCH_MS, Driver, need
from tests.broker.sending import like, send_header

REQUESTER = Peer(7, "127.0.0.1:40007")
REPLIER = Peer(8, "127.0.0.1:40008")
TOPIC = "DefaultCluster_REPLY_TOPIC"
PUSH = 326
PROPERTIES: dict[str, str | None] = {
    "MSG_TYPE": "reply",
    "CORRELATION_ID": "c-1",
    "REPLY_TO_CLIENT": "asker@1",
    "TTL": "3000",
}


def heartbeat(driver: Driver, peer: Peer, client_id: str, *groups: str) -> None:
    producers = tuple(ProducerData(group_name=group) for group in groups)
    data = HeartbeatData(client_id=client_id, producers=producers)
    code = RequestCode.HEART_BEAT
    assert need(driver.ask(code, body=encode_body(data), peer=peer)).code == 0


def with_requester(settings: BrokerSettings | None = None) -> Driver:
    driver = Driver(settings)
    heartbeat(driver, REQUESTER, "asker@1", "askers")
    return driver


def reply(driver: Driver, properties=PROPERTIES, *, topic=TOPIC):
    """Send a reply in the short form; return the answer, or None while it waits."""
    return driver.ask(
        RequestCode.SEND_REPLY_MESSAGE_V2,
        send_header(topic, properties, queue_id=0),
        body=b"pong",
        peer=REPLIER,
    )


def pushed(driver: Driver) -> RemotingCommand:
    (push,) = [c for c in driver.sent[REQUESTER.number] if c.code == PUSH]
    return push


def answer(driver: Driver, push: RemotingCommand, code: int = 0) -> RemotingCommand:
    """Answer the push with `code` as the requester; return the replier's answer."""
    driver.send(
        RemotingCommand(code, opaque=push.opaque, flag=RESPONSE_FLAG), peer=REQUESTER
    )
    return last_answer(driver)


def last_answer(driver: Driver) -> RemotingCommand:
    return driver.sent[REPLIER.number][-1]


@pytest.mark.parametrize("version", ["4.6.0", "4.9.7", "5.5.0"])
def test_a_reply_is_pushed_to_the_client_that_asked(version):
    driver = with_requester(like(version))
    assert reply(driver) is None

    push = pushed(driver)
    assert not push.is_oneway
    assert push.body == b"pong"
    fields = push.ext_fields
    assert {name: fields[name] for name in ("topic", "queueId", "producerGroup")} == {
        "topic": TOPIC,
        "queueId": "0",
        "producerGroup": "pg",
    }
    assert (fields["bornHost"], fields["storeHost"], fields["storeTimestamp"]) == (
        "127.0.0.1:40008",
        "127.0.0.1:10911",
        str(EPOCH_MS),
    )
    assert fields["properties"] == encode_properties(
        {**PROPERTIES, "PUSH_REPLY_TIME": str(EPOCH_MS)}
    )

    said = answer(driver, push)
    assert (said.code, said.remark) == (0, None)
    assert (said.ext_fields["queueId"], said.ext_fields["queueOffset"]) == ("0", "0")
    assert said.ext_fields["MSG_REGION"] == "DefaultRegion"
    (stored,) = driver.messages(TOPIC)
    assert stored.body == b"pong"
    assert stored.properties["CORRELATION_ID"] == "c-1"
    assert "PUSH_REPLY_TIME" not in stored.properties


def test_the_long_form_of_a_reply_is_taken_too():
    driver = with_requester()
    header = SendMessageRequestHeader(
        producer_group="pg",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=EPOCH_MS,
        flag=0,
        properties=encode_properties(PROPERTIES),
    )
    code = RequestCode.SEND_REPLY_MESSAGE
    assert driver.ask(code, header, body=b"pong", peer=REPLIER) is None
    assert answer(driver, pushed(driver)).code == 0


def test_a_requester_that_refuses_the_reply_fails_it():
    driver = with_requester()
    reply(driver)
    said = answer(driver, pushed(driver), code=1)
    assert (said.code, said.remark) == (1, "push reply message to asker@1fail.")


def test_a_silent_requester_fails_the_reply_after_ten_seconds():
    driver = with_requester()
    reply(driver)
    driver.wait(9_999)
    assert driver.sent[REPLIER.number] == []
    driver.wait(1)
    said = last_answer(driver)
    assert (said.code, said.remark) == (1, "push reply message to asker@1fail.")
    assert len(driver.messages(TOPIC)) == 1


def test_a_requester_that_disconnects_during_the_push_fails_the_reply():
    driver = with_requester()
    reply(driver)
    driver.disconnect(REQUESTER)
    assert last_answer(driver).remark == "push reply message to asker@1fail."


def leave(driver: Driver, *groups: str) -> None:
    for group in groups:
        header = UnregisterClientRequestHeader(
            client_id="asker@1", producer_group=group
        )
        driver.ask(RequestCode.UNREGISTER_CLIENT, header, peer=REQUESTER)


@pytest.mark.parametrize(
    "go",
    [
        lambda driver: driver.disconnect(REQUESTER),
        lambda driver: leave(driver, "askers"),
        lambda driver: driver.wait(130_000),
    ],
    ids=["disconnected", "unregistered", "silent"],
)
def test_a_reply_to_a_client_that_is_gone_fails_at_once(go):
    driver = with_requester()
    go(driver)
    said = need(reply(driver))
    assert said.code == 1
    assert said.remark == "push reply message fail, channel of <asker@1> not found."
    assert [each.body for each in driver.messages(TOPIC)] == [b"pong"]


def test_a_client_that_leaves_one_of_its_groups_still_gets_replies():
    driver = Driver()
    heartbeat(driver, REQUESTER, "asker@1", "askers", "others")
    leave(driver, "others")
    assert reply(driver) is None
    leave(driver, "askers")
    assert need(reply(driver)).code == 1


def test_the_newest_connection_of_a_client_gets_the_reply():
    driver = Driver()
    old = Peer(6, "127.0.0.1:40006")
    heartbeat(driver, old, "asker@1", "askers")
    heartbeat(driver, REQUESTER, "asker@1", "askers")
    driver.disconnect(old)
    assert reply(driver) is None
    assert pushed(driver).body == b"pong"


def test_a_message_that_names_no_client_cannot_be_a_reply():
    said = need(reply(with_requester(), {"CORRELATION_ID": "c-1"}))
    assert (said.code, said.remark) == (
        1,
        "push reply message fail, REPLY_TO_CLIENT is null, can not reply message",
    )


def test_a_reply_to_an_unknown_topic_is_refused_like_a_send():
    driver = with_requester(BrokerSettings(auto_create_topic_enable=False))
    said = need(reply(driver, topic="Other_REPLY_TOPIC"))
    assert said.code == 17
    assert said.ext_fields["MSG_REGION"] == "DefaultRegion"


def test_a_reply_can_be_pushed_without_being_stored():
    driver = with_requester(BrokerSettings(store_reply_message_enable=False))
    reply(driver)
    said = answer(driver, pushed(driver))
    assert (said.code, said.ext_fields["msgId"]) == (0, "0")
    assert driver.messages(TOPIC) == []
