"""Topics of batches (queue.type=BatchCQ): scenes for the embedded broker and real ones.

A batch with an id is stored as one record, which keeps its messages together.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from rmqcli.wire.message.batch import BatchItem, encode_batch
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import InnerMessage, StoredMessage
from tests.broker.behaviour.kinds import PULL, Scene
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

OFFSET = 14
SEND_BATCH, MIN, MAX, BY_TIME, BY_KEY, BY_ID, BACK = 320, 31, 30, 29, 12, 33, 36
POP, ACK = 200050, 200051


class Batches(Scene):
    """A topic of batches with four queues, and a group."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.topic = f"{self.topic}-batches"
        answer = self.make_topic(self.topic, "+queue.type=BatchCQ")
        assert answer.code == 0, answer

    def send_batch(
        self, bodies: str, *, queue_id: int = 0, code: int = SEND_BATCH, **outer: Any
    ) -> Any:
        """Send a message for each letter; return the answer.

        UNIQ_KEY of the batch is U, or what `outer` says.
        """
        properties = {"UNIQ_KEY": "U", **outer}
        answer = self.client.ask(
            code,
            a="pg",
            b=self.topic,
            c="TBW102",
            d=4,
            e=queue_id,
            f=0,
            g=1_700_000_000_000,
            h=0,
            i="".join(f"{k}\x01{v}\x02" for k, v in properties.items() if v),
            j=0,
            k="false",
            m="true",
            body=encode_batch(
                BatchItem(each.encode(), {"TAGS": f"tag-{each}"}) for each in bodies
            ),
        )
        if answer.code == 0:
            end = int(answer.ext_fields["queueOffset"]) + len(bodies)
            wait_until(lambda: self.bound(MAX, queue_id) == end)
        return answer

    def bound(self, code: int, queue_id: int = 0) -> int:
        answer = self.client.ask(code, topic=self.topic, queueId=queue_id)
        return int(answer.ext_fields["offset"])

    def pull(self, offset: int, *, queue_id: int = 0, **more: Any) -> tuple[str, int]:
        """Return the records of an answer, and the next offset.

        Those of batches are in brackets.
        """
        answer = self.pull_answer(offset, queue_id=queue_id, **more)
        return records(answer.body), int(answer.ext_fields["nextBeginOffset"])

    def pull_answer(self, offset: int, *, queue_id: int = 0, **more: Any) -> Any:
        fields = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
        }
        return self.client.ask(PULL, **{**fields, **more})

    def receive(self, count: int = 32, **more: Any) -> Any:
        fields = self.pop_fields(queueId=0, maxMsgNums=count, **more)
        answer = self.client.ask(POP, **{**fields, "topic": self.topic})
        assert answer.code == 0, answer
        return answer

    def in_order(self) -> dict[str, Any]:
        return {**self.pop_fields(queueId=0, order="true"), "topic": self.topic}

    def acknowledge(self, received: Any) -> Any:
        """Acknowledge the first message of queue 0 in the answer to a POP."""
        fields = received.ext_fields
        start = fields["startOffsetInfo"].split()[2]
        offset = fields["msgOffsetInfo"].split()[2].partition(",")[0]
        times = f"{fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']}"
        return self.client.ask(
            ACK,
            consumerGroup=self.group,
            topic=self.topic,
            queueId=0,
            offset=offset,
            extraInfo=f"{start} {times} 0 broker-a 0 {offset}",
        )

    def at_time(self, timestamp_ms: int, boundary: str) -> int:
        answer = self.client.ask(
            BY_TIME,
            topic=self.topic,
            queueId=0,
            timestamp=timestamp_ms,
            boundaryType=boundary,
        )
        return int(answer.ext_fields["offset"])


def records(data: bytes) -> str:
    """Bodies of records: `a[bc]` is a message and a batch of two."""
    text, last = "", -1
    for message in decode_messages(data):
        assert isinstance(message, StoredMessage)
        if isinstance(message, InnerMessage):
            begins = message.commit_log_offset != last
            text = f"{text}[" if begins else text[:-1]
            text += f"{message.body.decode()}]"
        else:
            text += message.body.decode()
        last = message.commit_log_offset
    return text


def one_record_holds_a_batch(scene: Batches) -> None:
    first = scene.send_batch("abc", KEYS="k", TAGS="t")
    second = scene.send_batch("de", code=310, UNIQ_KEY="V").ext_fields
    stored = decode_messages(scene.pull_answer(0).body)

    fields = first.ext_fields
    assert (fields["queueOffset"], second["queueOffset"]) == ("0", "3")
    assert (fields["batchUniqId"], second["batchUniqId"]) == ("U", "V")
    assert (fields["transactionId"], second["transactionId"]) == ("U", "V")
    assert len(fields["msgId"]) == 32
    assert (scene.bound(MIN), scene.bound(MAX)) == (0, 5)
    assert [
        (each.queue_offset, each.sys_flag, each.properties, each.offset_msg_id)
        for each in stored
        if isinstance(each, InnerMessage)
    ] == [
        (0, 0xC0, {"TAGS": "tag-a"}, fields["msgId"]),
        (1, 0xC0, {"TAGS": "tag-b"}, fields["msgId"]),
        (2, 0xC0, {"TAGS": "tag-c"}, fields["msgId"]),
        (3, 0xC0, {"TAGS": "tag-d"}, second["msgId"]),
        (4, 0xC0, {"TAGS": "tag-e"}, second["msgId"]),
    ]
    assert isinstance(stored[3], InnerMessage)
    assert isinstance(stored[0], InnerMessage)
    assert stored[3].record.properties["INNER_BASE"] == "3"
    assert stored[0].record.properties == {
        "INNER_BASE": "0",
        "INNER_NUM": "3",
        "UNIQ_KEY": "U",
        "KEYS": "k",
        "TAGS": "t",
        "CLUSTER": "DefaultCluster",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }


def a_batch_that_is_forwarded_loses_its_handle(scene: Batches) -> None:
    scene.send_batch("ab", POP_CK="0 1", POP_CK_OFFSET="7")
    scene.send_batch("c", code=310, UNIQ_KEY="V", POP_CK="0 1")

    stored = decode_messages(scene.pull_answer(0).body)
    batches = [each.record for each in stored if isinstance(each, InnerMessage)]
    assert [each.properties.get("POP_CK") for each in batches] == [None] * 3
    assert batches[0].properties["POP_CK_OFFSET"] == "7"


def a_batch_without_an_id_becomes_ordinary_messages(scene: Batches) -> None:
    answer = scene.send_batch("ab", UNIQ_KEY="")

    assert len(answer.ext_fields["msgId"]) == 32 + 1 + 32
    assert "batchUniqId" not in answer.ext_fields
    assert scene.pull(0) == ("ab", 2)
    assert scene.pull(1) == ("b", 2)


def single_messages_and_batches_share_a_queue(scene: Batches) -> None:
    for queue_id in (0, 1):
        if queue_id:
            scene.send("s", queue_id=queue_id)
        scene.send_batch("ab", queue_id=queue_id)
        scene.send("t", queue_id=queue_id)
        scene.send_batch("c", queue_id=queue_id)

    assert scene.pull(0) == ("[ab]t[c]", 4)
    assert scene.pull(0, queue_id=1) == ("s[ab]t[c]", 5)
    assert scene.pull(3, queue_id=1) == ("t[c]", 5)


def a_pull_within_a_batch_gets_the_whole_batch(scene: Batches) -> None:
    scene.send_batch("abc")
    scene.send("s")
    scene.send_batch("de")

    assert [scene.pull(offset) for offset in range(7)] == [
        ("[abc]s[de]", 6),
        ("[abc]s[de]", 6),
        ("[abc]s[de]", 6),
        ("s[de]", 6),
        ("[de]", 6),
        ("[de]", 6),
        ("", 6),
    ]
    limited = [
        [scene.pull(offset, maxMsgNums=count) for count in (1, 3, 4, 5, 6)]
        for offset in (0, 2, 3)
    ]
    assert limited[0] == limited[1]
    assert limited[1:] == [
        [("[abc]", 3), ("[abc]", 3), ("[abc]s", 4), ("[abc]s", 4), ("[abc]s[de]", 6)],
        [("s", 4), ("s[de]", 6), ("s[de]", 6), ("s[de]", 6), ("s[de]", 6)],
    ]
    outside = [scene.pull_answer(offset) for offset in (-1, 6, 7)]
    assert [(each.code, each.remark) for each in outside] == [
        (21, "OFFSET_TOO_SMALL"),
        (19, "OFFSET_OVERFLOW_ONE"),
        (21, "OFFSET_OVERFLOW_BADLY"),
    ]


def the_tags_of_the_batch_count_not_those_of_its_messages(scene: Batches) -> None:
    scene.send_batch("ab", TAGS="t")
    scene.send_batch("cd", TAGS="u")

    assert scene.pull(0, subscription="t") == ("[ab]", 4)
    assert scene.pull(1, subscription="u") == ("[cd]", 4)
    none = scene.pull_answer(0, subscription="tag-a")
    assert (none.code, none.ext_fields["nextBeginOffset"]) == (20, "4")


def a_time_leads_to_the_beginning_of_a_batch(scene: Batches) -> None:
    times = []
    for bodies in ("abc", "d", "ef", "gh"):
        scene.send_batch(bodies)
        (message, *_) = decode_messages(scene.pull_answer(scene.bound(MAX) - 1).body)
        assert isinstance(message, StoredMessage)
        times.append(message.store_timestamp_ms)
        wait_until(lambda: time.time() * 1000 > times[-1] + 10)

    found = {
        boundary: [
            [scene.at_time(each + step, boundary) for step in (-1, 0, 1)]
            for each in times
        ]
        for boundary in ("LOWER", "UPPER")
    }
    assert found == {
        "LOWER": [[0, 0, 3], [3, 3, 4], [4, 4, 6], [6, 6, 6]],
        "UPPER": [[0, 0, 0], [0, 3, 0], [0, 4, 6], [6, 6, 6]],
    }


def a_batch_is_found_by_its_id_and_its_own_keys(scene: Batches) -> None:
    answer = scene.send_batch("abc", KEYS="k1 k2")
    at = int(answer.ext_fields["msgId"][16:], 16)
    key: dict[str, Any] = {"topic": scene.topic, "maxNum": 9, "beginTimestamp": 0}
    key |= {"endTimestamp": 1 << 60}

    assert records(scene.client.ask(BY_ID, offset=at).body) == "[abc]"
    wait_until(lambda: scene.client.ask(BY_KEY, key="k2", **key).code == 0)
    assert records(scene.client.ask(BY_KEY, key="k2", **key).body) == "[abc]"
    unique = scene.client.ask(BY_KEY, key="U", _UNIQUE_KEY_QUERY="true", **key)
    assert records(unique.body) == "[abc]"


def a_message_of_a_batch_cannot_be_sent_back(scene: Batches) -> None:
    """Consumers send it to their retry topic themselves, then."""
    answer = scene.send_batch("abc")
    at = int(answer.ext_fields["msgId"][16:], 16)
    for level in (0, -1):
        answer = scene.client.ask(
            BACK,
            offset=at,
            group=scene.group,
            delayLevel=level,
            originMsgId="x",
            originTopic=scene.topic,
            unitMode="false",
            maxReconsumeTimes=16,
        )
        assert (answer.code, answer.remark) == (1, "MESSAGE_ILLEGAL")


def a_message_that_says_it_is_a_batch_is_refused(scene: Batches) -> None:
    for topic in (scene.topic, scene.topic.removesuffix("-batches")):
        scene.topic = topic
        answer = scene.client.ask(
            310,
            a="pg",
            b=topic,
            c="TBW102",
            d=4,
            e=0,
            f=0,
            g=1_700_000_000_000,
            h=0,
            i="INNER_NUM\x012\x02",
            j=0,
            k="false",
            m="false",
            body=b"a",
        )
        assert answer.code == 13
    assert scene.send_batch("ab", UNIQ_KEY="", INNER_NUM="2").code == 13
    assert scene.send_batch("ab", DELAY="1").code == 13
    assert scene.bound(MAX) == 0


def a_batch_is_received_as_one_message(scene: Batches) -> None:
    scene.send_batch("abc")
    scene.send("s")
    scene.send_batch("de")
    answers = [scene.receive(1), scene.receive(2), scene.receive(2)]

    assert [records(each.body) for each in answers] == ["[abc]", "s", "[de]"]
    names = ("startOffsetInfo", "msgOffsetInfo", "restNum")
    assert [[each.ext_fields[name] for name in names] for each in answers] == [
        ["0 0 0", "0 0 0", "3"],
        ["0 0 3", "0 0 3", "2"],
        ["0 0 4", "0 0 4", "0"],
    ]


def an_acknowledged_batch_comes_again_in_order(scene: Batches) -> None:
    """A broker takes the offset after the batch's first message for the next one.

    It lies within the batch, which therefore is never done.
    """
    scene.send_batch("ab")
    scene.send("s")
    first = scene.receive(1, order="true")
    waits = scene.client.ask(POP, **scene.in_order())
    assert scene.acknowledge(first).code == 0
    again = scene.receive(1, order="true")
    assert scene.acknowledge(again).code == 0
    after = scene.client.ask(POP, **scene.in_order())

    assert [records(each.body) for each in (first, again)] == ["[ab]", "[ab]"]
    assert again.ext_fields["orderCountInfo"] == "0 qo0%0 1;0 0 1"
    assert (waits.code, after.code) == (210, 210)
    committed = scene.client.ask(
        OFFSET, consumerGroup=scene.group, topic=scene.topic, queueId=0
    )
    assert committed.ext_fields["offset"] == "1"


def a_queue_without_messages_begins_at_minus_one(scene: Batches) -> None:
    answer = scene.pull_answer(0, queue_id=2)

    assert (scene.bound(MIN, 2), scene.bound(MAX, 2)) == (-1, 0)
    assert (answer.code, answer.remark) == (19, "NO_MESSAGE_IN_QUEUE")
    bounds = {"nextBeginOffset": "0", "minOffset": "-1", "maxOffset": "0"}
    assert {name: answer.ext_fields[name] for name in bounds} == bounds
    scene.send("s", queue_id=2)
    assert (scene.bound(MIN, 2), scene.bound(MAX, 2)) == (0, 1)


def run(scene: Callable[[Batches], None], address: str) -> None:
    """Play one scene on a broker."""
    with closing(Batches(address)) as batches:
        scene(batches)


SCENES = [
    one_record_holds_a_batch,
    a_batch_that_is_forwarded_loses_its_handle,
    a_batch_without_an_id_becomes_ordinary_messages,
    single_messages_and_batches_share_a_queue,
    a_pull_within_a_batch_gets_the_whole_batch,
    the_tags_of_the_batch_count_not_those_of_its_messages,
    a_time_leads_to_the_beginning_of_a_batch,
    a_batch_is_found_by_its_id_and_its_own_keys,
    a_message_of_a_batch_cannot_be_sent_back,
    a_message_that_says_it_is_a_batch_is_refused,
    a_batch_is_received_as_one_message,
    an_acknowledged_batch_comes_again_in_order,
    a_queue_without_messages_begins_at_minus_one,
]
