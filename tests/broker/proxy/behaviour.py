"""What RocketMQ proxies answer to bad and good requests: one table for all proxies.

The same requests are sent to the embedded proxy and to a real one in cluster mode.
`Stage` prepares topics and clients; an act returns the name of the status code or, for
a stream that fails, the name of the gRPC status.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.kit.proxy.raw_client import (
    GrpcClient,
    code_of,
    consumer_settings,
    message,
    producer_settings,
    resource,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024
DAY_MS = 24 * 3600 * 1000
HANDLE = "0 1700000000000 60000 0 0 broker-a 0 0 0"


class Stage:
    """A proxy with a topic of each kind, and clients: one bare, one with settings."""

    def __init__(
        self,
        endpoints: str,
        create_topic: Callable[[str, str | None], object],
        create_group: Callable[[str, dict[str, str]], object],
    ) -> None:
        mark = f"{time.time_ns():x}"
        self.endpoints = endpoints
        self.normal = f"N{mark}"
        self.fifo = f"F{mark}"
        self.delay = f"D{mark}"
        self.transaction = f"X{mark}"
        self.priority = f"P{mark}"
        self.mixed = f"M{mark}"
        #: topics of one row each
        self.own_priority = f"OP{mark}"
        self.own_mixed = f"OM{mark}"
        self.lite = f"L{mark}"
        self.group = f"G{mark}"
        self.lite_group = f"LG{mark}"
        create_topic(self.normal, None)
        create_topic(self.fifo, "FIFO")
        create_topic(self.delay, "DELAY")
        create_topic(self.transaction, "TRANSACTION")
        create_topic(self.priority, "PRIORITY")
        create_topic(self.mixed, "MIXED")
        create_topic(self.own_priority, "PRIORITY")
        create_topic(self.own_mixed, "MIXED")
        create_topic(self.lite, "LITE")
        create_group(self.lite_group, {"lite.bind.topic": self.lite})
        self.bare = GrpcClient(endpoints)
        self.consumer = GrpcClient(endpoints)
        self.consumer.telemetry(consumer_settings(self.group, self.normal))

    def close(self) -> None:
        self.bare.close()
        self.consumer.close()

    def client(self, **metadata: str | None) -> GrpcClient:
        """Make another client; `metadata` has keys without `x-mq-`, with _ for -."""
        fields = {f"x-mq-{k.replace('_', '-')}": v for k, v in metadata.items()}
        return GrpcClient(self.endpoints, metadata=fields)

    def send(self, *messages: d.Message) -> str:
        return code_of(self.bare.send(*messages))

    def sends(self, body: bytes = b"hello", **system: Any) -> str:
        return self.send(message(self.normal, body, **system))


@dataclass(frozen=True)
class Row:
    """One request and its answer."""

    name: str
    act: Callable[[Stage], str]
    expected: str


def now_ms() -> int:
    return int(time.time() * 1000)


def telemetry_fails(stage: Stage, settings: d.Settings, **metadata: str | None) -> str:
    """The gRPC status of a stream, or the code of its first answer."""
    with stage.client(**metadata) as client:
        try:
            answer = client.telemetry(settings).answer
        except grpc.RpcError as error:
            return error.code().name
        return code_of(answer)


def unimplemented(stage: Stage, name: str, request: Any) -> str:
    try:
        stage.bare.call(name, request)
    except grpc.RpcError as error:
        return error.code().name
    return "answered"


def routes(stage: Stage, topic: str, **metadata: str | None) -> str:
    with stage.client(**metadata) as client:
        return code_of(client.route(topic))


def assigned(stage: Stage, topic: str, group: str) -> str:
    answer = stage.bare.call(
        "QueryAssignment",
        s.QueryAssignmentRequest(topic=resource(topic), group=resource(group)),
    )
    ids = [each.message_queue.id for each in answer.assignments]
    return f"{code_of(answer)} {ids}"


def permissions(stage: Stage, topic: str) -> str:
    """Ids, permissions and types of a route."""
    queues = stage.bare.route(topic).message_queues
    ids = [each.id for each in queues]
    names = {d.Permission.Name(each.permission) for each in queues}
    kinds = {
        d.MessageType.Name(kind)
        for each in queues
        for kind in each.accept_message_types
    }
    return f"{ids} {sorted(names)} {sorted(kinds)}"


ROUTES = [
    Row(
        "route",
        lambda at: permissions(at, at.normal),
        "[0, 1, 2, 3] ['READ_WRITE'] ['NORMAL']",
    ),
    Row(
        "route fifo", lambda at: permissions(at, at.fifo).split("] ", 2)[2], "['FIFO']"
    ),
    Row(
        "route mixed",
        lambda at: permissions(at, at.mixed),
        "[0, 1, 2, 3] ['READ_WRITE'] ['DELAY', 'FIFO', 'NORMAL', 'TRANSACTION']",
    ),
    Row(
        "route priority",
        lambda at: permissions(at, at.priority),
        "[0, 1, 2, 3] ['READ_WRITE'] ['PRIORITY']",
    ),
    Row(
        "route lite",
        lambda at: permissions(at, at.lite),
        "[0, 1, 2, 3] ['READ_WRITE'] ['LITE']",
    ),
    Row("unknown topic", lambda at: routes(at, "nope"), "TOPIC_NOT_FOUND"),
    Row("empty topic", lambda at: routes(at, ""), "ILLEGAL_TOPIC"),
    Row("bad topic", lambda at: routes(at, "a b"), "ILLEGAL_TOPIC"),
    Row("long topic", lambda at: routes(at, "t" * 128), "ILLEGAL_TOPIC"),
    Row("system topic", lambda at: routes(at, "TBW102"), "ILLEGAL_TOPIC"),
    Row("rmq_sys topic", lambda at: routes(at, "rmq_sys_x"), "ILLEGAL_TOPIC"),
    Row(
        "no client id",
        lambda at: routes(at, at.normal, client_id=None),
        "CLIENT_ID_REQUIRED",
    ),
    Row(
        "blank client id",
        lambda at: routes(at, at.normal, client_id=" "),
        "CLIENT_ID_REQUIRED",
    ),
    Row("no language", lambda at: routes(at, at.normal, language=None), "OK"),
    Row("assignment", lambda at: assigned(at, at.normal, at.group), "OK [-1]"),
    Row(
        "assignment unknown topic",
        lambda at: assigned(at, "nope", at.group),
        "TOPIC_NOT_FOUND []",
    ),
    Row(
        "assignment bad group",
        lambda at: assigned(at, at.normal, "a b"),
        "ILLEGAL_CONSUMER_GROUP []",
    ),
    Row(
        "assignment system group",
        lambda at: assigned(at, at.normal, "CID_RMQ_SYS_X"),
        "ILLEGAL_CONSUMER_GROUP []",
    ),
    Row(
        "assignment long group",
        lambda at: assigned(at, at.normal, "g" * 121),
        "ILLEGAL_CONSUMER_GROUP []",
    ),
]

SENDS = [
    Row("send", lambda at: at.sends(), "OK"),
    Row("nothing", lambda at: at.send(), "MESSAGE_CORRUPTED"),
    Row("empty body", lambda at: at.sends(b""), "MESSAGE_BODY_EMPTY"),
    Row("4 MiB", lambda at: at.sends(bytes(4 * MIB)), "OK"),
    Row(
        "over 4 MiB", lambda at: at.sends(bytes(4 * MIB + 1)), "MESSAGE_BODY_TOO_LARGE"
    ),
    Row(
        "unknown",
        lambda at: at.send(message("nope")),
        _CONFLICT := "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    ),
    Row("system", lambda at: at.send(message("TBW102")), "ILLEGAL_TOPIC"),
    Row("tag blank", lambda at: at.sends(tag=" "), "ILLEGAL_MESSAGE_TAG"),
    Row("tag bar", lambda at: at.sends(tag="a|b"), "ILLEGAL_MESSAGE_TAG"),
    Row("tag control", lambda at: at.sends(tag="a\x01"), "ILLEGAL_MESSAGE_TAG"),
    Row("tag empty", lambda at: at.sends(tag=""), "OK"),
    Row("key blank", lambda at: at.sends(keys=[" "]), "ILLEGAL_MESSAGE_KEY"),
    Row("key control", lambda at: at.sends(keys=["a\x02"]), "ILLEGAL_MESSAGE_KEY"),
    Row("key empty", lambda at: at.sends(keys=[""]), "OK"),
    Row("no id", lambda at: at.sends(message_id=""), "ILLEGAL_MESSAGE_ID"),
    Row(
        "128 properties",
        lambda at: at.sends(user_properties={f"k{n}": "v" for n in range(128)}),
        "OK",
    ),
    Row(
        "129 properties",
        lambda at: at.sends(user_properties={f"k{n}": "v" for n in range(129)}),
        "MESSAGE_PROPERTIES_TOO_LARGE",
    ),
    Row(
        "16 KiB of properties",
        lambda at: at.sends(user_properties={"k": "v" * (16 * 1024 - 1)}),
        "OK",
    ),
    Row(
        "over 16 KiB of properties",
        lambda at: at.sends(user_properties={"k": "v" * 16 * 1024}),
        "MESSAGE_PROPERTIES_TOO_LARGE",
    ),
    Row(
        "reserved property",
        lambda at: at.sends(user_properties={"KEYS": "v"}),
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
    ),
    Row(
        "reserved property of 5.5",
        lambda at: at.sends(user_properties={"_SYS_MSG_PRIORITY_": "1"}),
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
    ),
    Row(
        "control in property",
        lambda at: at.sends(user_properties={"a": "b\x01"}),
        "ILLEGAL_MESSAGE_PROPERTY_KEY",
    ),
    Row(
        "wrong digest",
        lambda at: at.sends(body_digest=d.Digest(type=d.DigestType.MD5, checksum="00")),
        "OK",
    ),
    Row("unknown encoding", lambda at: at.sends(body_encoding=77), "OK"),
    Row("unknown type", lambda at: at.sends(message_type=77), "OK"),
    Row(
        "fifo",
        lambda at: at.send(message(at.fifo, message_group="a", message_type=2)),
        "OK",
    ),
    Row("fifo without group", lambda at: at.send(message(at.fifo)), _CONFLICT),
    Row("group on a normal topic", lambda at: at.sends(message_group="a"), _CONFLICT),
    Row(
        "blank group",
        lambda at: at.send(message(at.fifo, message_group=" ")),
        "ILLEGAL_MESSAGE_GROUP",
    ),
    Row(
        "long group",
        lambda at: at.send(message(at.fifo, message_group="g" * 64)),
        "ILLEGAL_MESSAGE_GROUP",
    ),
    Row(
        "delay",
        lambda at: at.send(message(at.delay, delivery_ms=now_ms() + 5_000)),
        "OK",
    ),
    Row(
        "delay in the past",
        lambda at: at.send(message(at.delay, delivery_ms=now_ms() - 5_000)),
        "OK",
    ),
    Row(
        "delay too far",
        lambda at: at.send(message(at.delay, delivery_ms=now_ms() + DAY_MS + 60_000)),
        "ILLEGAL_DELIVERY_TIME",
    ),
    Row(
        "delay on a normal topic",
        lambda at: at.sends(delivery_ms=now_ms() + 5_000),
        _CONFLICT,
    ),
    Row(
        "transaction", lambda at: at.send(message(at.transaction, message_type=4)), "OK"
    ),
    Row(
        "normal on a transaction topic",
        lambda at: at.send(message(at.transaction)),
        _CONFLICT,
    ),
    Row(
        "long recovery",
        lambda at: at.send(_recovering(at.transaction, 3_601)),
        "BAD_REQUEST",
    ),
    Row("batch", lambda at: at.send(*(message(at.normal) for _ in range(3))), "OK"),
    Row(
        "batch of two topics",
        lambda at: at.send(message(at.normal), message(at.fifo)),
        "MESSAGE_CORRUPTED",
    ),
    Row(
        "batch has one entry",
        lambda at: str(
            len(at.bare.send(message(at.normal), message(at.normal)).entries)
        ),
        "1",
    ),
    Row(
        "negative priority",
        lambda at: at.send(message(at.priority, priority=-1)),
        "INTERNAL_SERVER_ERROR",
    ),
    Row("priority zero", lambda at: at.send(message(at.priority, priority=0)), "OK"),
    Row("no priority", lambda at: at.send(message(at.priority)), _CONFLICT),
    Row(
        "priority on a normal topic",
        lambda at: at.sends(priority=3),
        _CONFLICT,
    ),
]


#: One message of each kind, and two FIFO messages of different groups.
_KINDS: dict[str, dict[str, Any]] = {
    "normal": {},
    "fifo": {"message_group": "a"},
    "another fifo": {"message_group": "b"},
    "delayed": {"delay_ms": 60_000},
    "due": {"delay_ms": -60_000},
    "transaction": {"message_type": d.MessageType.TRANSACTION},
    "priority": {"priority": 1},
}
_LETTERS = {
    "OK": "o",
    _CONFLICT: ".",
    "INTERNAL_SERVER_ERROR: Delayed messages are not supported for batching": "d",
    "INTERNAL_SERVER_ERROR: the message is illegal": "i",
}


def _of_kind(topic: str, kind: str) -> d.Message:
    system = dict(_KINDS[kind])
    delay_ms = system.pop("delay_ms", None)
    if delay_ms is not None:
        system["delivery_ms"] = now_ms() + delay_ms
    return message(topic, kind.encode(), **system)


def _letter(stage: Stage, topic: str, *kinds: str) -> str:
    answer = stage.bare.send(*(_of_kind(topic, kind) for kind in kinds))
    said = code_of(answer)
    if said == "INTERNAL_SERVER_ERROR":
        said += f": {answer.status.message}"
    found = [letter for text, letter in _LETTERS.items() if said.startswith(text)]
    return found[0] if found else f"[{said}]"


def _alone(stage: Stage, topic: str) -> str:
    """What becomes of one message of each kind, a letter for each."""
    return "".join(_letter(stage, topic, kind) for kind in _KINDS)


def _pairs(stage: Stage, topic: str) -> str:
    """What becomes of every pair of kinds: a word for each first message."""
    return " ".join(
        "".join(_letter(stage, topic, first, second) for second in _KINDS)
        for first in _KINDS
    )


KINDS = [
    Row("kinds normal", lambda at: _alone(at, at.normal), "o......"),
    Row("kinds fifo", lambda at: _alone(at, at.fifo), ".oo...."),
    Row("kinds delay", lambda at: _alone(at, at.delay), "...oo.."),
    Row("kinds transaction", lambda at: _alone(at, at.transaction), ".....o."),
    Row("kinds priority", lambda at: _alone(at, at.priority), "......o"),
    Row("kinds mixed", lambda at: _alone(at, at.mixed), "ooooooo"),
    Row(
        "pairs normal",
        lambda at: _pairs(at, at.normal),
        "oooddoo ....... ....... ....... ....... ....... .......",
    ),
    Row(
        "pairs fifo",
        lambda at: _pairs(at, at.fifo),
        "....... oooddoo oooddoo ....... ....... ....... .......",
    ),
    Row(
        "pairs delay",
        lambda at: _pairs(at, at.delay),
        "....... ....... ....... ddddddd ddddddd ....... .......",
    ),
    Row(
        "pairs transaction",
        lambda at: _pairs(at, at.transaction),
        "....... ....... ....... ....... ....... iiiddii .......",
    ),
    Row(
        "pairs priority",
        lambda at: _pairs(at, at.priority),
        "....... ....... ....... ....... ....... ....... oooddoo",
    ),
    Row(
        "pairs mixed",
        lambda at: _pairs(at, at.mixed),
        "oooddoo oooddoo oooddoo ddddddd ddddddd iiiddii oooddoo",
    ),
]


def _recovering(topic: str, seconds: int) -> d.Message:
    made = message(topic, message_type=4)
    made.system_properties.orphaned_transaction_recovery_duration.seconds = seconds
    return made


def _ended(stage: Stage, resolution: Any, times: int = 1) -> str:
    sent = stage.bare.send(message(stage.transaction, message_type=4))
    answers = [
        code_of(
            stage.bare.end_transaction(stage.transaction, sent.entries[0], resolution)
        )
        for _ in range(times)
    ]
    return answers[-1]


def _ended_raw(stage: Stage, transaction_id: str) -> str:
    entry = s.SendResultEntry(message_id="m", transaction_id=transaction_id)
    return code_of(stage.bare.end_transaction(stage.transaction, entry, 1))


TRANSACTIONS = [
    Row("commit", lambda at: _ended(at, 1), "OK"),
    Row("rollback", lambda at: _ended(at, 2), "OK"),
    Row("unspecified", lambda at: _ended(at, 0), "OK"),
    Row("unknown resolution", lambda at: _ended(at, 77), "OK"),
    Row("second decision", lambda at: _ended(at, 1, 2), "INTERNAL_SERVER_ERROR"),
    Row("empty id", lambda at: _ended_raw(at, ""), "INVALID_TRANSACTION_ID"),
    Row("garbage id", lambda at: _ended_raw(at, "x"), "INTERNAL_SERVER_ERROR"),
]


def _recalled(stage: Stage, topic: str, handle: str) -> str:
    return code_of(
        stage.bare.call(
            "RecallMessage",
            s.RecallMessageRequest(topic=resource(topic), recall_handle=handle),
        )
    )


def _recalled_sent(stage: Stage) -> str:
    sent = stage.bare.send(message(stage.delay, delivery_ms=now_ms() + 60_000))
    return _recalled(stage, stage.delay, sent.entries[0].recall_handle)


RECALLS = [
    Row("recall", _recalled_sent, "INTERNAL_SERVER_ERROR"),
    Row("no handle", lambda at: _recalled(at, at.delay, ""), "INTERNAL_SERVER_ERROR"),
    Row("garbage", lambda at: _recalled(at, at.delay, "!!"), "INTERNAL_SERVER_ERROR"),
    Row("normal topic", lambda at: _recalled(at, at.normal, "x"), _CONFLICT),
]


def _heartbeat(stage: Stage, settings: d.Settings | None, group: str | None) -> str:
    with stage.client() as client:
        if settings is not None:
            client.telemetry(settings)
        return code_of(client.heartbeat(group))


def _terminated(stage: Stage, times: int) -> str:
    with stage.client() as client:
        client.telemetry(consumer_settings(stage.group, stage.normal))
        request = s.NotifyClientTerminationRequest(group=resource(stage.group))
        answers = [
            code_of(client.call("NotifyClientTermination", request))
            for _ in range(times)
        ]
        return answers[-1]


def _settings(stage: Stage, **fields: Any) -> d.Settings:
    settings = consumer_settings(stage.group, stage.normal)
    for name, value in fields.items():
        setattr(settings, name, value)
    return settings


SESSIONS = [
    Row(
        "consumer",
        lambda at: telemetry_fails(at, _settings(at)),
        "OK",
    ),
    Row("producer", lambda at: telemetry_fails(at, producer_settings(at.normal)), "OK"),
    Row(
        "producer of nothing", lambda at: telemetry_fails(at, producer_settings()), "OK"
    ),
    Row(
        "producer of an unknown topic",
        lambda at: telemetry_fails(at, producer_settings("nope")),
        "OK",
    ),
    Row(
        "producer of a bad topic",
        lambda at: telemetry_fails(at, producer_settings("a b")),
        "INVALID_ARGUMENT",
    ),
    Row("no pub_sub", lambda at: telemetry_fails(at, d.Settings()), "INVALID_ARGUMENT"),
    Row(
        "no group",
        lambda at: telemetry_fails(at, consumer_settings("", at.normal)),
        "INVALID_ARGUMENT",
    ),
    Row(
        "consumer that is a producer",
        lambda at: telemetry_fails(at, _settings(at, client_type=1)),
        "INTERNAL",
    ),
    Row(
        "pull consumer",
        lambda at: telemetry_fails(at, _settings(at, client_type=4)),
        "INTERNAL",
    ),
    Row(
        "language missing",
        lambda at: telemetry_fails(at, _settings(at), language=None),
        "INTERNAL",
    ),
    Row(
        "language GOLANG",
        lambda at: telemetry_fails(at, _settings(at), language="GOLANG"),
        "INTERNAL",
    ),
    Row(
        "language NODE_JS",
        lambda at: telemetry_fails(at, _settings(at), language="NODE_JS"),
        "OK",
    ),
    Row(
        "client id missing",
        lambda at: telemetry_fails(at, _settings(at), client_id=None),
        "CLIENT_ID_REQUIRED",
    ),
    Row(
        "heartbeat",
        lambda at: _heartbeat(at, _settings(at), at.group),
        "OK",
    ),
    Row(
        "heartbeat without settings",
        lambda at: _heartbeat(at, None, at.group),
        "UNRECOGNIZED_CLIENT_TYPE",
    ),
    Row(
        "heartbeat without group",
        lambda at: _heartbeat(at, _settings(at), None),
        "ILLEGAL_CONSUMER_GROUP",
    ),
    Row(
        "heartbeat of a producer",
        lambda at: _heartbeat(at, producer_settings(at.normal), None),
        "OK",
    ),
    Row("termination", lambda at: _terminated(at, 1), "OK"),
    Row("termination twice", lambda at: _terminated(at, 2), "UNRECOGNIZED_CLIENT_TYPE"),
]

MISSING = [
    Row(
        name,
        lambda at, name=name: unimplemented(at, name, getattr(s, f"{name}Request")()),  # type: ignore[misc]  # bound now
        "UNIMPLEMENTED",
    )
    for name in ("UpdateOffset", "GetOffset", "QueryOffset")
]


def _received(stage: Stage, topic: str | None = None, **fields: Any) -> str:
    group = fields.pop("group", stage.group)
    return stage.consumer.receive(
        group, stage.normal if topic is None else topic, **fields
    ).code


def _received_bare(stage: Stage) -> str:
    return stage.bare.receive(stage.group, stage.normal).code


def _received_by_priority(stage: Stage) -> str:
    """The bodies and priorities of a receive, sent as 0 3 1 2 9 to four queues."""
    with stage.client() as client:
        group = f"{stage.group}-priority"
        client.telemetry(consumer_settings(group, stage.own_priority))
        client.receive(group, stage.own_priority)
        for priority in (0, 3, 1, 2, 9):
            body = b"%d" % priority
            client.send(message(stage.own_priority, body, priority=priority))
        found = client.receive(group, stage.own_priority).messages
        return " ".join(
            f"{each.body.decode()}:{each.system_properties.priority}"
            f"@{each.system_properties.queue_id}"
            for each in found
        )


def _received_kinds(stage: Stage) -> str:
    """The types of messages that a topic of type MIXED delivers."""
    with stage.client() as client:
        group = f"{stage.group}-mixed"
        client.telemetry(consumer_settings(group, stage.own_mixed))
        client.receive(group, stage.own_mixed)
        for kind in ("normal", "fifo", "priority"):
            client.send(_of_kind(stage.own_mixed, kind))
        found = client.receive(group, stage.own_mixed).messages
        kinds = {each.system_properties.message_type for each in found}
        return " ".join(sorted(map(d.MessageType.Name, kinds)))


RECEIVES = [
    Row("by priority", _received_by_priority, "3:3@3 9:9@3 2:2@2 1:1@1 0:0@0"),
    Row("of several types", _received_kinds, "FIFO NORMAL PRIORITY"),
    Row("receive without settings", _received_bare, "INTERNAL_SERVER_ERROR"),
    Row(
        "no deadline",
        lambda at: _received(at, timeout_s=None),
        "INTERNAL_SERVER_ERROR",
    ),
    Row(
        "short deadline", lambda at: _received(at, timeout_s=3), "ILLEGAL_POLLING_TIME"
    ),
    Row("receive unknown topic", lambda at: _received(at, "nope"), "TOPIC_NOT_FOUND"),
    Row("receive empty topic", lambda at: _received(at, ""), "ILLEGAL_TOPIC"),
    Row("receive system topic", lambda at: _received(at, "TBW102"), "ILLEGAL_TOPIC"),
    Row(
        "receive bad group",
        lambda at: _received(at, group="a b"),
        "ILLEGAL_CONSUMER_GROUP",
    ),
    Row(
        "no invisible time",
        lambda at: _received(at, invisible_ms=None),
        "ILLEGAL_INVISIBLE_TIME",
    ),
    Row(
        "short invisible time",
        lambda at: _received(at, invisible_ms=9_999),
        "ILLEGAL_INVISIBLE_TIME",
    ),
    Row(
        "negative invisible time",
        lambda at: _received(at, invisible_ms=-10_000),
        "ILLEGAL_INVISIBLE_TIME",
    ),
    Row(
        "long invisible time",
        lambda at: _received(at, invisible_ms=12 * 3600 * 1000 + 1),
        "ILLEGAL_INVISIBLE_TIME",
    ),
    Row(
        "absurd invisible time",
        lambda at: _received(at, invisible_ms=400_000_000_000_000),
        "INTERNAL_SERVER_ERROR",
    ),
    Row(
        "bars for a filter",
        lambda at: _received(at, expression="||"),
        "ILLEGAL_FILTER_EXPRESSION",
    ),
    Row(
        "empty SQL",
        lambda at: _received(at, expression="", sql=True),
        "ILLEGAL_FILTER_EXPRESSION",
    ),
]


def _acked(stage: Stage, *handles: str) -> str:
    return code_of(stage.bare.ack(stage.group, stage.normal, *handles))


def _changed(stage: Stage, handle: str, invisible_ms: int) -> str:
    client = stage.consumer
    return code_of(client.change(stage.group, stage.normal, handle, invisible_ms))


def _changed_bare(stage: Stage) -> str:
    return code_of(stage.bare.change(stage.group, stage.normal, HANDLE, 1_000))


def _forwarded_bare(stage: Stage) -> str:
    return code_of(stage.bare.forward(stage.group, stage.normal, HANDLE, "m"))


def _forwarded(stage: Stage, handle: str) -> str:
    answer = stage.consumer.forward(stage.group, stage.normal, handle, "m")
    return code_of(answer)


HANDLES = [
    Row("ack nothing", lambda at: _acked(at), "INTERNAL_SERVER_ERROR"),
    Row("ack garbage", lambda at: _acked(at, "x"), "INTERNAL_SERVER_ERROR"),
    Row("ack expired", lambda at: _acked(at, HANDLE), "INVALID_RECEIPT_HANDLE"),
    Row(
        "ack two kinds of bad handles",
        lambda at: _acked(at, HANDLE, "x"),
        "MULTIPLE_RESULTS",
    ),
    Row(
        "ack of an unknown broker",
        lambda at: _acked(at, _fresh("broker-z")),
        "INVALID_RECEIPT_HANDLE",
    ),
    Row("change garbage", lambda at: _changed(at, "x", 1_000), "INTERNAL_SERVER_ERROR"),
    Row("change expired", lambda at: _changed(at, HANDLE, 1), "INVALID_RECEIPT_HANDLE"),
    Row(
        "change to a negative time",
        lambda at: _changed(at, HANDLE, -1),
        "ILLEGAL_INVISIBLE_TIME",
    ),
    Row(
        "change to over 12 h",
        lambda at: _changed(at, HANDLE, 12 * 3600 * 1000 + 1),
        "ILLEGAL_INVISIBLE_TIME",
    ),
    Row("change without settings", _changed_bare, "INTERNAL_SERVER_ERROR"),
    Row("forward without settings", _forwarded_bare, "INTERNAL_SERVER_ERROR"),
    Row("forward garbage", lambda at: _forwarded(at, "x"), "INTERNAL_SERVER_ERROR"),
    Row(
        "forward without a place",
        lambda at: _forwarded(at, HANDLE.rpartition(" ")[0]),
        "INVALID_RECEIPT_HANDLE",
    ),
]


def _fresh(broker: str) -> str:
    return f"0 {now_ms()} 60000 0 0 {broker} 0 0 0"


def _lite(
    stage: Stage,
    topic: str | None = None,
    group: str | None = None,
    *,
    lite_topics: tuple[str, ...] = ("a", "b"),
    action: Any = d.LiteSubscriptionAction.PARTIAL_ADD,
) -> str:
    """The answer to a lite subscription, with its text up to Java's exception."""
    request = s.SyncLiteSubscriptionRequest(
        topic=resource(stage.normal if topic is None else topic),
        group=resource(stage.group if group is None else group),
        lite_topic_set=lite_topics,
        action=action,
    )
    answer = stage.bare.call("SyncLiteSubscription", request)
    text = answer.status.message.partition(". IllegalArgumentException")[0]
    text = text.replace(stage.normal, "TOPIC").replace(stage.group, "GROUP")
    return f"{code_of(answer)}: {text}"


def _lite_settings(stage: Stage) -> d.Settings:
    return _settings(stage, client_type=d.ClientType.LITE_PUSH_CONSUMER)


_NOT_BOUND = (
    "ILLEGAL_TOPIC: lite group {} is expected to bind topic null, but actual is {}"
)
_LITE_LETTERS = (
    "ILLEGAL_LITE_TOPIC: lite topic can only contain alphanumeric characters,"
    " hyphens(-), and underscores(_)"
)

#: The answers where no group is bound to a topic with lite topics.
LITE = [
    Row("lite", _lite, _NOT_BOUND.format("GROUP", "TOPIC")),
    Row(
        "lite whole",
        lambda at: _lite(at, action=2),
        _NOT_BOUND.format("GROUP", "TOPIC"),
    ),
    Row(
        "lite unknown topic",
        lambda at: _lite(at, "nope"),
        _NOT_BOUND.format("GROUP", "nope"),
    ),
    Row(
        "lite unknown group",
        lambda at: _lite(at, group="nope"),
        _NOT_BOUND.format("nope", "TOPIC"),
    ),
    Row(
        "lite bad group",
        lambda at: _lite(at, group="a b"),
        "ILLEGAL_CONSUMER_GROUP: the specified group[a b] contains illegal characters,"
        " allowing only ^[%|a-zA-Z0-9_-]+$",
    ),
    Row(
        "lite no group",
        lambda at: _lite(at, group=""),
        "ILLEGAL_CONSUMER_GROUP: the specified group is blank",
    ),
    Row(
        "lite long group",
        lambda at: _lite(at, group="g" * 121),
        f"ILLEGAL_CONSUMER_GROUP: the specified group[{'g' * 121}] is longer than group"
        " max length: 120.",
    ),
    Row(
        "lite system topic",
        lambda at: _lite(at, "TBW102"),
        "ILLEGAL_TOPIC: cannot access system topic",
    ),
    Row(
        "lite bad topic and group",
        lambda at: _lite(at, "a b", "a b"),
        "ILLEGAL_TOPIC: The specified topic[a b] contains illegal characters, allowing"
        " only ^[%|a-zA-Z0-9_-]+$",
    ),
    Row(
        "lite no topic",
        lambda at: _lite(at, ""),
        "ILLEGAL_TOPIC: The specified topic is blank",
    ),
    Row(
        "lite long topic",
        lambda at: _lite(at, "t" * 128),
        "ILLEGAL_TOPIC: The specified topic is longer than topic max length 127.",
    ),
    Row(
        "lite unknown action",
        lambda at: _lite(at, action=77, lite_topics=("a b",)),
        "INTERNAL_SERVER_ERROR: unknown LiteSubscriptionAction: UNRECOGNIZED",
    ),
    Row(
        "lite bad name",
        lambda at: _lite(at, lite_topics=("a", "a b")),
        _LITE_LETTERS,
    ),
    Row(
        "lite removal of a bad name",
        lambda at: _lite(at, lite_topics=("a b",), action=1),
        _NOT_BOUND.format("GROUP", "TOPIC"),
    ),
    Row(
        "lite consumer",
        lambda at: telemetry_fails(at, _lite_settings(at)),
        "INVALID_ARGUMENT",
    ),
    Row(
        "lite simple consumer",
        lambda at: telemetry_fails(at, _settings(at, client_type=6)),
        "INTERNAL",
    ),
    Row(
        "consumer of an unknown type",
        lambda at: telemetry_fails(at, _settings(at, client_type=77)),
        "INTERNAL",
    ),
    Row("lite message", lambda at: at.sends(lite_topic="x"), _CONFLICT),
    Row(
        "lite subscription to a topic that the group is not bound to",
        lambda at: _lite(at, group=at.lite_group).replace(at.lite, "LITE"),
        "ILLEGAL_TOPIC: lite group LGROUP is expected to bind topic LITE, but actual is"
        " TOPIC",
    ),
    Row(
        "consumer of a group of a lite topic",
        lambda at: telemetry_fails(at, consumer_settings(at.lite_group, at.lite)),
        "INVALID_ARGUMENT",
    ),
    Row("no lite topic", lambda at: at.send(message(at.lite)), _CONFLICT),
    Row("lite type alone", lambda at: at.sends(message_type=5), "OK"),
    Row(
        "lite message with a group",
        lambda at: at.send(message(at.fifo, message_group="a", lite_topic="x")),
        "OK",
    ),
    Row("lite topic empty", lambda at: at.sends(lite_topic=""), "OK"),
    Row("lite topic blank", lambda at: at.sends(lite_topic=" "), "ILLEGAL_LITE_TOPIC"),
    Row("lite topic of 64", lambda at: at.sends(lite_topic="x" * 64), _CONFLICT),
    Row(
        "lite topic of 65",
        lambda at: at.sends(lite_topic="x" * 65),
        "ILLEGAL_LITE_TOPIC",
    ),
    Row(
        "lite topic with a dot",
        lambda at: at.sends(lite_topic="a.b"),
        "ILLEGAL_LITE_TOPIC",
    ),
]

TABLE = {
    f"{row.name}": row
    for rows in (
        *(ROUTES, SENDS, KINDS, TRANSACTIONS, RECALLS),
        *(SESSIONS, MISSING, RECEIVES, HANDLES, LITE),
    )
    for row in rows
}
