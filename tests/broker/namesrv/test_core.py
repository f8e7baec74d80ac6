"""The name server: routes as real ones answer them, and when it forgets a broker."""

from __future__ import annotations

import json
import struct
import zlib

import pytest

from rmqcli.broker.effects import Close, Peer, Send
from rmqcli.broker.namesrv import routes, state
from rmqcli.broker.namesrv.core import NameServer
from rmqcli.broker.namesrv.handlers import NAMESRV_REQUESTS
from rmqcli.broker.profiles import PROFILES
from rmqcli.clock import Now
from rmqcli.wire.bodies.config import KVTable
from rmqcli.wire.bodies.route import TopicListBody, parse_topic_route
from rmqcli.wire.body import decode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.command import ONEWAY_FLAG, RemotingCommand, decode_command
from rmqcli.wire.frame import FrameBuffer
from tests.golden_vectors import from_base64, load

EPOCH_MS = 1_700_000_000_000
BROKER = Peer(1, "127.0.0.1:50001")
CLIENT = Peer(2, "127.0.0.1:50002")
PORTS = {"4.6.0": 13535, "5.5.0": 15535}


class Driven:
    """A name server and its time."""

    def __init__(self, like="5.5.0"):
        self.now = Now(0, EPOCH_MS)
        self.server = NameServer(
            self.now, requests=NAMESRV_REQUESTS, profile=PROFILES[like]
        )

    def ask(self, code, fields=None, *, body=b"", peer=CLIENT, version=513, opaque=7):
        command = RemotingCommand(
            code=int(code),
            opaque=opaque,
            version=version,
            ext_fields=fields or {},
            body=body,
        )
        (effect,) = self.server.handle(peer, command, self.now)
        assert isinstance(effect, Send)
        assert effect.peer == peer
        assert effect.command.opaque == opaque
        return effect.command

    def wait(self, interval_ms):
        """Let time pass; return the effects of that time."""
        end_ms = self.now.monotonic_ms + interval_ms
        effects = []
        while (due_ms := self.server.next_due_ms()) is not None and due_ms <= end_ms:
            self.now = Now(due_ms, EPOCH_MS + due_ms)
            effects += self.server.run_due(self.now)
        self.now = Now(end_ms, EPOCH_MS + end_ms)
        return effects

    def register(self, topics, *, peer=BROKER, counter=1, **fields):
        body = json.dumps(
            {
                "topicConfigSerializeWrapper": {
                    "dataVersion": {"counter": counter, "timestamp": 5},
                    "topicConfigTable": {
                        name: {
                            "topicName": name,
                            "readQueueNums": nums,
                            "writeQueueNums": nums,
                            "perm": 6,
                        }
                        for name, nums in topics.items()
                    },
                },
                "filterServerList": [],
            }
        ).encode()
        return self.ask(103, broker(**fields), body=body, peer=peer)

    def route(self, topic):
        answer = self.ask(105, {"topic": topic})
        return None if answer.code == 17 else parse_topic_route(topic, answer.body)

    def topics(self):
        return decode_body(TopicListBody, self.ask(206).body).topic_list


def broker(
    name="broker-a", *, broker_id=0, address="127.0.0.1:10911", cluster="C", **fields
):
    return {
        "brokerName": name,
        "brokerAddr": address,
        "clusterName": cluster,
        "haServerAddr": address.replace("10911", "10912"),
        "brokerId": str(broker_id),
        **fields,
    }


def decode(data):
    (frame,) = FrameBuffer().feed(from_base64(data))
    return decode_command(frame)


def golden_cases():
    """What real name servers answered. The state is that of the golden broker."""
    for version in PORTS:
        for case in load(f"answers/answers-{version}"):
            if case["response_b64"] is None:
                continue
            request = decode(case["request_b64"])
            if request.code in (105, 106):
                yield pytest.param(version, case, id=f"{version} {case['name']}")


@pytest.mark.parametrize(("version", "case"), list(golden_cases()))
def test_answers_are_those_of_a_real_name_server(version, case):
    """The body is the same byte for byte, and so is the remark."""
    driven = Driven(version)
    address = f"127.0.0.1:{PORTS[version]}"
    driven.register({"GoldA": 3}, address=address, cluster="DefaultCluster")
    request, expected = decode(case["request_b64"]), decode(case["response_b64"])

    (effect,) = driven.server.handle(CLIENT, request, driven.now)

    assert isinstance(effect, Send)
    answer = effect.command
    assert (answer.code, answer.remark) == (expected.code, expected.remark)
    assert answer.version == expected.version
    assert answer.body == bytes(expected.body)


@pytest.mark.parametrize(
    ("like", "version", "fields", "is_strict"),
    [
        ("5.5.0", 399, {}, False),
        ("5.5.0", 401, {}, True),
        ("5.5.0", 399, {"acceptStandardJsonOnly": "true"}, True),
        ("4.9.7", 401, {}, True),
        ("4.6.0", 513, {"acceptStandardJsonOnly": "true"}, False),
    ],
)
def test_broker_ids_are_quoted_for_clients_that_can_read_it(
    like, version, fields, is_strict
):
    driven = Driven(like)
    driven.register({"t": 4, "u": 4})

    answer = driven.ask(105, {"topic": "t", **fields}, version=version)

    start = b'{"brokerDatas":[{"brokerAddrs":{'
    key = b'"0":' if is_strict else b"0:"
    assert answer.body.startswith(start + key + b'"127.0.0.1:10911"}')


def test_a_registration_makes_routes():
    driven = Driven()

    answer = driven.register({"t": 4, "u": 8})

    assert (answer.code, answer.ext_fields) == (0, {})
    route = driven.route("t")
    assert route.brokers[0].addresses == {0: "127.0.0.1:10911"}
    assert (route.queues[0].read_queue_nums, route.queues[0].perm) == (4, 6)
    assert driven.topics() == ["t", "u"]


def test_two_brokers_share_a_topic():
    driven = Driven()
    driven.register({"t": 4, "u": 1})
    driven.register({"t": 2, "v": 1}, name="broker-b", address="127.0.0.1:10921")

    assert [(q.broker_name, q.read_queue_nums) for q in driven.route("t").queues] == [
        ("broker-a", 4),
        ("broker-b", 2),
    ]


def test_topics_are_taken_when_the_data_version_differs():
    driven = Driven()
    driven.register({"t": 4, "u": 4})
    driven.register({"t": 8, "u": 4})
    assert driven.route("t").queues[0].read_queue_nums == 4

    driven.register({"t": 8, "u": 4}, counter=2)

    assert driven.route("t").queues[0].read_queue_nums == 8


def test_a_registration_never_removes_a_topic_216_does():
    driven = Driven()
    driven.register({"t": 4, "u": 4})
    driven.register({"u": 4}, counter=2)
    assert driven.topics() == ["t", "u"]

    assert driven.ask(216, {"topic": "t"}).code == 0

    assert driven.topics() == ["u"]
    assert driven.route("t") is None


def test_216_in_one_cluster_leaves_the_others():
    driven = Driven()
    driven.register({"t": 4, "u": 4})
    driven.register({"t": 4}, name="b", address="127.0.0.1:10921", cluster="D")

    driven.ask(216, {"topic": "t", "clusterName": "D"})

    assert [q.broker_name for q in driven.route("t").queues] == ["broker-a"]


def test_a_slave_registers_its_address_and_learns_its_master():
    driven = Driven()
    driven.register({"t": 4, "u": 4})

    answer = driven.register(
        {"t": 9, "w": 9}, broker_id=1, address="127.0.0.1:10931", peer=CLIENT
    )

    assert answer.ext_fields == {
        "masterAddr": "127.0.0.1:10911",
        "haServerAddr": "127.0.0.1:10912",
    }
    assert driven.route("t").brokers[0].addresses == {
        0: "127.0.0.1:10911",
        1: "127.0.0.1:10931",
    }
    assert driven.topics() == ["t", "u"]


def test_topics_stay_until_the_last_address_is_gone():
    driven = Driven()
    driven.register({"t": 4, "u": 4})
    driven.register({}, broker_id=1, address="127.0.0.1:10931", peer=CLIENT)

    driven.server.closed(BROKER, driven.now)
    assert driven.route("t").brokers[0].addresses == {1: "127.0.0.1:10931"}
    driven.server.closed(CLIENT, driven.now)

    assert driven.topics() == []
    assert driven.ask(106).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_a_slave_that_becomes_master_has_one_id():
    driven = Driven()
    driven.register({"t": 4, "u": 4}, broker_id=1)

    driven.register({"t": 4, "u": 4}, broker_id=0)

    assert driven.route("t").brokers[0].addresses == {0: "127.0.0.1:10911"}


def test_104_forgets_only_the_broker_at_that_address():
    driven = Driven()
    driven.register({"t": 4, "u": 4})

    driven.ask(104, broker(address="127.0.0.1:9"))
    assert driven.topics() == ["t", "u"]
    driven.ask(104, broker())

    assert driven.topics() == []


@pytest.mark.parametrize("code", [103, 322, 904])
def test_a_broker_silent_for_120_s_is_forgotten(code):
    driven = Driven()
    version = b'{"counter":1,"timestamp":5}'
    driven.register({"t": 4, "u": 4})
    driven.wait(100_000)
    if code == 103:
        driven.register({"t": 4, "u": 4})
    else:
        assert driven.ask(code, broker(), body=version, peer=BROKER).code == 0

    assert driven.wait(120_000) == []
    assert driven.wait(5_000) == [Close(BROKER)]

    assert driven.topics() == []


def test_a_broker_can_choose_its_time_out():
    driven = Driven()
    driven.register({"t": 4, "u": 4}, heartbeatTimeoutMillis="9000")

    assert driven.wait(10_000) == [Close(BROKER)]


def test_322_answers_whether_topics_changed():
    driven = Driven()
    version = b'{"counter":1,"timestamp":5}'
    assert driven.ask(322, broker(), body=version).ext_fields == {"changed": "true"}
    driven.register({"t": 4, "u": 4})

    same = driven.ask(322, broker(), body=version)
    newer = driven.ask(322, broker(), body=b'{"counter":2,"timestamp":5}')

    assert same.ext_fields == {"changed": "false"}
    assert same.body == b'{"counter":1,"stateVersion":0,"timestamp":5}'
    assert newer.ext_fields == {"changed": "true"}


def text(data):
    return struct.pack(">i", len(data)) + data


def compressed(*topics, more=0):
    version = text(b'{"counter":1,"timestamp":5}')
    rest = b"".join(map(text, topics)) + text(b"[]")
    whole = version + struct.pack(">i", len(topics)) + rest
    return zlib.compress(whole + bytes(more))


def test_a_compressed_registration():
    driven = Driven()
    body = compressed(b"t 4 3 6 SINGLE_TAG", b'u 1 1 2 SINGLE_TAG {"a":"b"}')
    crc = str(zlib.crc32(body) & 0x7FFFFFFF)

    answer = driven.ask(
        103, broker(compressed="true", bodyCrc32=crc), body=body, peer=BROKER
    )

    assert answer.code == 0
    queue = driven.route("t").queues[0]
    assert (queue.read_queue_nums, queue.write_queue_nums, queue.perm) == (4, 3, 6)
    assert driven.topics() == ["t", "u"]


def test_a_compressed_registration_may_end_with_the_number_of_its_topics():
    driven = Driven()
    body = zlib.compress(text(b'{"counter":1,"timestamp":5}') + struct.pack(">i", 0))

    assert driven.ask(103, broker(compressed="true"), body=body).code == 0

    assert b"broker-a" in driven.ask(106).body


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({}, b"{"),
        ({}, b"[]"),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":1}}}'),
        ({"bodyCrc32": "1"}, b"{}"),
        ({"compressed": "true"}, b"no zlib"),
        ({"compressed": "true"}, zlib.compress(b"\0\0")),
        ({"compressed": "true"}, zlib.compress(b"\x7f\0\0\0{}")),
        ({"compressed": "true"}, compressed(b"t")),
        ({"compressed": "true"}, compressed(b"t 1 -1 6 SINGLE_TAG")),
        ({"compressed": "true"}, compressed(b"t 4 3 6 SINGLE_TAG", more=40 << 20)),
    ],
)
def test_a_registration_that_cannot_be_read_is_1_and_changes_nothing(fields, body):
    driven = Driven()

    assert driven.ask(103, broker(**fields), body=body).code == 1

    assert driven.ask(106).body == b'{"brokerAddrTable":{},"clusterAddrTable":{}}'


def test_a_header_without_a_topic_is_1():
    assert Driven().ask(105).code == 1


def test_lists_of_topics():
    driven = Driven()
    driven.register({"t": 4, "u": 4})
    driven.register({"v": 4}, name="b", address="127.0.0.1:10921", cluster="D")

    assert decode_body(
        TopicListBody, driven.ask(224, {"cluster": "D"}).body
    ).topic_list == ["v"]
    assert (
        decode_body(TopicListBody, driven.ask(224, {"cluster": "X"}).body).topic_list
        == []
    )
    assert driven.ask(304).body == (
        b'{"brokerAddr":"127.0.0.1:10911","topicList":["C","broker-a","D","b"]}'
    )


def test_217_adds_a_topic_on_brokers_that_are_known():
    driven = Driven()
    driven.register({"t": 4, "u": 4})
    body = (
        b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":2,'
        b'"writeQueueNums":2,"perm":6},{"brokerName":"x","readQueueNums":2,'
        b'"writeQueueNums":2,"perm":6}]}'
    )

    assert driven.ask(217, {"topic": "new"}, body=body).code == 0

    assert [q.broker_name for q in driven.route("new").queues] == ["broker-a"]


def test_205_and_327_change_the_permission_to_write():
    driven = Driven()
    driven.register({"t": 4, "u": 4})

    wiped = driven.ask(205, {"brokerName": "broker-a"})
    assert wiped.ext_fields == {"wipeTopicCount": "2"}
    assert driven.route("t").queues[0].perm == 4
    added = driven.ask(327, {"brokerName": "broker-a"})

    assert added.ext_fields == {"addTopicCount": "2"}
    assert driven.route("t").queues[0].perm == 6


def test_the_key_value_table():
    driven = Driven()
    place = {"namespace": "N", "key": "k"}
    absent = driven.ask(101, place)
    assert absent.code == 22
    assert absent.remark == "No config item, Namespace: N Key: k"
    empty = driven.ask(219, {"namespace": "N"})
    assert (empty.code, empty.remark) == (22, "No config item, Namespace: N")

    driven.ask(100, {**place, "value": "v"})

    assert driven.ask(101, place).ext_fields == {"value": "v"}
    listed = driven.ask(219, {"namespace": "N"}).body
    assert decode_body(KVTable, listed).table == {"k": "v"}
    driven.ask(102, place)
    assert driven.ask(101, place).code == 22


def test_an_entry_of_the_key_value_table_has_at_most_65536_characters():
    driven = Driven()
    longest = {"namespace": "N", "key": "k", "value": "v" * 65_534}

    assert driven.ask(100, longest).code == 0
    answer = driven.ask(100, {**longest, "value": "w" * 65_535})

    assert (answer.code, answer.remark) == (
        1,
        "config item has more than 65536 characters",
    )
    assert driven.ask(101, longest).ext_fields == {"value": "v" * 65_534}


def test_the_key_value_table_has_a_limited_number_of_entries(monkeypatch):
    """A new value of a known key needs no room, and a deleted entry makes some."""
    monkeypatch.setattr(state, "ENTRIES_MAX", 2)
    driven = Driven()

    def put(namespace, key):
        fields = {"namespace": namespace, "key": key, "value": "v"}
        return driven.ask(100, fields).code

    assert [put("N", "a"), put("M", "a"), put("N", "b"), put("N", "a")] == [0, 0, 1, 0]
    driven.ask(102, {"namespace": "N", "key": "a"})
    assert [put("N", "b"), put("N", "c")] == [0, 1]


def test_a_name_server_knows_at_most_1000_brokers():
    driven = Driven()
    addresses = [f"10.0.{number // 250}.{number % 250}:1" for number in range(1_001)]
    *first, last = [
        driven.register({}, name=f"b{number}", address=address).code
        for number, address in enumerate(addresses)
    ]

    assert (set(first), last) == ({0}, 1)
    assert driven.register({}, name="b0", address=addresses[0], counter=2).code == 0
    driven.ask(104, broker("b0", address=addresses[0]))
    assert driven.register({}, name="b1000", address=addresses[-1]).code == 0


def test_a_name_server_knows_a_limited_number_of_topics(monkeypatch):
    monkeypatch.setattr(routes, "TOPICS_MAX", 3)
    driven = Driven()
    queues = (
        b'{"queueDatas":[{"brokerName":"broker-a","readQueueNums":2,'
        b'"writeQueueNums":2,"perm":6}]}'
    )

    assert driven.register({"t": 4, "u": 4}).code == 0
    assert driven.register({"v": 4, "w": 4}, counter=2).code == 1
    assert driven.ask(217, {"topic": "v"}, body=queues).code == 0
    assert driven.ask(217, {"topic": "w"}, body=queues).code == 1
    assert driven.ask(217, {"topic": "t"}, body=queues).code == 0
    assert driven.register({"t": 4, "v": 4}, counter=3).code == 0
    assert driven.topics() == ["t", "u", "v"]


def test_the_settings_of_a_request_have_at_most_262144_bytes():
    driven = Driven()

    assert driven.ask(318, body=b"#".ljust(262_144, b"x")).code == 0
    answer = driven.ask(318, body=b"#".ljust(262_145, b"x"))

    assert (answer.code, answer.remark) == (
        1,
        "the configuration has 262145 bytes; the maximum is 262144",
    )


def test_319_settings():
    assert b"orderMessageEnable=false\n" in Driven().ask(319).body


def test_an_unknown_code_is_3():
    answer = Driven().ask(9_999)

    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")


def test_a_one_way_request_gets_no_answer():
    driven = Driven()
    command = RemotingCommand(
        code=RequestCode.GET_BROKER_CLUSTER_INFO, opaque=1, flag=ONEWAY_FLAG
    )

    assert driven.server.handle(CLIENT, command, driven.now) == []
