"""Bodies of a hostile peer give only a BodyError or a value of bounded size."""

from __future__ import annotations

import dataclasses
import json
import tracemalloc
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqcli.errors import BodyError, StaticTopicError
from rmqcli.model import TOPIC_QUEUES_MAX, MessageQueue, QueueData
from rmqcli.wire.bodies.config import (
    KVTable,
    SubscriptionGroupConfig,
    TopicConfig,
    parse_properties_text,
)
from rmqcli.wire.bodies.consumer import (
    ConsumerConnection,
    ConsumerRunningInfo,
    GetConsumerListByGroupResponseBody,
)
from rmqcli.wire.bodies.heartbeat import HeartbeatData, LockBatchRequestBody
from rmqcli.wire.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    GetConsumerStatusBody,
    GroupListBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from rmqcli.wire.bodies.route import (
    TopicListBody,
    parse_cluster_info,
    parse_topic_route,
)
from rmqcli.wire.bodies.stats import (
    ConsumeStats,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from rmqcli.wire.body import decode_body, encode_body
from tests.golden_vectors import load
from tests.kit.rows import each_row

QUEUE = '{"brokerName":"b","queueId":0,"topic":"T"}'


def route(queues: str, brokers: str = "[]"):
    body = '{"queueDatas":%s,"brokerDatas":%s}' % (queues, brokers)  # noqa: UP031
    return parse_topic_route("T", body.encode())


def queue_data(name: str, *, read: object = 4, write: object = 4, perm: object = 6):
    return (
        f'{{"brokerName":"{name}","perm":{perm},"readQueueNums":{read},'
        f'"writeQueueNums":{write}}}'
    )


def test_a_route_of_no_and_of_most_queues():
    """A broker may have 0 to 65535 queues."""
    data = route(f"[{queue_data('a', read=0, write=0)},{queue_data('b', read=65535)}]")

    assert [(q.read_queue_nums, q.write_queue_nums) for q in data.queues] == [
        (0, 0),
        (65535, 4),
    ]
    assert len(data.read_queues()) == 65535


@each_row("count", [-1, -(2**31), 65536, 2**31 - 1, 2**63, 1.5, '"x"', "{}", "true"])
@each_row("which", ["read", "write"])
def test_absurd_queue_counts_are_refused(which, count):
    """They are refused before any memory of that size is allocated."""
    item = queue_data("a", **{which: count})
    with pytest.raises(BodyError, match="QueueNums"):
        route(f"[{item}]")


def test_a_route_of_absurdly_many_queues_is_refused():
    """A body of 10 MB could list brokers with 65535 queues each: a billion queues."""
    tracemalloc.start()
    try:
        items = ",".join(queue_data(f"b{i}", read=65535) for i in range(1000))
        with pytest.raises(BodyError, match=str(TOPIC_QUEUES_MAX)):
            route(f"[{items}]")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def broker_data(number: int, addresses: int = 1) -> str:
    table = ",".join(f'"{i}":"h:{i + 1}"' for i in range(addresses))
    return f'{{"brokerName":"b{number}","brokerAddrs":{{{table}}}}}'


def test_a_route_of_more_brokers_than_may_be_is_refused():
    """A consumer connects to each broker, so at most 1,024 are accepted."""
    brokers = [broker_data(number) for number in range(1025)]
    assert len(route("[]", f"[{','.join(brokers[:1024])}]").brokers) == 1024
    with pytest.raises(BodyError, match=r"^route with 1025 brokers, more than 1024"):
        route("[]", f"[{','.join(brokers)}]")


def test_a_route_of_more_addresses_than_may_be_is_refused():
    brokers = broker_data(1, 2048), broker_data(2, 2048), broker_data(3, 1)
    assert len(route("[]", f"[{','.join(brokers[:2])}]").brokers) == 2
    with pytest.raises(BodyError, match="4097 addresses of brokers, more than 4096"):
        route("[]", f"[{','.join(brokers)}]")


def test_a_cluster_of_more_brokers_or_addresses_than_may_be_is_refused():
    def cluster(brokers: int, addresses: int):
        table = ",".join(
            f'"b{number}":{broker_data(number, addresses)}' for number in range(brokers)
        )
        return parse_cluster_info(f'{{"brokerAddrTable":{{{table}}}}}'.encode())

    assert len(cluster(4096, 4).brokers) == 4096
    with pytest.raises(
        BodyError, match=r"^cluster info with 4097 brokers, more than 4096"
    ):
        cluster(4097, 1)
    with pytest.raises(BodyError, match="16388 addresses of brokers, more than 16384"):
        cluster(4, 4097)


@pytest.mark.parametrize("value", ['"x"', "[]", "2.5", "99999999999999999999"])
def test_perm_must_be_a_number(value):
    with pytest.raises(BodyError, match="perm"):
        route(f"[{queue_data('a', perm=value)}]")


def test_a_broker_named_twice_has_its_queues_once():
    """Java's consumers keep queues in a set, so they see the larger of the counts."""
    first, again = queue_data("a", write=1), queue_data("a", read=2, write=8, perm=4)
    data = route(
        f"[{first},{again}]",
        '[{"brokerName":"a","cluster":"c","brokerAddrs":{0:"one:1",1:"two:1"}},'
        '{"brokerName":"a","cluster":"c","brokerAddrs":{0:"other:1",2:"three:1"}}]',
    )

    assert data.queues == (
        QueueData(broker_name="a", read_queue_nums=4, write_queue_nums=8, perm=6),
    )
    assert data.read_queues() == [MessageQueue("T", "a", i) for i in range(4)]
    (broker,) = data.brokers
    assert broker.addresses == {0: "one:1", 1: "two:1", 2: "three:1"}


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":10911",
        "host",
        "host:0",
        "host:65536",
        "host:-1",
        "[::1]:10911",
        "a\x1b[2J",
    ],
)
def test_addresses_are_kept_as_they_were_said(address):
    """Addresses are checked, and named in errors, only when a client connects."""
    data = route("[]", f'[{{"brokerName":"a","brokerAddrs":{{0:"{address}"}}}}]')

    assert data.brokers[0].master_address == address


@pytest.mark.parametrize(
    ("queues", "brokers"),
    [
        ("5", "[]"),
        ("[5]", "[]"),
        ("[[]]", "[]"),
        ("[{}]", "[]"),
        ("[]", "[{}]"),
        ("[]", '[{"brokerName":"a","brokerAddrs":[]}]'),
        ("[]", '[{"brokerName":"a","brokerAddrs":{"x":"h:1"}}]'),
        ("[]", '[{"brokerName":"a","brokerAddrs":{0:{}}}]'),
        ("[]", '[{"brokerName":{},"brokerAddrs":{}}]'),
    ],
)
def test_routes_of_another_shape_are_refused(queues, brokers):
    with pytest.raises(BodyError):
        route(queues, brokers)


def test_the_route_of_a_static_topic_is_refused():
    """Its queues would be read by numbers that its brokers do not serve."""
    body = (
        b'{"queueDatas":[{"brokerName":"a","readQueueNums":1,"writeQueueNums":1,'
        b'"perm":6}],"topicQueueMappingByBroker":{"a":{"bname":"a","totalQueues":2,'
        b'"currIdMap":{1:0},"scope":"__global__","topic":"T"}}}'
    )
    with pytest.raises(StaticTopicError, match="topic T is a static topic"):
        parse_topic_route("T", body)


def test_nulls_in_a_route_are_absent():
    """Java mostly leaves out fields that are null, but may also write null."""
    data = parse_topic_route(
        "T",
        b'{"queueDatas":null,"brokerDatas":[null,{"brokerName":"a","cluster":null,'
        b'"brokerAddrs":{0:null}}],"orderTopicConf":null,'
        b'"topicQueueMappingByBroker":null}',
    )

    assert data.queues == ()
    assert data.brokers[0].addresses == {}
    assert data.order_topic_conf is None


@pytest.mark.parametrize(
    "value",
    [
        '{"brokerOffset":1}',
        '{"brokerOffset":1,"consumerOffset":null}',
        '{"brokerOffset":1,"consumerOffset":"x"}',
        '{"brokerOffset":1,"consumerOffset":1e999}',
        '{"brokerOffset":1,"consumerOffset":99999999999999999999}',
        '{"$ref":"$.offsetTable"}',
        "5",
    ],
)
def test_offsets_that_are_not_there_are_never_zero(value):
    """An offset that was not sent must not be shown as lag."""
    body = f'{{"offsetTable":{{{QUEUE}:{value}}}}}'
    with pytest.raises(BodyError):
        decode_body(ConsumeStats, body.encode())


@pytest.mark.parametrize(
    "key",
    [
        '"T"',
        "5",
        '"{"',
        '"{}"',
        '{"topic":"T"}',
        '{"topic":"T","brokerName":null}',
        '{"topic":{},"brokerName":"b"}',
        '{"topic":"T","brokerName":"b","queueId":"x"}',
    ],
)
def test_a_table_by_queue_has_queues_as_keys(key):
    with pytest.raises(BodyError):
        decode_body(ResetOffsetBody, f'{{"offsetTable":{{{key}:5}}}}')


def test_queue_keys_may_be_quoted():
    """4.9.7 and 5.3.3 accept quoted keys, too."""
    body = json.dumps({"offsetTable": {QUEUE: 5}})

    assert decode_body(ResetOffsetBody, body.encode()).offset_table == {
        MessageQueue("T", "b", 0): 5
    }


def test_resets_are_written_in_both_forms():
    """Brokers send the list to clients whose language is C++."""
    offsets = {MessageQueue("T", "b", 0): 5}

    assert encode_body(ResetOffsetBody(offset_table=offsets)) == (
        b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'
    )
    entry = MessageQueueForC(topic="T", broker_name="b", queue_id=0, offset=5)
    assert encode_body(ResetOffsetBodyForC(offset_table=[entry])) == (
        b'{"offsetTable":[{"brokerName":"b","offset":5,"queueId":0,"topic":"T"}]}'
    )


def test_a_changed_group_keeps_what_we_do_not_know():
    """Request 200 replaces the whole object, so a dropped field would be reset."""
    body = (
        b'{"groupName":"g","retryMaxTimes":3,"groupRetryPolicy":{"type":"X"},"new":[1]}'
    )
    config = dataclasses.replace(
        decode_body(SubscriptionGroupConfig, body), retry_max_times=9
    )

    assert encode_body(config) == (
        b'{"groupName":"g","retryMaxTimes":9,"groupRetryPolicy":{"type":"X"},"new":[1]}'
    )
    assert encode_body(
        SubscriptionGroupConfig(group_name="g", consume_enable=False)
    ) == (b'{"consumeEnable":false,"groupName":"g"}')


def test_properties_text():
    """Nothing is escaped: values may contain `=` and may extend over several lines."""
    text = b"a=1\nb=x=y\r\n\nignored first?\nc=\n  \n\xff=\xff\n"

    assert parse_properties_text(text) == {
        "a": "1",
        "b": "x=y\nignored first?",
        "c": "",
        "\ufffd": "\ufffd",
    }


PARSERS = [
    lambda body: parse_topic_route("T", body),
    parse_cluster_info,
    partial(decode_body, TopicListBody),
    partial(decode_body, TopicStatsTable),
    partial(decode_body, ConsumeStats),
    partial(decode_body, QueryConsumeTimeSpanBody),
    partial(decode_body, GetConsumerListByGroupResponseBody),
    partial(decode_body, ConsumerConnection),
    partial(decode_body, ConsumerRunningInfo),
    partial(decode_body, HeartbeatData),
    partial(decode_body, LockBatchRequestBody),
    partial(decode_body, ConsumerOffsetSerializeWrapper),
    partial(decode_body, ResetOffsetBody),
    partial(decode_body, GetConsumerStatusBody),
    partial(decode_body, GroupListBody),
    partial(decode_body, KVTable),
    partial(decode_body, TopicConfig),
    partial(decode_body, SubscriptionGroupConfig),
]


@each_row("parse", PARSERS)
@each_row("body", [b"", b"null", b"[]", b"5", b'"x"', b"{", b"\xff\xfe", b"<html>"])
def test_what_is_no_object_is_a_body_error(parse, body):
    with pytest.raises(BodyError) as caught:
        parse(body)
    assert len(caught.value.message) < 300


#: Bodies of every class, to be damaged and to be read as another class.
TEXTS = [case["text"] for case in load("bodies") if len(case["text"]) < 3000]


@given(st.sampled_from(PARSERS), st.sampled_from(TEXTS), st.data())
def test_damaged_bodies_raise_only_body_error(parse, text, data):
    """The bodies are those of another class, or have one value of another type."""
    pieces = text.split(":")
    at = data.draw(st.integers(0, len(pieces) - 1))
    pieces[at] = data.draw(
        st.sampled_from(["", "null", "{}", "[]", '"x"', "-1", "1e9", "[{}]", "9" * 30])
    )
    for body in (text, ":".join(pieces)):
        try:
            parse(body.encode())
        except BodyError:
            continue
