"""What a proxy's remoting port answers: one table for the embedded and real proxies.

A row is a request; its answer is the code, and the remark where it is worth comparing.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqcli.wire.codes import RequestCode
from tests.kit import raw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NO_BNAME = "15 Request doesn't have field bname"
#: Of a queue to which no row sends.
PULL = {
    "queueId": "1",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subVersion": "0",
}
SEND = {
    "producerGroup": "P",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "0",
    "flag": "0",
}


class Stage:
    """A proxy's remoting port, and a topic of each of some types."""

    def __init__(
        self, address: str, create_topic: Callable[[str, str | None], object]
    ) -> None:
        mark = f"{time.time_ns():x}"
        self.address = address
        self.normal = f"RN{mark}"
        self.fifo = f"RF{mark}"
        self.group = f"RG{mark}"
        create_topic(self.normal, None)
        create_topic(self.fifo, "FIFO")

    def ask(
        self, code: int, fields: Mapping[str, str] | None = None, body: bytes = b""
    ) -> raw.Answer:
        return raw.ask(self.address, code, dict(fields or {}), body=body)

    def code(self, code: int, **fields: str) -> str:
        return str(self.ask(code, fields).code)

    def said(self, code: int, **fields: str) -> str:
        answer = self.ask(code, fields)
        return f"{answer.code} {(answer.remark or '').strip()}".strip()


@dataclass(frozen=True)
class Row:
    """One request and its answer."""

    name: str
    act: Callable[[Stage], str]
    expected: str


def _offset(stage: Stage, **fields: str) -> str:
    asked = {"topic": stage.normal, "queueId": "0", **fields}
    return stage.said(RequestCode.GET_MAX_OFFSET, **asked)


def _pulled(stage: Stage, **fields: str) -> str:
    asked = {"consumerGroup": stage.group, "topic": stage.normal, **PULL, **fields}
    return stage.said(RequestCode.PULL_MESSAGE, **asked)


def _sent(stage: Stage, topic: str, **fields: str) -> str:
    answer = stage.ask(
        RequestCode.SEND_MESSAGE, {"topic": topic, **SEND, **fields}, body=b"hello"
    )
    return str(answer.code)


def _own_fields(stage: Stage) -> str:
    fields = stage.ask(RequestCode.CHECK_CLIENT_CONFIG).ext_fields
    return f"{fields.get('MSG_REGION')!r} {fields.get('TRACE_ON')}"


def beat(
    link: raw.Link, client_id: str, group: str, *, subscription: Any = None
) -> None:
    """Send the heartbeat of a member."""
    heartbeat = {
        "clientID": client_id,
        "producerDataSet": [],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": [] if subscription is None else [subscription],
                "unitMode": False,
            }
        ],
    }
    body = json.dumps(heartbeat).encode()
    assert link.ask(RequestCode.HEART_BEAT, body=body).code == 0


def _joined(stage: Stage, code: int) -> str:
    """The answer about a group with a member, asked on the member's connection."""
    # When the link of an earlier row closes, its group is forgotten a moment later.
    group = f"{stage.group}-joined-{code:d}"
    with raw.Link(stage.address) as link:
        beat(link, "me", group)
        answer = link.ask(code, {"consumerGroup": group})
        if code == RequestCode.GET_CONSUMER_LIST_BY_GROUP:
            return f"{answer.code} {json.loads(answer.body)['consumerIdList']}"
        return str(answer.code)


def _locked(stage: Stage, *broker_names: str) -> str:
    queues = [
        {"topic": stage.normal, "brokerName": name, "queueId": 0}
        for name in broker_names
    ]
    body = {"consumerGroup": stage.group, "clientId": "me", "mqSet": queues}
    answer = stage.ask(RequestCode.LOCK_BATCH_MQ, body=json.dumps(body).encode())
    return f"{answer.code} {answer.body.count(stage.normal.encode())}"


TABLE = {
    row.name: row
    for row in (
        Row("unknown topic", lambda at: at.code(105, topic="nope"), "17"),
        Row("route", lambda at: at.code(105, topic=at.normal), "0"),
        Row("fields of answers", _own_fields, "'' false"),
        Row("offset", lambda at: _offset(at, bname="broker-a"), "0"),
        Row("offset without a broker", _offset, _NO_BNAME),
        Row(
            "offset of an unknown broker",
            lambda at: _offset(at, bname="broker-z").split()[0],
            "17",
        ),
        Row("pull without a broker", lambda at: _pulled(at, sysFlag="4"), _NO_BNAME),
        Row(
            "pull of a group without members",
            lambda at: _pulled(at, sysFlag="0", bname="broker-a"),
            "25 the consumer's subscription not latest",
        ),
        Row(
            "pull with a subscription",
            lambda at: _pulled(
                at, sysFlag="4", subscription="*", bname="broker-a"
            ).split()[0],
            "19",
        ),
        Row(
            "POP",
            lambda at: at.code(
                RequestCode.POP_MESSAGE,
                consumerGroup=at.group,
                topic=at.normal,
                bname="broker-a",
            ),
            "1",
        ),
        Row("send", lambda at: _sent(at, at.normal, bname="broker-a"), "0"),
        Row("send without a broker", lambda at: _sent(at, at.normal), "15"),
        Row(
            "send to an unknown topic",
            lambda at: _sent(at, "nope", bname="broker-a"),
            "13",
        ),
        Row(
            "message of another type",
            lambda at: _sent(at, at.fifo, bname="broker-a"),
            "13",
        ),
        Row(
            "members of a group without",
            lambda at: at.code(38, consumerGroup="nope"),
            "1",
        ),
        Row(
            "connections of a group without members",
            lambda at: at.said(203, consumerGroup="nope"),
            "206 the consumer group[nope] not online",
        ),
        Row("members", lambda at: _joined(at, 38), "0 ['me']"),
        Row("connections", lambda at: _joined(at, 203), "0"),
        Row("lock", lambda at: _locked(at, "broker-a"), "0 1"),
        Row("lock nothing", lambda at: _locked(at), "1 0"),
        Row("unregister", lambda at: at.code(35, clientID="x"), "0"),
        *(
            Row(
                f"request {code}",
                lambda at, code=code: at.said(code),  # type: ignore[misc]  # bound now
                f"3 request type {code} not supported",
            )
            for code in (12, 17, 33, 106, 200, 202, 206, 208, 222, 300, 307, 343)
        ),
    )
}
