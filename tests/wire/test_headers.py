"""Header classes hold and send the same fields as Java's classes of the same name."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil

import pytest

from rmqcli.errors import HeaderError
from rmqcli.wire import headers
from rmqcli.wire.command import RemotingCommand, decode_command, encode_command
from rmqcli.wire.fields import declared, wire_name
from rmqcli.wire.frame import FrameBuffer, SerializeType
from rmqcli.wire.header import BoundaryType, Header, from_ext_fields, to_ext_fields
from rmqcli.wire.headers.offset import (
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from rmqcli.wire.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from tests.golden_vectors import from_base64, load
from tests.kit.rows import each_row

#: Fields that 5.x adds for namespaces, static and lite topics, and that rmqcli ignores
#: in the classes that do not have them.
NOT_OURS = {"bname", "lo", "ns", "nsd", "oway", "liteTopic"}


def header_classes() -> dict[str, type[Header]]:
    classes: dict[str, type[Header]] = {}
    for module in pkgutil.iter_modules(headers.__path__, f"{headers.__name__}."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, type) and dataclasses.is_dataclass(value):
                assert name not in classes
                classes[name] = value  # type: ignore[assignment]
    return classes


CLASSES = header_classes()
GOLDEN = [
    case
    for case in load("frames")
    if case.get("header_class") in CLASSES and "error" not in case["expected_header"]
]


def typed(header: Header) -> dict[str, object]:
    """Return the header's fields by their wire names, without fields that are None."""
    fields: dict[str, object] = {}
    for item in dataclasses.fields(header):
        value = getattr(header, item.name)
        name = wire_name(item)
        if value is not None:
            fields[name] = value.value if isinstance(value, BoundaryType) else value
    return fields


@each_row("name", sorted(CLASSES))
def test_header_reads_as_in_java_and_goes_back(name):
    """The values equal Java's, and are written as the same text in both formats."""
    cases = [case for case in GOLDEN if case["header_class"] == name]
    ignored = NOT_OURS - set(map(wire_name, dataclasses.fields(CLASSES[name])))
    if not cases:
        assert name in NO_VECTORS
    for case in cases:
        (frame,) = FrameBuffer().feed(from_base64(case["bytes_b64"]))
        ext_fields = decode_command(frame).ext_fields
        header = from_ext_fields(CLASSES[name], ext_fields)
        expected = {
            k: v
            for k, v in case["expected_header"].items()
            if k not in ignored and (v != "" or frame.serialize_type == 0)
        }
        assert subset(typed(header), expected) == expected, case["name"]

        sent = to_ext_fields(header)
        assert {k: v for k, v in ext_fields.items() if k not in ignored} == {
            k: v for k, v in sent.items() if k in ext_fields
        }
        for serialize_type in SerializeType:
            command = RemotingCommand(1, ext_fields=sent)
            (again,) = FrameBuffer().feed(encode_command(command, serialize_type))
            read = from_ext_fields(CLASSES[name], decode_command(again).ext_fields)
            assert read == header


#: A class that Java could not fill by reflection, which the conversations have, and two
#: of lite topics, which a table of cases compares with a real proxy. Those of users and
#: rules are tried on a real broker.
NO_VECTORS = {
    "CreateAclRequestHeader",
    "CreateUserRequestHeader",
    "DeleteAclRequestHeader",
    "DeleteUserRequestHeader",
    "GetAclRequestHeader",
    "GetUserRequestHeader",
    "ListAclsRequestHeader",
    "ListUsersRequestHeader",
    "UpdateAclRequestHeader",
    "UpdateUserRequestHeader",
    "CreateTopicRequestHeader",
    "NotifyUnsubscribeLiteRequestHeader",
    "PopLiteMessageRequestHeader",
}


REQUESTS = {
    11: "PullMessageRequestHeader",
    12: "QueryMessageRequestHeader",
    14: "QueryConsumerOffsetRequestHeader",
    17: "CreateTopicRequestHeader",
    29: "SearchOffsetRequestHeader",
    30: "GetMaxOffsetRequestHeader",
    31: "GetMinOffsetRequestHeader",
    32: "GetEarliestMsgStoretimeRequestHeader",
    33: "ViewMessageRequestHeader",
    35: "UnregisterClientRequestHeader",
    36: "ConsumerSendMsgBackRequestHeader",
    38: "GetConsumerListByGroupRequestHeader",
    40: "NotifyConsumerIdsChangedRequestHeader",
    105: "GetRouteInfoRequestHeader",
    202: "GetTopicStatsInfoRequestHeader",
    203: "GetConsumerConnectionListRequestHeader",
    204: "GetProducerConnectionListRequestHeader",
    208: "GetConsumeStatsRequestHeader",
    221: "GetConsumerStatusRequestHeader",
    222: "ResetOffsetRequestHeader",
    223: "GetConsumerStatusRequestHeader",
    300: "QueryTopicConsumeByWhoRequestHeader",
    303: "QueryConsumeTimeSpanRequestHeader",
    307: "GetConsumerRunningInfoRequestHeader",
    309: "ConsumeMessageDirectlyResultRequestHeader",
    310: "SendMessageRequestHeaderV2",
    315: "ViewBrokerStatsDataRequestHeader",
    317: "GetConsumeStatsInBrokerHeader",
    320: "SendMessageRequestHeaderV2",
    351: "GetTopicConfigRequestHeader",
}
ANSWERS = {
    11: "PullMessageResponseHeader",
    12: "QueryMessageResponseHeader",
    14: "QueryConsumerOffsetResponseHeader",
    29: "SearchOffsetResponseHeader",
    30: "GetMaxOffsetResponseHeader",
    31: "GetMinOffsetResponseHeader",
    310: "SendMessageResponseHeader",
    320: "SendMessageResponseHeader",
}
#: Codes whose headers have no field that rmqcli uses.
BODY_ONLY = {21, 26, 28, 34, 41, 42, 106, 200, 201, 206}


@each_row("case", load("conversation"), ids=lambda case: case["name"])
def test_headers_of_real_conversations(case):
    """The headers that clients and brokers sent fit the classes in both directions."""
    code = case["request"]["code"]
    assert code in REQUESTS or code in BODY_ONLY
    asked = case["request"]["ext_fields"] or {}
    if code in REQUESTS:
        header = from_ext_fields(CLASSES[REQUESTS[code]], asked)
        sent = to_ext_fields(header)
        # These are not fields of header classes: 5.x clients add them separately.
        left_out = NOT_OURS - sent.keys() | {"_UNIQUE_KEY_QUERY", "ReqT"}
        assert sent == {k: v for k, v in asked.items() if k not in left_out}
    if code in ANSWERS and case["response"] and case["response"]["code"] == 0:
        answered = case["response"]["ext_fields"]
        sent = to_ext_fields(from_ext_fields(CLASSES[ANSWERS[code]], answered))
        extra = {"MSG_REGION", "TRACE_ON"}
        assert {k: v for k, v in answered.items() if k not in extra} == sent


def subset(values: dict[str, object], like: dict[str, object]) -> dict[str, object]:
    return {name: values.get(name) for name in like}


def test_every_vector_of_a_code_we_send_has_a_class():
    """A new header class in the vectors must be used or be added to LEFT_OUT."""
    left_out = {
        case["header_class"]
        for case in load("frames")
        if case.get("header_class") and case["header_class"] not in CLASSES
    }

    assert left_out == LEFT_OUT


#: Classes without fields, for controllers or for access control lists
#: of 4.x, and classes of requests that rmqcli neither sends nor answers.
LEFT_OUT = {
    "AlterSyncStateSetResponseHeader",
    "ApplyBrokerIdResponseHeader",
    "CheckTransactionStateResponseHeader",
    "ElectMasterResponseHeader",
    "EndTransactionResponseHeader",
    "ExchangeHAInfoResponseHeader",
    "GetAllProducerInfoRequestHeader",
    "GetAllSubscriptionGroupResponseHeader",
    "GetAllTopicConfigResponseHeader",
    "GetBrokerAclConfigResponseHeader",
    "GetBrokerClusterAclConfigResponseHeader",
    "GetBrokerConfigResponseHeader",
    "GetConsumerListByGroupResponseHeader",
    "GetNextBrokerIdResponseHeader",
    "GetReplicaInfoResponseHeader",
    "HeartbeatRequestHeader",
    "LockBatchMqRequestHeader",
    "PeekMessageRequestHeader",
    "RegisterBrokerToControllerResponseHeader",
    "RegisterFilterServerResponseHeader",
    "UnlockBatchMqRequestHeader",
    "UnregisterClientResponseHeader",
    "UpdateConsumerOffsetResponseHeader",
    "ViewMessageResponseHeader",
}


def test_names_on_the_wire_are_javas():
    """These are names that are easily misspelled, and the letters of the V2 header."""
    pull = PullMessageRequestHeader(
        consumer_group="g",
        topic="T",
        queue_id=1,
        queue_offset=2,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=15000,
        sub_version=0,
        proxy_froward_client_id="p",
    )
    send = SendMessageRequestHeaderV2(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=-1,
        sys_flag=0,
        born_timestamp=1700000000000,
        flag=0,
        batch=True,
    )

    assert to_ext_fields(pull) == {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "1",
        "queueOffset": "2",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subVersion": "0",
        "proxyFrowardClientId": "p",
    }
    assert to_ext_fields(send) == {
        "a": "pg",
        "b": "T",
        "c": "TBW102",
        "d": "4",
        "e": "-1",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "m": "true",
    }


PULLED = {
    "suggestWhichBrokerId": "0",
    "nextBeginOffset": "5",
    "minOffset": "0",
    "maxOffset": "9",
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),  # Long.parseLong accepts a plus sign
        ("0005", 5),
        ("9223372036854775807", 9223372036854775807),
        ("-9223372036854775808", -9223372036854775808),
    ],
)
def test_whole_numbers(text, value):
    """They are read as by Long.parseLong."""
    fields = {**PULLED, "nextBeginOffset": text}

    assert from_ext_fields(PullMessageResponseHeader, fields).next_begin_offset == value


@pytest.mark.parametrize(
    "text",
    [
        "x",
        " 5",
        "5 ",
        "1_000",
        "5.0",
        "0x5",
        "\u0665",
        "9223372036854775808",
        "9" * 5000,
    ],
)
def test_what_is_no_whole_number_is_named(text):
    """Java leaves the field null and fails later; here the error names the field."""
    fields = {**PULLED, "maxOffset": text}

    with pytest.raises(HeaderError) as caught:
        from_ext_fields(PullMessageResponseHeader, fields)
    assert "PullMessageResponseHeader: maxOffset is " in caught.value.message
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("name", sorted(PULLED))
def test_a_missing_field_is_named(name):
    """Every answer to a pull must have all of these fields."""
    fields = {k: v for k, v in PULLED.items() if k != name}

    with pytest.raises(HeaderError, match=f"{name} is missing"):
        from_ext_fields(PullMessageResponseHeader, fields)


def test_fields_that_are_absent_empty_or_unknown():
    """An absent field has the default, and so has an empty field that is not text."""
    header = from_ext_fields(
        PullMessageResponseHeader, {**PULLED, "offsetDelta": "", "whatever": "x"}
    )

    assert header.offset_delta is None
    assert header.topic_sys_flag is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("false", False), ("1", False), ("yes", False)],
)
def test_booleans_are_read_as_in_java(text, value):
    """As in Boolean.parseBoolean, every text except "true" is false."""
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0"}

    header = from_ext_fields(
        QueryConsumerOffsetRequestHeader, {**fields, "setZeroIfNotFound": text}
    )

    assert header.set_zero_if_not_found is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("LOWER", BoundaryType.LOWER),
        ("upper", BoundaryType.UPPER),
        ("x", BoundaryType.LOWER),
    ],
)
def test_boundary_types_are_read_as_in_java(text, value):
    """As in BoundaryType.getType, every text except "upper" is lower."""
    fields = {"topic": "T", "queueId": "0", "timestamp": "1", "boundaryType": text}

    header = from_ext_fields(SearchOffsetRequestHeader, fields)

    assert header.boundary_type is value
    assert to_ext_fields(header)["boundaryType"] in ("LOWER", "UPPER")


@declared
class SampleHeader(Header):
    """A header for tests of the methods of all header classes."""

    queue_id: int
    topic: str | None = None


def test_headers_compare_hash_and_show_their_fields():
    """Header has these methods, because generating them would slow down the start."""
    header = SampleHeader(queue_id=1, topic="T")

    assert header == SampleHeader(queue_id=1, topic="T")
    assert header != SampleHeader(queue_id=2, topic="T")
    assert header != PULLED
    assert len({header, SampleHeader(queue_id=1, topic="T")}) == 1
    assert repr(header) == "SampleHeader(queue_id=1, topic='T')"
    assert not hasattr(header, "__dict__")
