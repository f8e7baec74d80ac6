"""POP as a client sees it: acts for the embedded broker and for real ones of 5.x.

An act is a sequence of steps: requests with the expected answers as literals. It has
its own topic of two queues and its own group. Messages are identified by their bodies;
the handle of a message is that of the last answer that contained it.
"""

from __future__ import annotations

import base64
import json
import select
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.record import StoredMessage
from tests.broker.behaviour.stage import send_with
from tests.broker.wire_client import WireClient
from tests.kit.waiting import PATIENCE_S, wait_until

POP, ACK, CHANGE, NOTIFY, POLLING, BATCH_ACK = (
    200050,
    200051,
    200053,
    200054,
    200055,
    200151,
)
INVISIBLE_MS = 1_500
LONG_MS = 60_000
#: Real brokers deliver messages again up to five seconds late.
BACK_MS_MAX = 40_000


@dataclass(frozen=True)
class Send:
    """Store messages with these bodies, each with the tag, if there is one."""

    bodies: str
    queue_id: int = 0
    tag: str = "A"


@dataclass(frozen=True)
class Pop:
    """Receive messages.

    `brings` are the expected bodies in order, with the number of earlier attempts, if
    any (`a1`: one); `says` are expected fields of the answer. With `until`, ask again
    until all messages have come.
    """

    brings: str = ""
    code: int = 0
    remark: str | None = None
    says: dict[str, str] = field(default_factory=dict)
    until: bool = False
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Ack:
    """Acknowledge a message."""

    body: str
    code: int = 0
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BatchAck:
    """Acknowledge messages of one batch together."""

    bodies: str


@dataclass(frozen=True)
class Change:
    """Change how long a message is invisible; its handle becomes the new one."""

    body: str
    invisible_ms: int
    code: int = 0
    keeps_handle: bool = False
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Offset:
    """Wait for the group's offset in a queue, which a real broker stores later."""

    offset: str
    queue_id: int = 0


@dataclass(frozen=True)
class Ask:
    """Send any other request."""

    code: int
    fields: dict[str, Any]
    answers: int = 0
    says: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    brings: dict[str, Any] | None = None


Step = Send | Pop | Ack | BatchAck | Change | Offset | Ask


def pop(brings: str = "", **more: Any) -> Pop:
    """Make a Pop; keywords that are not its fields are fields of the request."""
    own = {k: more.pop(k) for k in ("code", "remark", "says", "until") if k in more}
    return Pop(brings, more=more, **own)


def born_time() -> int:
    """The `bornTime` of a request, in the future.

    A broker refuses late requests, and on a busy machine a request may take long to
    arrive.
    """
    return int(time.time() * 1000) + LONG_MS


class PopStage:
    """A topic and a group on a broker, and a connection."""

    def __init__(self, address: str) -> None:
        self.client = WireClient(address)
        mark = uuid.uuid4().hex[:8]
        self.topic, self.group = f"T-{mark}", f"g-{mark}"
        self.names = {"T": self.topic, "g": self.group}
        self.handles: dict[str, tuple[str, str, int, int]] = {}
        self._ask(
            17,
            topic=self.topic,
            defaultTopic="TBW102",
            readQueueNums=2,
            writeQueueNums=2,
            perm=6,
            topicFilterType="SINGLE_TAG",
            topicSysFlag=0,
            order="false",
        )

    def close(self) -> None:
        self.client.sock.close()

    def _ask(self, code: int, *, body: bytes = b"", **fields: Any) -> Any:
        return self.client.ask(code, body=body, **fields)

    def play(self, step: Step) -> None:
        """Execute a step, and compare the answer."""
        match step:
            case Send(bodies, queue_id, tag):
                for body in bodies.split():
                    self._send(body, queue_id, tag)
            case Pop():
                self._pop(step)
            case Ack(body, code, more):
                answer = self._ask(ACK, **{**self._handle(body), **more})
                assert answer.code == code, answer
            case BatchAck(bodies):
                self._batch_ack(bodies.split())
            case Change():
                self._change(step)
            case Offset(offset, queue_id):
                fields: dict[str, Any] = {"topic": self.topic, "queueId": queue_id}
                wait_until(
                    lambda: (
                        self._ask(
                            14, consumerGroup=self.group, **fields
                        ).ext_fields.get("offset")
                        == offset
                    ),
                    f"offset {offset}",
                )
            case Ask():
                self._other(step)

    def _send(self, body: str, queue_id: int, tag: str) -> None:
        """Store a message, and wait until its queue has it: a real broker writes the
        queue a little after it has answered."""
        properties = f"TAGS\x01{tag}\x02n\x01{len(body)}\x02"
        answer = send_with(
            self.client, self.topic, properties, queue_id=queue_id, body=body.encode()
        )
        end = int(answer.ext_fields["queueOffset"]) + 1
        wait_until(
            lambda: (
                int(
                    self._ask(30, topic=self.topic, queueId=queue_id).ext_fields[
                        "offset"
                    ]
                )
                >= end
            ),
            f"offset {end} of the queue",
        )

    def _pop(self, step: Pop) -> None:
        end = time.monotonic() + BACK_MS_MAX / 1000
        shown: list[str] = []
        while True:
            answer = self._ask(POP, **self.pop_fields(**step.more))
            shown += self.note(answer)
            is_all = len(shown) >= len(step.brings.split())
            if not step.until or is_all or time.monotonic() > end:
                break
        if step.until:  # a real broker delivers them again one by one
            shown.sort()
        self.compare(step, answer, shown)

    def pop_fields(self, **more: Any) -> dict[str, Any]:
        """The fields of a POP request."""
        fields = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": 0,
            "maxMsgNums": 32,
            "invisibleTime": LONG_MS,
            "pollTime": 0,
            "bornTime": born_time(),
            "initMode": 1,
            "order": "false",
        }
        return {**fields, **more}

    def check(self, step: Pop, answer: Any) -> None:
        """Compare an answer to a POP, and note the handles."""
        self.compare(step, answer, self.note(answer))

    def compare(self, step: Pop, answer: Any, shown: list[str]) -> None:
        """Compare an answer to a POP with what the step says."""
        code = step.code if step.brings or step.code else 210
        assert (answer.code, shown) == (code, step.brings.split()), answer
        if step.remark is not None:
            assert answer.remark == step.remark
        fields = answer.ext_fields
        assert {key: fields.get(key) for key in step.says} == step.says, answer

    def note(self, answer: Any) -> list[str]:
        """Keep the handles of an answer's messages; return bodies with attempts."""
        fields = answer.ext_fields
        shown = []
        for message in decode_messages(answer.body):
            assert isinstance(message, StoredMessage)
            shown.append(f"{message.body.decode()}{message.reconsume_times or ''}")
            assert message.topic == self.topic
            handle = message.properties.get("POP_CK")
            if handle is None:
                (start,) = (
                    start
                    for kind, queue_id, start in map(
                        str.split, fields["startOffsetInfo"].split(";")
                    )
                    if (kind, queue_id) == ("0", str(message.queue_id))
                )
                handle = " ".join(
                    [
                        start,
                        fields["popTime"],
                        fields["invisibleTime"],
                        fields["reviveQid"],
                        "0 broker-a",
                        str(message.queue_id),
                        str(message.queue_offset),
                    ]
                )
            is_retry = handle.split()[4] == "1"
            topic = f"%RETRY%{self.group}_{self.topic}" if is_retry else self.topic
            place = (handle, topic, message.queue_id, message.queue_offset)
            self.handles[message.body.decode()] = place
        return shown

    def _handle(self, body: str) -> dict[str, Any]:
        handle, topic, queue_id, offset = self.handles[body]
        return {
            "consumerGroup": self.group,
            "topic": topic,
            "queueId": queue_id,
            "extraInfo": handle,
            "offset": offset,
        }

    def _batch_ack(self, bodies: list[str]) -> None:
        parts = self.handles[bodies[0]][0].split()
        bits = 0
        for body in bodies:
            bits |= 1 << self.handles[body][3] - int(parts[0])
        ack = {
            "c": self.group,
            "t": self.topic,
            "r": parts[4],
            "so": int(parts[0]),
            "q": int(parts[6]),
            "rq": int(parts[3]),
            "pt": int(parts[1]),
            "it": int(parts[2]),
            "b": base64.b64encode(bits.to_bytes(4, "little")).decode(),
        }
        data = json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode()
        assert self._ask(BATCH_ACK, body=data).code == 0

    def _change(self, step: Change) -> None:
        fields = {**self._handle(step.body), "invisibleTime": step.invisible_ms}
        answer = self._ask(CHANGE, **{**fields, **step.more})
        assert answer.code == step.code, answer
        if step.code or step.keeps_handle:
            return
        handle, topic, queue_id, offset = self.handles[step.body]
        parts = handle.split()
        assert answer.ext_fields["reviveQid"] == parts[3]
        if parts[3] == "999":
            assert answer.ext_fields["popTime"] == parts[1]
        else:
            assert answer.ext_fields["invisibleTime"] == str(step.invisible_ms)
            parts[0] = str(offset)
        parts[1] = answer.ext_fields["popTime"]
        parts[2] = answer.ext_fields["invisibleTime"]
        self.handles[step.body] = (" ".join(parts), topic, queue_id, offset)

    def _other(self, step: Ask) -> None:
        text = json.dumps({"f": step.fields, "b": step.body})
        for name, value in self.names.items():
            text = text.replace(f"<{name}>", value)
        given = json.loads(text)
        ahead = born_time()
        fields = {k: ahead if v == "ahead" else v for k, v in given["f"].items()}
        body = b"" if given["b"] is None else json.dumps(given["b"]).encode()
        answer = self._ask(step.code, body=body, **fields)
        found = {key: answer.ext_fields.get(key) for key in step.says}
        assert (answer.code, found) == (step.answers, step.says), answer
        if step.brings is not None:
            said = answer.body.decode()
            for name, value in self.names.items():
                said = said.replace(value, f"<{name}>")
            assert json.loads(said) == step.brings


REFUSED: dict[str, tuple[Step, ...]] = {
    "an unknown topic": (pop(code=17, topic="none-there"),),
    "a queue beyond the topic's": (pop(code=29, queueId=2),),
    "33 messages": (pop(code=29, maxMsgNums=33),),
    "minus one message": (Send("a"), pop(code=1, maxMsgNums=-1)),
    "no message": (Send("a"), pop(maxMsgNums=0), pop("a")),
    "a request that comes too late": (
        Send("a"),
        pop(code=210, bornTime=1_000, pollTime=1_000),
    ),
    "no time to wait": (pop(remark="NO_MESSAGE_IN_QUEUE", pollTime=0),),
    "tags that cannot be read": (pop(code=23, exp="||", expType="TAG"),),
    "SQL that cannot be read": (pop(code=23, exp="a =", expType="SQL92"),),
    "a language that nobody knows": (pop(code=23, exp="a", expType="XPATH"),),
    "an acknowledgement for an unknown topic": (
        Send("a"),
        pop("a"),
        Ack("a", 17, {"topic": "none-there"}),
    ),
    "an acknowledgement for an unknown queue": (
        Send("a"),
        pop("a"),
        Ack("a", 13, {"queueId": 2}),
        Ack("a", 13, {"queueId": -1}),
    ),
    "an acknowledgement out of range": (
        Send("a"),
        pop("a"),
        Ack("a", 208, {"offset": 2}),
        Ack("a", 208, {"offset": -1}),
        Ack("a", 0, {"offset": 1}),
    ),
    "an acknowledgement with a handle of rubbish": (
        Send("a"),
        pop("a"),
        Ack("a", 1, {"extraInfo": "rubbish"}),
        Ack("a", 1, {"extraInfo": "0 x 1 0 0 broker-a 0 0"}),
        Ack("a", 0, {"extraInfo": "0 1 1 0 0 broker-a 0 0"}),
    ),
    "a change for an unknown topic": (
        Send("a"),
        pop("a"),
        Change("a", 1_000, 17, more={"topic": "none-there"}),
    ),
    "a change for an unknown queue": (
        Send("a"),
        pop("a"),
        Change("a", 1_000, 13, more={"queueId": 7}),
    ),
    "a change out of range": (
        Send("a"),
        pop("a"),
        Change("a", 1_000, 208, more={"offset": 1}),
    ),
    "a change with a handle of rubbish": (
        Send("a"),
        pop("a"),
        Change("a", 1_000, 1, more={"extraInfo": "rubbish"}),
    ),
    "a change to ten years": (
        Send("a"),
        pop("a"),
        Change("a", 315_360_000_000, 1),
    ),
    "a batch of no acknowledgements": (
        Ask(BATCH_ACK, {}, 208, body={"brokerName": "broker-a", "acks": []}),
    ),
}

BASICS: dict[str, tuple[Step, ...]] = {
    "the offset moves when messages are given out": (
        Send("a b c"),
        pop(
            "a b",
            maxMsgNums=2,
            says={
                "restNum": "1",
                "startOffsetInfo": "0 0 0",
                "msgOffsetInfo": "0 0 0,1",
                "invisibleTime": "60000",
            },
        ),
        Offset("2"),
        pop("c", says={"restNum": "0", "startOffsetInfo": "0 0 2"}),
        Ack("a"),
        Ack("b"),
        Offset("3"),
        pop(),
    ),
    "any queue brings all queues": (
        Send("a"),
        Send("b", queue_id=1),
        pop("a", queueId=0),
        pop("b", queueId=-1),
    ),
    "a tag": (
        Send("a", tag="X"),
        Send("b", tag="Y"),
        Send("c", tag="X"),
        pop("a c", exp="X", expType="TAG", says={"msgOffsetInfo": "0 0 0,2"}),
        Offset("3"),
    ),
    "an SQL expression": (
        Send("a bb c"),
        pop("bb", exp="n = 2", expType="SQL92", says={"msgOffsetInfo": "0 0 1"}),
    ),
    "only what is not acknowledged comes back": (
        Send("a b c"),
        pop("a b c", invisibleTime=INVISIBLE_MS),
        Ack("b"),
        pop("a1 c1", until=True),
        Ack("a"),
        Ack("c"),
        pop(),
    ),
    "a message comes back again and again": (
        Send("a"),
        pop("a", invisibleTime=INVISIBLE_MS),
        pop("a1", until=True, invisibleTime=INVISIBLE_MS),
        pop("a2", until=True, invisibleTime=INVISIBLE_MS),
        Ack("a"),
        Ask(14, {"consumerGroup": "<g>", "topic": "%RETRY%<g>_<T>", "queueId": 0}),
    ),
    "what came back is deleted with its topic": (
        Send("a"),
        pop("a", invisibleTime=INVISIBLE_MS),
        pop("a1", until=True),
        Ask(351, {"topic": "%RETRY%<g>_<T>"}),
        Ask(215, {"topic": "<T>"}),
        Ask(351, {"topic": "%RETRY%<g>_<T>"}, 17),
    ),
    "a batch of acknowledgements": (
        Send("a b c d"),
        pop("a b c d", invisibleTime=INVISIBLE_MS),
        BatchAck("a c"),
        pop("b1 d1", until=True),
    ),
    "a change renews the handle": (
        Send("a b"),
        pop("a b", invisibleTime=INVISIBLE_MS),
        Change("a", LONG_MS),
        pop("b1", until=True),
        Ack("a"),
        Ack("b"),
        pop(),
    ),
    "a change to a shorter time brings the message back sooner": (
        Send("a b"),
        pop("a b"),
        Change("b", INVISIBLE_MS),
        pop("b1", until=True),
    ),
    "an attempt that was suspended does not count": (
        Send("a"),
        pop("a"),
        Change("a", INVISIBLE_MS, more={"suspend": "true"}),
        pop("a", until=True, says={"startOffsetInfo": "1 0 0"}),
    ),
    "the old handle is void after a change": (
        Send("a"),
        pop("a"),
        Change("a", INVISIBLE_MS, keeps_handle=True),
        Ack("a"),
        pop("a1", until=True),
    ),
    "a time below zero is over at once": (
        Send("a"),
        pop("a", invisibleTime=-5_000),
        pop("a1", until=True),
    ),
    "a time of ten years": (
        Send("a b"),
        pop("a", maxMsgNums=1, invisibleTime=315_360_000_000),
        pop("b"),
        pop(),
        Ack("a"),
    ),
}

ORDERLY: dict[str, tuple[Step, ...]] = {
    "a queue is blocked until all of a batch is acknowledged": (
        Send("a b c"),
        pop(
            "a b",
            order="true",
            maxMsgNums=2,
            says={"reviveQid": "999", "orderCountInfo": "0 0 0"},
        ),
        Offset("0"),
        pop(order="true"),
        Ack("a"),
        Offset("1"),
        pop(order="true"),
        Ack("b"),
        Offset("2"),
        pop("c", order="true", says={"orderCountInfo": "0 0 0"}),
    ),
    "what is not acknowledged comes again in place": (
        Send("a b"),
        pop("a b", order="true", invisibleTime=INVISIBLE_MS),
        Ack("a"),
        pop(
            "b",
            order="true",
            until=True,
            says={"startOffsetInfo": "0 0 1", "orderCountInfo": "0 qo0%1 1;0 0 1"},
        ),
    ),
    "a gap is filled before the offset moves": (
        Send("a b"),
        pop("a b", order="true", invisibleTime=INVISIBLE_MS),
        Ack("b"),
        Offset("0"),
        pop("a b", order="true", until=True),
        Ack("a"),
        Ack("b"),
        Offset("2"),
    ),
    "the same attempt gets its batch again": (
        Send("a"),
        pop("a", order="true", attemptId="x"),
        pop(order="true", attemptId="y"),
        pop("a", order="true", attemptId="x", says={"orderCountInfo": "0 0 0"}),
    ),
    "a change hides a message in its place": (
        Send("a"),
        pop("a", order="true"),
        Change("a", INVISIBLE_MS),
        pop("a", order="true", until=True, says={"orderCountInfo": "0 qo0%0 1;0 0 1"}),
    ),
}

_QUERY = {
    "clientId": "c",
    "consumerGroup": "<g>",
    "messageModel": "CLUSTERING",
    "strategyName": "AVG",
    "topic": "<T>",
}
ASSIGNMENTS: dict[str, tuple[Step, ...]] = {
    "a group without members has no assignment": (
        Ask(400, {}, body=_QUERY, brings={}),
    ),
    "a mode for an unknown topic": (
        Ask(
            401,
            {},
            17,
            body={"topic": "none-there", "consumerGroup": "<g>", "mode": "POP"},
        ),
    ),
    "a mode for a retry topic": (
        Ask(
            401,
            {},
            16,
            body={"topic": "%RETRY%<g>", "consumerGroup": "<g>", "mode": "POP"},
        ),
    ),
    "a mode that is set": (
        Ask(401, {}, body={"topic": "<T>", "consumerGroup": "<g>", "mode": "POP"}),
    ),
}

WAITING: dict[str, tuple[Step, ...]] = {
    "a notification says whether there are messages": (
        Ask(
            NOTIFY,
            {
                "consumerGroup": "<g>",
                "topic": "<T>",
                "queueId": 0,
                "pollTime": 0,
                "bornTime": "ahead",
            },
            says={"hasMsg": "false", "pollingFull": "false"},
        ),
        Send("a"),
        Ask(
            NOTIFY,
            {
                "consumerGroup": "<g>",
                "topic": "<T>",
                "queueId": -1,
                "pollTime": 0,
                "bornTime": "ahead",
            },
            says={"hasMsg": "true"},
        ),
    ),
    "nobody waits": (
        Ask(
            POLLING,
            {"consumerGroup": "<g>", "topic": "<T>", "queueId": 0},
            says={"pollingNum": "0"},
        ),
    ),
}

ACTS = {**REFUSED, **BASICS, **ORDERLY, **ASSIGNMENTS, **WAITING}


def act(address: str, name: str) -> None:
    """Play one act on the broker at `address`."""
    stage = PopStage(address)
    try:
        for step in ACTS[name]:
            stage.play(step)
    finally:
        stage.close()


def a_message_wakes_a_request(address: str) -> None:
    """One message wakes one of the waiting requests, and the others keep waiting."""
    stage = PopStage(address)
    waiting = [WireClient(address) for _ in range(2)]
    count = {"consumerGroup": stage.group, "topic": stage.topic, "queueId": -1}

    def polling() -> str:
        found = stage.client.ask(POLLING, **count).ext_fields["pollingNum"]
        return str(found)

    for number, client in enumerate(waiting, start=1):
        client.send(POP, **stage.pop_fields(queueId=-1, pollTime=LONG_MS))
        # One after the other: a broker reads two connections in any order.
        wait_until(
            lambda number=number: polling() == str(number), f"request {number} waits"
        )
    stage.play(Send("a"))
    # The first in line has the earliest end by the wall clock, which may be set back
    # between the two.
    first, second = waiting
    poll = select.poll()  # unlike select(), it takes file descriptors above 1023
    for each in waiting:
        poll.register(each.sock, select.POLLIN)
    ready = {number for number, _ in poll.poll(PATIENCE_S * 1_000)}
    if first.sock.fileno() not in ready:
        first, second = second, first
    stage.check(Pop("a"), first.receive())
    # A broker may look for messages for the other one as well, and then hold it again.
    wait_until(lambda: polling() == "1", "the other request waits")
    stage.play(Send("b", queue_id=1))
    stage.check(Pop("b"), second.receive())
    for client in (*waiting, stage.client):
        client.sock.close()


def a_request_ends_with_its_time(address: str) -> None:
    """Without messages the answer is 210, a little before the client gives up."""
    stage = PopStage(address)
    before, before_ms = time.monotonic(), time.time() * 1000
    times = {"pollTime": 3_000, "bornTime": int(before_ms)}
    answer = stage.client.ask(POP, **stage.pop_fields(**times))
    assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")
    assert time.monotonic() - before > 2
    stage.close()


SCENES = [a_message_wakes_a_request, a_request_ends_with_its_time]
