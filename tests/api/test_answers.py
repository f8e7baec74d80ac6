"""What each request makes of an answer, where an answer has more than one meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from rmqcli.api.call import make_call, nothing, of_broker
from rmqcli.api.calls import (
    acl,
    client,
    config,
    namesrv_config,
    offset,
    producer,
    stats,
    store,
)
from rmqcli.errors import BodyError, BrokerError
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.acl import UserWithPassword
from rmqcli.wire.command import RemotingCommand
from tests.kit.rows import each_row

if TYPE_CHECKING:
    from rmqcli.api.call import Call


def answer(code=0, *, remark=None, body=b"", **ext_fields):
    return RemotingCommand(code, remark=remark, ext_fields=ext_fields, body=body)


KEPT = namesrv_config.get_kv_config("n", "k")
LISTED = namesrv_config.get_kvlist_by_namespace("n")
COMMITTED = offset.query_consumer_offset("g", "t", 0)
COMMIT = offset.update_consumer_offset("g", "t", 0, commit_offset=5)
RESET = offset.invoke_broker_to_reset_offset("g", "t", timestamp_ms=1)
OLDEST = offset.get_earliest_msg_storetime("t", 0)
LOW = offset.get_min_offset("t", 0)
USER = acl.get_user_with_password("u")
PRODUCERS = producer.get_producer_connection_list("g")
BY_KEY = store.query_message("t", "k", begin_ms=0, end_ms=1)
LOCKS = client.lock_batch_mq("g", "c", [])
QUEUE_JSON = b'{"topic":"t","brokerName":"b","queueId":1}'


@each_row(
    ("call", "received", "value"),
    [
        (KEPT, answer(value="v"), "v"),
        (KEPT, answer(22), None),
        (LISTED, answer(body=b'{"table":{"k":"v"}}'), {"k": "v"}),
        (LISTED, answer(22), {}),
        (
            namesrv_config.get_namesrv_config(),
            answer(body=b"a=1\nb=2"),
            {"a": "1", "b": "2"},
        ),
        (namesrv_config.wipe_write_perm_of_broker("b"), answer(wipeTopicCount="3"), 3),
        (namesrv_config.add_write_perm_of_broker("b"), answer(addTopicCount="4"), 4),
        (COMMITTED, answer(offset="0"), 0),
        (COMMITTED, answer(offset="-1"), None),
        (COMMITTED, answer(22), None),
        (COMMIT, answer(), ""),
        (COMMIT, answer(remark="a reset is pending"), "a reset is pending"),
        (
            RESET,
            answer(body=b'{"offsetTable":{' + QUEUE_JSON + b":7}}"),
            {MessageQueue("t", "b", 1): 7},
        ),
        (RESET, answer(), {}),
        (OLDEST, answer(timestamp="1"), 1),
        (OLDEST, answer(timestamp="0"), None),
        (OLDEST, answer(timestamp="-1"), None),
        (LOW, answer(offset="5"), 5),
        (LOW, answer(offset="-1"), 0),
        (offset.get_max_offset("t", 0), answer(offset="9"), 9),
        (offset.search_offset_by_timestamp("t", 0, 1), answer(offset="8"), 8),
        (USER, answer(), None),
        (
            USER,
            answer(body=b'{"username":"u","password":"p"}'),
            UserWithPassword(username="u", password="p"),
        ),
        (acl.list_users(), answer(), []),
        (acl.list_acls(), answer(), []),
        (PRODUCERS, answer(1, remark="the group does not exist"), ()),
        (producer.recall_message("t", "h"), answer(msgId="AB"), "AB"),
        (BY_KEY, answer(body=b"m"), b"m"),
        (BY_KEY, answer(22, body=b"no message"), b""),
        (store.view_message_by_id(1, topic="t"), answer(body=b"m"), b"m"),
        (
            LOCKS,
            answer(body=b'{"lockOKMQSet":[' + QUEUE_JSON + b"]}"),
            {MessageQueue("t", "b", 1)},
        ),
        (
            stats.query_topic_consume_by_who("t"),
            answer(body=b'{"groupList":["b","a"]}'),
            ["a", "b"],
        ),
        (config.get_broker_config(), answer(body=b"a=1"), {"a": "1"}),
    ],
)
def test_an_answer_has_this_meaning(call, received, value):
    assert received.code in call.ok_codes
    assert call.parse(received) == value


@pytest.mark.parametrize("remark", ["the disk is full", None])
def test_a_broker_that_fails_is_not_one_without_producers(remark):
    with pytest.raises(BrokerError) as caught:
        PRODUCERS.parse(answer(1, remark=remark))
    error = caught.value
    assert (error.code, error.name, error.remark) == (1, "SYSTEM_ERROR", remark or "")


def test_a_list_that_is_none_is_refused():
    with pytest.raises(BodyError, match="UserInfo: the body is not a list"):
        acl.list_users().parse(answer(body=b"{}"))


def test_a_search_by_key_asks_for_no_more_than_brokers_return():
    numbers = {
        each: store.query_message("t", "k", begin_ms=0, end_ms=1, max_num=each)
        for each in (63, 64, 65)
    }
    assert {n: call.ext_fields["maxNum"] for n, call in numbers.items()} == {
        63: "63",
        64: "64",
        65: "64",
    }


def test_a_call_for_a_broker_differs_only_by_its_name():
    call: Call[Any] = make_call(
        7, nothing, what="test", body=b"b", also_ok=(22,), needs_version=9
    )
    named = of_broker(call, "broker-a")
    assert (call.ext_fields, named.ext_fields) == ({}, {"bname": "broker-a"})
    assert (named.code, named.parse, named.what) == (7, nothing, "test")
    assert (named.body, named.needs_version) == (b"b", 9)
    assert named.ok_codes == {0, 22}
