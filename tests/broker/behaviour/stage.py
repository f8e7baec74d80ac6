"""The parts of the table's rows, and the state of a broker that they start from."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.broker.wire_client import WireClient

V4_6, V4_9, V5 = "4.6.0", "4.9.7", "5.5.0"
FAQ = {
    V4_6: "http://rocketmq.apache.org/docs/faq/",
    V4_9: "http://rocketmq.apache.org/docs/faq/",
    V5: "https://rocketmq.apache.org/docs/bestPractice/06FAQ",
}
TAGS = ("A", "B", "A", "B", "A")
#: Properties of T's messages: numbers, a text, and one that only some messages have.
PROPERTIES = tuple(
    f"n\x01{number}\x02f\x01{number}.5\x02text\x01item-{number}\x02" + some
    for number, some in enumerate(("", "some\x01x\x02", "", "some\x01it's\x02", ""))
)
ANY = "any remark"


@dataclass(frozen=True)
class Says:
    """An expected answer. Of `fields`, those that are None must be absent."""

    code: int
    remark: str | None = ANY
    fields: dict[str, str | None] = field(default_factory=dict)
    messages: int = 0


@dataclass(frozen=True)
class Row:
    """A request by code and fields, and the expected answer.

    `by` has the answers of versions that differ. `before` are requests that must
    succeed first.
    """

    name: str
    code: int
    fields: dict[str, Any]
    says: Says | None = None
    by: dict[str, Says] = field(default_factory=dict)
    before: tuple[tuple[int, dict[str, Any]], ...] = ()
    body: bytes = b""

    def expected(self, version: str) -> Says:
        """The expected answer of a broker of this version."""
        found = self.by.get(version, self.says)
        assert found is not None, f"{self.name} says nothing for {version}"
        return found

    def is_for(self, version: str) -> bool:
        """Whether there is an expected answer for this version."""
        return self.says is not None or version in self.by


class Stage:
    """Topics and groups of its own on a broker: `T`, `E` (empty), `W` (not readable).

    `T` has messages with TAGS and PROPERTIES in queue 0 and none in queue 1. `on`,
    `off` and `dead` are groups: a consumer of `on` is online and subscribes to tag A of
    T; `dead` may not consume.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = WireClient(address)
        self.online = WireClient(address)
        mark = uuid.uuid4().hex[:8]
        self.names = {
            name: f"{name}-{mark}"
            for name in (
                "T",
                "E",
                "W",
                "none",
                "on",
                "off",
                "dead",
                "fresh",
                "never",
                "holds",
            )
        }
        self.names |= {name: f"{name}-{mark}" for name in "HFC"}  # for holds
        for topic, perm in [("W", 2), *((name, 6) for name in "TEHFC")]:
            self.topic(self.names[topic], perm=perm)
        for number, tag in enumerate(TAGS):
            self.send(self.names["T"], tag, more=PROPERTIES[number])
        self._group("on")
        self._group("off")
        self._group("holds")
        self._group("dead", consumeEnable=False)
        self.heartbeat(sub_version=1000)

    def close(self) -> None:
        self.client.sock.close()
        self.online.sock.close()

    def ask(self, code: int, fields: dict[str, Any], *, body: bytes = b"") -> Any:
        """Send a request, with the names in braces replaced."""
        texts = {key: str(value).format(**self.names) for key, value in fields.items()}
        return self.client.ask(code, body=body, **texts)

    def must(self, code: int, fields: dict[str, Any], *, body: bytes = b"") -> Any:
        answer = self.ask(code, fields, body=body)
        assert answer.code == 0, answer
        return answer

    def topic(self, name: str, *, perm: int) -> None:
        self.must(
            17,
            {
                "topic": name,
                "defaultTopic": "TBW102",
                "readQueueNums": 2,
                "writeQueueNums": 2,
                "perm": perm,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": "false",
            },
        )

    def send(self, topic: str, tag: str, *, queue_id: int = 0, more: str = "") -> Any:
        properties = f"TAGS\x01{tag}\x02{more}"
        return send_with(self.client, topic, properties, queue_id=queue_id)

    def _group(self, name: str, **changes: Any) -> None:
        config = {"groupName": self.names[name], "consumeEnable": True, **changes}
        self.must(200, {}, body=json.dumps(config).encode())

    def heartbeat(self, *, sub_version: int) -> None:
        subscription = {
            "topic": self.names["T"],
            "subString": "A",
            "tagsSet": ["A"],
            "codeSet": [ord("A")],
            "subVersion": sub_version,
            "expressionType": "TAG",
        }
        beat = {
            "clientID": f"c@{self.names['on']}",
            "producerDataSet": [],
            "consumerDataSet": [
                {
                    "groupName": self.names["on"],
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [subscription],
                    "unitMode": False,
                }
            ],
        }
        opaque = self.online.send(34, body=json.dumps(beat).encode())
        while True:  # the notice of the group's change may come first
            answer = self.online.receive()
            if answer.is_response and answer.opaque == opaque:
                assert answer.code == 0, answer
                return


def send_with(
    client: WireClient,
    topic: str,
    properties: str,
    *,
    queue_id: int = 0,
    body: bytes = b"hello",
) -> Any:
    """Send one message, and return the answer."""
    fields = {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": 1_700_000_000_000,
        "h": 0,
        "i": properties,
        "j": 0,
        "k": "false",
        "m": "false",
    }
    answer = client.ask(310, body=body, **fields)
    assert answer.code == 0, answer
    return answer


def pull(**changes: Any) -> dict[str, Any]:
    """The fields of a pull."""
    fields = {
        "consumerGroup": "{off}",
        "topic": "{T}",
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return {**fields, **changes}


def ends(next_begin: int, low: int, high: int) -> dict[str, str | None]:
    """The fields of an answer with the next offset and the ends of the queue."""
    return {
        "nextBeginOffset": str(next_begin),
        "minOffset": str(low),
        "maxOffset": str(high),
        "suggestWhichBrokerId": "0",
    }


def queue(name: str = "{T}", queue_id: int = 0, **more: Any) -> dict[str, Any]:
    """The fields of a request about a queue."""
    return {"topic": name, "queueId": queue_id, **more}


def see(text: str) -> dict[str, str]:
    """A remark with each version's link to more details, by version."""
    return {v: f"{text}\nSee {url} for further details." for v, url in FAQ.items()}


def refused(code: int, text: str) -> dict[str, Says]:
    """A refusal with a link to more details, by version."""
    return {v: Says(code, remark) for v, remark in see(text).items()}


def forbidden(text: str, kind: int) -> dict[str, Says]:
    """The answer that permission is missing, by version; 5.x names the kind."""
    old = Says(16, text, {"forbiddenType": None})
    return {V4_6: old, V4_9: old, V5: Says(16, text, {"forbiddenType": str(kind)})}


FOUND = Says(0, "FOUND", ends(5, 0, 5), 5)


def nothing(code: int, remark: str, next_begin: int) -> Says:
    """An answer without messages, from queue 0 of T."""
    return Says(code, remark, ends(next_begin, 0, 5))


def old_and_new(old: Says, new: Says) -> dict[str, Says]:
    """The answers of 4.x and of 5.x, by version."""
    return {V4_6: old, V4_9: old, V5: new}
