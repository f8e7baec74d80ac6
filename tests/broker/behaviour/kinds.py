"""Kinds of topics and messages: scenes for the embedded broker and real ones of 5.5.0.

Each scene has topics and a group of its own and needs no other state. It changes a
broker's settings where it has to, and changes them back.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from rmqcli.wire.recall_handle import RecallHandle, encode_recall_handle
from tests.broker.behaviour.pop import PopStage, Send, pop
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PULL, RECALL, SET_CONFIG, TOPIC, TOPICS, GROUP = 11, 370, 25, 17, 18, 200
SEND, SEND_V2, POP, ACK = 10, 310, 200050, 200051
PRIORITY = "_SYS_MSG_PRIORITY_"
QUEUES = 4


class Stage(Protocol):
    """Makes what a scene needs."""

    def __call__(self, attributes: str = "") -> Scene:
        """Make a topic with these attributes, and a group."""


class Scene(PopStage):
    """A topic of four queues and a group on a broker."""

    def __init__(self, address: str, attributes: str = "") -> None:
        super().__init__(address)
        self.answer = self.make_topic(self.topic, attributes)

    def make_topic(self, topic: str, attributes: str) -> Any:
        fields = {"attributes": attributes} if attributes else {}
        return self.client.ask(
            TOPIC,
            topic=topic,
            defaultTopic="TBW102",
            readQueueNums=QUEUES,
            writeQueueNums=QUEUES,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
            **fields,
        )

    def set(self, **settings: Any) -> None:
        text = "".join(f"{name}={value}\n" for name, value in settings.items())
        assert self.client.ask(SET_CONFIG, body=text.encode()).code == 0

    @contextmanager
    def settings(self, before: dict[str, Any], **settings: Any) -> Iterator[None]:
        """Change settings, and set those of `before` at the end."""
        self.set(**settings)
        try:
            yield
        finally:
            self.set(**before)

    def send(
        self, body: str, *, queue_id: int = 0, code: Any = SEND_V2, **properties: Any
    ) -> Any:
        """Send a message, and wait until it is in its queue; return the answer."""
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        fields = {
            "producerGroup": "pg",
            "topic": self.topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": queue_id,
            "sysFlag": 0,
            "bornTimestamp": 1_700_000_000_000,
            "flag": 0,
            "properties": text,
            "reconsumeTimes": 0,
            "unitMode": "false",
        }
        if code == SEND_V2:
            fields = dict(zip("abcdefghijk", fields.values(), strict=True))
        answer = self.client.ask(code, **fields, body=body.encode())
        assert answer.code == 0, answer
        queue_id, offset = map(
            int, map(answer.ext_fields.get, ("queueId", "queueOffset"))
        )
        wait_until(
            lambda: (
                int(
                    self.client.ask(30, topic=self.topic, queueId=queue_id).ext_fields[
                        "offset"
                    ]
                )
                > offset
            )
        )
        return answer

    def pop(self, count: int = 32, **more: Any) -> list[StoredMessage]:
        """Receive messages of all queues."""
        fields = self.pop_fields(queueId=-1, maxMsgNums=count, **more)
        answer = self.client.ask(POP, **fields)
        assert answer.code in (0, 210), answer
        self.note(answer)
        found = decode_messages(answer.body)
        assert all(isinstance(each, StoredMessage) for each in found)
        return found  # type: ignore[return-value]  # as asserted

    def pulled(self, queue_id: int = 0) -> list[StoredMessage]:
        """All messages of a queue, from its beginning."""
        answer = self.client.ask(
            PULL,
            consumerGroup=self.group,
            topic=self.topic,
            queueId=queue_id,
            queueOffset=0,
            maxMsgNums=32,
            sysFlag=4,
            commitOffset=0,
            suspendTimeoutMillis=0,
            subscription="*",
            subVersion=0,
        )
        return decode_messages(answer.body)  # type: ignore[return-value]


def a_popped_message_that_is_forwarded_has_its_own_handle(stage: Stage) -> None:
    scene = stage()
    scene.play(Send("a"))
    scene.play(pop("a"))
    handle = scene.handles["a"][0]
    scene.send("b", POP_CK=handle, KEYS="POP_CK")
    scene.send("c", KEYS="k", POP_CK=handle, POP_CK_OFFSET="7")
    scene.send("d", XPOP_CK="x")
    scene.send("e", code=SEND, POP_CK=handle)

    stored = scene.pulled()

    assert [each.properties.get("POP_CK") for each in stored] == [None] * 5
    assert stored[1].properties["KEYS"] == "POP_CK"
    assert stored[2].properties["POP_CK_OFFSET"] == "7"
    assert stored[3].properties["XPOP_CK"] == "x"
    assert [each.body for each in scene.pop()] == [b"b", b"c", b"d", b"e"]
    assert scene.handles["b"][0] != handle


def the_answers_to_a_recall_name_the_region(stage: Stage) -> None:
    scene = stage()
    due_ms = int(time.time() * 1000) + 30_000
    handle = encode_recall_handle(
        RecallHandle(
            topic=scene.topic,
            broker_name="broker-a",
            timestamp_ms=str(due_ms),
            message_id="01",
        )
    )
    fields = {"topic": scene.topic, "recallHandle": handle, "producerGroup": "p"}
    refused = scene.client.ask(RECALL, **fields)
    with scene.settings({"recallMessageEnable": "false"}, recallMessageEnable="true"):
        recalled = scene.client.ask(RECALL, **fields)

    assert (refused.code, refused.ext_fields) == (16, {"MSG_REGION": "DefaultRegion"})
    assert recalled.code == 0
    assert recalled.ext_fields == {"MSG_REGION": "DefaultRegion", "msgId": "01"}


def a_topic_for_all_kinds_needs_a_setting(stage: Stage) -> None:
    scene = stage()
    mixed = "+message.type=MIXED"
    refused = scene.make_topic(scene.topic, mixed)
    listed = {
        "topicConfigList": [
            {
                "topicName": f"{scene.topic}-listed",
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
                "attributes": {"+message.type": "MIXED"},
            }
        ]
    }
    refused_list = scene.client.ask(TOPICS, body=json.dumps(listed).encode())
    allowed = {"enableMixedMessageType": "true"}
    with scene.settings({"enableMixedMessageType": "false"}, **allowed):
        made = scene.make_topic(scene.topic, mixed)
        made_list = scene.client.ask(TOPICS, body=json.dumps(listed).encode())
    shown = scene.client.ask(351, topic=scene.topic)

    says = (29, "MIXED message type is not supported.")
    assert (refused.code, refused.remark) == says
    assert (refused_list.code, refused_list.remark) == says
    assert (made.code, made_list.code) == (0, 0)
    assert json.loads(shown.body)["attributes"] == {"message.type": "MIXED"}


def every_kind_of_topic_can_be_made(stage: Stage) -> None:
    scene = stage()
    for kind in (
        *("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE"),
    ):
        assert scene.make_topic(scene.topic, f"+message.type={kind}").code == 0, kind
    assert scene.make_topic(scene.topic, "+message.type=OTHER").code == 1


def a_priority_chooses_the_queue(stage: Stage) -> None:
    """On a topic of any type, and of messages that have no other kind."""
    for attributes in ("+message.type=PRIORITY", ""):
        scene = stage(attributes)
        places = [
            scene.send("a", queue_id=2, **{PRIORITY: value}).ext_fields["queueId"]
            for value in ("0", "1", "3", "4", "99", "+1", "-1", "x", str(1 << 31))
        ]
        assert places == ["0", "1", "3", "3", "3", "1", "2", "2", "2"]
        assert [each.properties[PRIORITY] for each in scene.pulled(3)] == [
            *("3", "4", "99"),
        ]
        assert [each.properties[PRIORITY] for each in scene.pulled(2)] == [
            *("-1", "x", str(1 << 31)),
        ]


def a_message_of_another_kind_loses_its_priority(stage: Stage) -> None:
    scene = stage()
    for other in ("__SHARDINGKEY", "TIMER_DELIVER_MS"):
        answer = scene.send("a", queue_id=2, **{PRIORITY: "1", other: "5"})
        assert answer.ext_fields["queueId"] == "2"
    assert [PRIORITY in each.properties for each in scene.pulled(2)] == [False] * 2


def the_highest_priority_is_received_first(stage: Stage) -> None:
    scene = stage("+message.type=PRIORITY")
    for value in (0, 3, 1, 2, 3):
        scene.send(f"{value}", **{PRIORITY: value})
    one_by_one = [scene.pop(1)[0].body for _ in range(5)]
    for value in (1, 0, 2):
        scene.send(f"{value}", **{PRIORITY: value})
    together = [each.body for each in scene.pop()]

    assert one_by_one == [b"3", b"3", b"2", b"1", b"0"]
    assert together == [b"2", b"1", b"0"]


def a_lower_number_can_be_the_higher_priority(stage: Stage) -> None:
    scene = stage("+message.type=PRIORITY")
    for value in (2, 0, 1):
        scene.send(f"{value}", **{PRIORITY: value})
    with scene.settings({"priorityOrderAsc": "true"}, priorityOrderAsc="false"):
        found = [each.body for each in scene.pop()]

    assert found == [b"0", b"1", b"2"]


def a_group_without_a_priority_factor_begins_anywhere(stage: Stage) -> None:
    scene = stage("+message.type=PRIORITY")
    config = {"groupName": scene.group, "attributes": {"+priority.factor": "0"}}
    assert scene.client.ask(GROUP, body=json.dumps(config).encode()).code == 0
    for value in range(QUEUES):
        for _ in range(20):
            scene.send("a", **{PRIORITY: value})
    queues = {scene.pop(1)[0].queue_id for _ in range(20)}

    assert len(queues) > 1  # with chance 1 - 4 ** -19 on a real broker


def messages_that_come_back_have_the_lowest_priority(stage: Stage) -> None:
    """Or the highest one, by a setting; in one queue, or in as many as their topic."""
    scene = stage("+message.type=PRIORITY")
    normal = {"useSeparateRetryQueue": "false", "popFromRetryProbabilityForPriority": 0}
    with scene.settings(normal, useSeparateRetryQueue="true"):
        for value in range(QUEUES):
            scene.send(f"{value}", **{PRIORITY: value})
        assert len(scene.pop(invisibleTime=1_000)) == QUEUES
        _wait_for_retries(scene)
        scene.send("new", **{PRIORITY: 0})
        found = [
            (each.body, each.queue_id, each.reconsume_times)
            for each in scene.pop(invisibleTime=1_000)
        ]
        assert found[0] == (b"new", 0, 0)
        assert found[1:] == [(b"%d" % each, each, 1) for each in (3, 2, 1, 0)]
        _wait_for_retries(scene, count=2)
        scene.set(popFromRetryProbabilityForPriority=100)
        scene.send("new", **{PRIORITY: 0})
        last = [(each.body, each.reconsume_times) for each in scene.pop()]
        assert last[:4] == [(b"3", 2), (b"2", 2), (b"1", 2), (b"new", 1)]
        assert last[4:] == [(b"0", 2), (b"new", 0)]


def _wait_for_retries(scene: Scene, *, count: int = 1) -> None:
    """Wait until each queue of the retry topic has had so many messages."""
    retry = f"%RETRY%{scene.group}_{scene.topic}"
    wait_until(
        lambda: all(
            int(scene.client.ask(30, topic=retry, queueId=each).ext_fields["offset"])
            >= count + (each == 0 and count > 1)
            for each in range(QUEUES)
        ),
        "retries",
    )


def run(scene: Callable[[Stage], None], address: str) -> None:
    """Play one scene on a broker."""
    with ExitStack() as stack:

        def stage(attributes: str = "") -> Scene:
            made = Scene(address, attributes)
            stack.callback(made.close)
            return made

        scene(stage)


SCENES = [
    a_popped_message_that_is_forwarded_has_its_own_handle,
    every_kind_of_topic_can_be_made,
    a_priority_chooses_the_queue,
    a_message_of_another_kind_loses_its_priority,
    the_highest_priority_is_received_first,
    a_group_without_a_priority_factor_begins_anywhere,
]
#: Those that change a broker's settings, which must not be in use elsewhere meanwhile.
CHANGING_SCENES = [
    the_answers_to_a_recall_name_the_region,
    a_topic_for_all_kinds_needs_a_setting,
    a_lower_number_can_be_the_higher_priority,
    messages_that_come_back_have_the_lowest_priority,
]
