"""Each argument of each function that makes a request has its place in the request."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import pytest

from rmqcli.api import calls
from rmqcli.model import MessageQueue
from rmqcli.wire.bodies.acl import AclInfo, PolicyInfo, UserWithPassword
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.bodies.heartbeat import HeartbeatData
from rmqcli.wire.header import BoundaryType
from rmqcli.wire.headers.client import ConsumerSendMsgBackRequestHeader
from rmqcli.wire.headers.send import (
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmqcli.wire.receipt_handle import ReceiptHandle
from rmqcli.wire.subscription import SubscriptionData

#: Two values for the arguments of each type, by annotation; neither is a default.
VALUES: dict[str, tuple[Any, ...]] = {
    "str": ("one", "two"),
    "str | None": ("one", "two"),
    "int": (41, 42),
    "int | None": (41, 42),
    "bool": (False, True),
    "bool | None": (False, True),
    "bytes": (b"one", b"two"),
    "BoundaryType | None": (BoundaryType.LOWER, BoundaryType.UPPER),
    "MessageQueue": tuple(MessageQueue("t", "broker-a", each) for each in (1, 2)),
    "Sequence[MessageQueue]": tuple(
        (MessageQueue("t", "broker-a", each),) for each in (1, 2)
    ),
    "SubscriptionData": (SubscriptionData(topic="one"), SubscriptionData(topic="two")),
    "Mapping[str, str]": ({"one": "1"}, {"two": "2"}),
    "Collection[str]": (("one",), ("two",)),
    "Sequence[TopicConfig]": tuple(
        (TopicConfig(topic_name=each),) for each in ("one", "two")
    ),
    "Sequence[SubscriptionGroupConfig]": tuple(
        (SubscriptionGroupConfig(group_name=each),) for each in ("one", "two")
    ),
    "list[PolicyInfo]": ([PolicyInfo()], []),
    "HeartbeatData": (HeartbeatData(client_id="one"), HeartbeatData(client_id="two")),
}


def handle(offset):
    return ReceiptHandle(
        start_offset=1,
        pop_time_ms=2,
        invisible_ms=3,
        revive_queue_id=4,
        topic_type="0",
        broker_name="broker-a",
        queue_id=5,
        offset=offset,
        commit_log_offset=6,
    )


VALUES["ReceiptHandle"] = handle(7), handle(8)
VALUES["Iterable[tuple[str, ReceiptHandle]]"] = tuple(
    [("one", handle(each))] for each in (7, 8)
)


def objects(kind):
    """For each field of a header or body, two objects that differ only there."""
    kinds = {
        name: str(each.annotation)
        for name, each in inspect.signature(kind).parameters.items()
        if str(each.annotation) in VALUES
    }
    first = {name: VALUES[each][0] for name, each in kinds.items()}
    for name, each in kinds.items():
        yield name, kind(**first), kind(**first | {name: VALUES[each][1]})


#: Arguments that are the whole content of a request: each of their fields counts.
CONTENTS = {
    "AclInfo": AclInfo,
    "UserWithPassword": UserWithPassword,
    "TopicConfig": TopicConfig,
    "SubscriptionGroupConfig": SubscriptionGroupConfig,
    "ConsumerSendMsgBackRequestHeader": ConsumerSendMsgBackRequestHeader,
    "EndTransactionRequestHeader": EndTransactionRequestHeader,
    "SendMessageRequestHeaderV2": SendMessageRequestHeaderV2,
}

FUNCTIONS = [
    function
    for module in pkgutil.iter_modules(calls.__path__)
    for name, function in inspect.getmembers(
        importlib.import_module(f"rmqcli.api.calls.{module.name}"), inspect.isfunction
    )
    if function.__module__ == f"rmqcli.api.calls.{module.name}"
    and name[0] != "_"
    and "__mutmut_" not in name
]


def pairs(function):
    """For each argument, and each field of a content, two calls that differ there."""
    kinds = {
        name: str(each.annotation)
        for name, each in inspect.signature(function).parameters.items()
    }
    first = {
        name: next(objects(CONTENTS[each]))[1] if each in CONTENTS else VALUES[each][0]
        for name, each in kinds.items()
    }
    for name, each in kinds.items():
        if each in CONTENTS:
            for field, one, two in objects(CONTENTS[each]):
                yield f"{name}.{field}", first | {name: one}, first | {name: two}
        else:
            yield name, first, first | {name: VALUES[each][1]}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_requests_with_different_arguments_differ(function):
    lost = []
    for name, one, two in pairs(function):
        first, second = function(**one), function(**two)
        if (first.ext_fields, first.body) == (second.ext_fields, second.body):
            lost.append(name)
    assert lost == []
