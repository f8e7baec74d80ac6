"""Lite topics: what is refused, hidden and forgotten, and exactly when."""

from __future__ import annotations

import pytest

from rmqcli.broker.effects import Peer
from rmqcli.wire.bodies.config import SubscriptionGroupConfig, TopicConfig
from rmqcli.wire.bodies.lite import (
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    OffsetOption,
)
from rmqcli.wire.body import encode_body
from rmqcli.wire.codes import RequestCode
from rmqcli.wire.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopLiteMessageRequestHeader,
)
from rmqcli.wire.receipt_handle import ReceiptHandle, encode_receipt_handle
from tests.broker.driving import CLIENT, Driver, need
from tests.broker.popping import messages
from tests.broker.sending import like, send

WAITING = Peer(2, "127.0.0.1:40002")
LMQ = "%LMQ%$T$a"


def change_of(*lite_topics, **fields):
    fields = {
        "action": "PARTIAL_ADD",
        "client_id": "me",
        "group": "g",
        "topic": "T",
        "lite_topic_set": list(lite_topics),
        **fields,
    }
    return LiteSubscriptionDTO(**fields)


class Lite:
    """A broker with the topic T of lite topics, which the group g consumes."""

    def __init__(self, expiration_minutes=-1, **options):
        self.driver = Driver(like("5.5.0"), **options)
        self.put_topic(
            "T",
            attributes={
                "message.type": "LITE",
                "lite.topic.expiration": str(expiration_minutes),
            },
        )
        self.put_group("g", {"lite.bind.topic": "T"})

    def put_topic(self, name, **changes):
        fields = {"read_queue_nums": 2, "write_queue_nums": 2, **changes}
        self.driver.broker.topics.put(TopicConfig(topic_name=name, **fields))

    def put_group(self, name, attributes, **changes):
        self.driver.broker.groups.put(
            SubscriptionGroupConfig(group_name=name, attributes=attributes, **changes)
        )

    def send(self, *bodies, topic="T"):
        for body in bodies:
            properties = {"__LITE_TOPIC": body[0]}
            sent = send(self.driver, topic, properties, body=body.encode())
            assert sent.code == 0

    def call(self, *changes, peer=CLIENT):
        """Change subscriptions; return the code."""
        body = LiteSubscriptionCtlRequestBody(subscription_set=list(changes))
        code = RequestCode.LITE_SUBSCRIPTION_CTL
        return need(self.driver.ask(code, body=encode_body(body), peer=peer)).code

    def subscribe(self, *lite_topics, peer=CLIENT, **fields):
        assert self.call(change_of(*lite_topics, **fields), peer=peer) == 0

    def header(self, changes):
        fields = {
            "client_id": "me",
            "consumer_group": "g",
            "topic": "T",
            "max_msg_num": 32,
            "invisible_time": 60_000,
            "poll_time": 0,
            "born_time": self.driver.now.epoch_ms,
        }
        return PopLiteMessageRequestHeader(**{**fields, **changes})

    def ask(self, **changes):
        header = self.header(changes)
        return need(self.driver.ask(RequestCode.POP_LITE_MESSAGE, header))

    def hold(self, **changes):
        """Send a receive that is held; return the list that its answer comes into."""
        code, header = RequestCode.POP_LITE_MESSAGE, self.header(changes)
        assert self.driver.ask(code, header, peer=WAITING) is None
        return self.driver.sent[WAITING.number]

    def pop(self, **changes):
        """Bodies with the number of earlier deliveries."""
        answer = self.ask(**changes)
        bodies = [each.raw_body.decode() for each in messages(answer)]
        counts = answer.ext_fields["orderCountInfo"].split(";") if bodies else []
        return list(zip(bodies, counts, strict=True))

    def handle(self, popped_ms, **changes):
        """The handle of a message that was received `popped_ms` after the start."""
        fields = {
            "start_offset": 0,
            "pop_time_ms": 1_700_000_000_000 + popped_ms,
            "invisible_ms": 60_000,
            "revive_queue_id": 999,
            "topic_type": "0",
            "broker_name": "broker-a",
            "queue_id": 0,
        }
        return encode_receipt_handle(ReceiptHandle(**{**fields, **changes}))

    def ack(self, offset, **changes):
        fields = {
            "consumer_group": "g",
            "topic": "T",
            "queue_id": 0,
            "extra_info": self.handle(0),
            "offset": offset,
            "lite_topic": "a",
        }
        header = AckMessageRequestHeader(**{**fields, **changes})
        answer = need(self.driver.ask(RequestCode.ACK_MESSAGE, header))
        return answer.code, answer.remark

    def change(self, offset, invisible_ms, *, suspend=False):
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group="g",
            topic="T",
            queue_id=0,
            extra_info=self.handle(0),
            offset=offset,
            invisible_time=invisible_ms,
            suspend=suspend,
            lite_topic="a",
        )
        code = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
        answer = need(self.driver.ask(code, header))
        names = ("popTime", "invisibleTime", "reviveQid")
        return answer.code, *(answer.ext_fields.get(name) for name in names)

    def committed(self):
        return self.driver.broker.offsets.query("g", LMQ, 0)

    def end(self):
        return (self.driver.store.queue_bounds(LMQ, 0) or (0, 0))[1]


@pytest.fixture
def lite():
    made = Lite()
    made.subscribe("a")
    return made


def test_each_message_of_a_batch_has_an_invisible_time_of_its_own(lite):
    lite.send("a1", "a2")
    assert lite.pop() == [("a1", "0"), ("a2", "0")]
    assert lite.ack(0) == (0, None)
    lite.driver.wait(500)
    # The new handle keeps the time of the receive, and counts from it.
    assert lite.change(1, 1_000) == (0, "1700000000000", "1500", "999")
    lite.driver.wait(999)
    assert lite.pop() == []
    lite.driver.wait(1)
    assert lite.pop() == [("a2", "1")]


def test_a_suspended_batch_is_visible_at_its_new_time_with_as_many_attempts(lite):
    lite.send("a1", "a2")
    assert lite.pop() == [("a1", "0"), ("a2", "0")]
    assert lite.change(1, 90_000, suspend=True) == (0, "1700000000000", "90000", "999")
    lite.driver.wait(89_999)
    assert lite.pop() == []
    lite.driver.wait(1)
    assert lite.pop() == [("a1", "1"), ("a2", "1")]


def test_a_change_that_no_time_can_hold_ends_with_the_time(lite):
    lite.send("a1")
    assert lite.pop() == [("a1", "0")]
    longest_ms = (1 << 63) - 1
    left = str(longest_ms - 1_700_000_000_000)
    assert lite.change(0, longest_ms) == (0, "1700000000000", left, "999")


def test_a_message_behind_the_group_s_offset_keeps_its_time(lite):
    lite.send("a1", "a2")
    lite.pop()
    assert lite.ack(0) == (0, None)
    assert lite.change(0, 1_000) == (0, "0", "0", "0")
    assert lite.ack(0) == (0, None)
    assert lite.committed() == 1


def test_a_message_beyond_the_end_of_a_lite_topic_is_refused(lite):
    """The next offset passes this check, as in RocketMQ, but is of no batch."""
    lite.send("a1", "a2")
    lite.pop()
    assert lite.change(3, 1_000) == (208, None, None, None)
    assert lite.change(2, 1_000)[0] == 0
    assert lite.ack(3) == (208, "ack offset illegal.")
    assert lite.ack(2) == (13, "ack offset illegal.")
    assert lite.pop() == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"consumer_group": "h"}, (29, "group type or bind topic not match.")),
        ({"lite_topic": "b"}, (208, "ack offset illegal.")),
        ({"queue_id": 1}, (29, "ack queue illegal.")),
        ({"revive_queue_id": 0}, (29, "ack queue illegal.")),
        ({"pop_time_ms": 1_700_000_000_001}, (13, "ack offset illegal.")),
    ],
)
def test_an_acknowledgement_of_something_else_is_refused(lite, changes, expected):
    lite.send("a1", "a2")
    lite.pop()
    parts = ("revive_queue_id", "pop_time_ms")
    handle = {key: changes.pop(key) for key in parts if key in changes}
    assert lite.ack(1, extra_info=lite.handle(0, **handle), **changes) == expected


def test_a_receive_gets_as_many_messages_as_it_wants_of_all_lite_topics(lite):
    lite.subscribe("b")
    lite.send("a1", "a2", "b1", "b2")
    assert lite.pop(max_msg_num=3) == [("a1", "0"), ("a2", "0"), ("b1", "0")]


NOT_BOUND = "subscription bind topic not match, "


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_msg_num": 33}, "the broker[127.0.0.1] pop message's num is greater"),
        ({"topic": "none"}, "topic [none] not exist, apply first please!"),
        ({"topic": "hidden"}, "the topic [hidden] peeking message is forbidden"),
        ({"topic": "plain"}, "the topic [plain] message type not match"),
        ({"consumer_group": "none"}, "subscription group [none] not exist,"),
        ({"consumer_group": "off"}, "subscription group no permission, off"),
        ({"consumer_group": "plain"}, f"{NOT_BOUND}plain"),
        ({"topic": "other"}, f"{NOT_BOUND}g"),
    ],
)
def test_a_receive_that_cannot_be_served_says_why(lite, changes, expected):
    lite.put_topic("hidden", perm=2)
    lite.put_topic("plain")
    lite.put_topic("other", attributes={"message.type": "LITE"})
    lite.put_group("plain", {})
    lite.put_group("off", {"lite.bind.topic": "T"}, consume_enable=False)
    answer = lite.ask(**changes)
    assert answer.code != 0
    assert (answer.remark or "").startswith(expected)


def test_a_receive_of_which_the_time_is_over_is_refused(lite):
    now_ms = lite.driver.now.epoch_ms
    in_time = lite.ask(born_time=now_ms - 1_500, poll_time=1_000)
    too_late = lite.ask(born_time=now_ms - 1_501, poll_time=1_000)
    assert (in_time.code, in_time.remark) == (210, "NO_MESSAGE_IN_QUEUE")
    assert (too_late.code, too_late.remark) == (
        210,
        "the broker[127.0.0.1] pop message is timeout too much",
    )


def test_a_receive_waits_until_50_ms_before_its_end(lite):
    born_ms = lite.driver.now.epoch_ms
    lite.driver.wait(1_950)
    held = lite.hold(born_time=born_ms, poll_time=2_000)
    assert held == []
    lite.driver.wait(1)
    (answer,) = held
    assert (answer.code, answer.remark) == (210, "NO_MESSAGE_IN_QUEUE")
    assert lite.ask(born_time=born_ms, poll_time=2_000).code == 210


@pytest.mark.parametrize(
    ("last_bytes", "topics"), [(3_931_891, "abcd"), (3_931_892, "abc")]
)
def test_the_lite_topics_of_one_answer_fit_into_15_mib(lite, last_bytes, topics):
    """A record here has 269 bytes beside its body."""
    lite.subscribe("b", "c", "d")
    lite.send("a" * 3_931_891, "b" * 3_931_891, "c" * 3_931_891, "d" * last_bytes)
    assert "".join(body[0] for body, _ in lite.pop()) == topics


def test_an_attempt_id_has_at_most_255_characters(lite):
    lite.send("a1")
    answer = lite.ask(attempt_id="x" * 256)
    assert (answer.code, answer.remark) == (
        29,
        "the attempt id has 256 characters; the maximum is 255",
    )
    assert lite.pop(attempt_id="x" * 255) == [("a1", "0")]


def test_an_attempt_gets_its_batch_again(lite):
    lite.send("a1")
    assert lite.pop(attempt_id="x") == [("a1", "0")]
    assert lite.pop(attempt_id="x") == [("a1", "0")]
    assert lite.pop(attempt_id="y") == []
    lite.driver.wait(60_000)
    assert lite.pop(attempt_id="y") == [("a1", "1")]


def test_a_receive_without_the_time_of_its_birth_is_born_when_it_arrives(lite):
    held = lite.hold(born_time=0, poll_time=2_000)
    lite.driver.wait(1_950)
    assert held == []
    lite.driver.wait(1)
    assert [each.remark for each in held] == ["NO_MESSAGE_IN_QUEUE"]


def test_a_batch_without_an_invisible_time_has_that_of_the_next_receive(lite):
    lite.send("a1")
    assert lite.pop(invisible_time=0) == [("a1", "0")]
    assert lite.pop(invisible_time=1_000) == []
    lite.driver.wait(1_000)
    assert lite.pop(invisible_time=1_000) == [("a1", "1")]


def test_a_receive_that_waits_gets_the_next_batch_with_the_last_acknowledgement(lite):
    lite.send("a1", "a2")
    lite.pop()
    held = lite.hold(poll_time=20_000)
    lite.send("a3")
    assert lite.ack(0) == (0, None)
    assert held == []
    assert lite.ack(1) == (0, None)
    (answer,) = held
    assert [each.raw_body for each in messages(answer)] == [b"a3"]


def test_an_acknowledgement_of_before_a_reset_leaves_the_new_offset(lite):
    lite.send("a1", "a2")
    lite.pop(max_msg_num=1)
    assert lite.ack(0) == (0, None)
    assert lite.pop() == [("a2", "0")]
    lite.subscribe("a", offset_option=OffsetOption(type="POLICY", value=1))
    assert lite.ack(1) == (0, None)
    assert lite.committed() == 0
    assert lite.pop() == [("a1", "0"), ("a2", "0")]


@pytest.mark.parametrize(
    ("minutes", "sent_ms", "checked_ms", "end"),
    [
        (20, 120_000, 1_320_000, 2),
        (20, 119_999, 1_320_000, 0),
        # Less than 15 min are 15 min.
        (1, 60_000, 960_000, 2),
        (1, 59_999, 960_000, 0),
        # Without a time of its own, a lite topic is kept.
        (-1, 60_000, 86_400_000, 2),
        (0, 60_000, 86_400_000, 2),
    ],
)
def test_a_lite_topic_is_kept_for_its_time_after_its_last_message(
    minutes, sent_ms, checked_ms, end
):
    """The first message starts the checks, which are 2 min apart."""
    lite = Lite(minutes)
    lite.send("a1")
    lite.driver.wait(sent_ms)
    lite.send("a2")
    lite.driver.wait(checked_ms - 1 - sent_ms)
    assert lite.end() == 2
    lite.driver.wait(1)
    assert lite.end() == end


@pytest.mark.parametrize(("first_check_ms", "end"), [(60_000, 0), (59_999, 1)])
def test_a_broker_deletes_no_lite_topic_in_its_first_15_minutes(first_check_ms, end):
    before = Lite()
    before.send("a1")
    before.driver.wait(86_400_000)
    after = Lite(20, store=before.driver.store, now=before.driver.now)
    after.driver.wait(first_check_ms)
    after.subscribe("b")
    after.driver.wait(900_000 - 1 - first_check_ms)
    assert after.end() == 1
    after.driver.wait(1)
    assert after.end() == end


@pytest.mark.parametrize(
    ("again_ms", "expected"), [(60_000, [("a1", "0")]), (59_999, [])]
)
def test_a_client_loses_its_lite_topics_3_minutes_after_its_last_call(
    lite, again_ms, expected
):
    """The first subscription starts the checks, which are 2 min apart."""
    lite.driver.wait(again_ms)
    lite.subscribe("b")
    lite.driver.wait(240_000 - again_ms)
    lite.send("a1")
    assert lite.pop() == expected


@pytest.mark.parametrize(
    ("option", "committed", "popped"),
    [
        (OffsetOption(type="TAIL_N", value=5), 0, [("a1", "0"), ("a2", "0")]),
        (OffsetOption(type="OFFSET", value=1), 1, [("a2", "0")]),
        # The group's own offset: the outstanding batch stays hidden.
        (OffsetOption(type="OFFSET", value=0), 0, []),
    ],
)
def test_an_offset_option_moves_the_group(lite, option, committed, popped):
    lite.send("a1", "a2")
    lite.pop(max_msg_num=1)
    if option.type == "TAIL_N":
        assert lite.ack(0) == (0, None)
    lite.subscribe("a", offset_option=option)
    assert lite.committed() == committed
    assert lite.pop() == popped


def test_a_client_has_the_lite_topics_of_one_group_and_one_topic(lite):
    lite.put_group("h", {"lite.bind.topic": "T"})
    lite.send("a1", "b1")
    assert lite.pop(consumer_group="h") == []
    lite.subscribe("b", group="h")
    assert lite.pop() == []
    assert lite.pop(consumer_group="h") == [("b1", "0")]
    lite.subscribe("a")
    lite.subscribe("b", topic="other")
    assert lite.pop() == []


def test_an_exclusive_group_takes_a_lite_topic_from_its_own_clients_only(lite):
    """The client that has lost it is told on the connection of its last call."""
    for group in ("g", "h"):
        lite.put_group(group, {"lite.bind.topic": "T", "lite.sub.model": "Exclusive"})
    lite.subscribe("b", peer=WAITING)
    lite.subscribe("a", client_id="other", group="h")
    lite.subscribe("a", client_id="two")
    (told,) = lite.driver.sent[WAITING.number][1:]
    assert (told.code, told.ext_fields["clientId"]) == (200073, "me")
    lite.send("a1")
    assert lite.pop() == []
    assert lite.pop(client_id="other", consumer_group="h") == [("a1", "0")]
    assert lite.pop(client_id="two") == [("a1", "0")]


def test_clients_of_a_group_take_turns(lite):
    two = Peer(3, "127.0.0.1:40003")
    lite.subscribe("a", client_id="two")
    lite.hold(poll_time=20_000)
    code = RequestCode.POP_LITE_MESSAGE
    header = lite.header({"client_id": "two", "poll_time": 20_000})
    assert lite.driver.ask(code, header, peer=two) is None
    lite.send("a1")
    assert len(lite.driver.sent[WAITING.number]) == 1
    assert lite.ack(0) == (0, None)
    lite.hold(poll_time=20_000)
    lite.send("a2")
    assert len(lite.driver.sent[WAITING.number]) == 1
    assert [each.raw_body for each in messages(lite.driver.sent[two.number][0])] == [
        b"a2"
    ]


def test_a_receive_that_waits_gets_the_messages_of_a_new_subscription(lite):
    lite.send("b1")
    held = lite.hold(poll_time=20_000)
    lite.subscribe("b")
    (answer,) = held
    assert [each.raw_body for each in messages(answer)] == [b"b1"]


def test_a_wildcard_is_for_the_lite_topics_of_one_topic(lite):
    lite.put_topic("other", attributes={"message.type": "LITE"})
    lite.put_group("w", {"lite.bind.topic": "T", "lite.sub.wildcard": "true"})
    lite.subscribe(action="COMPLETE_ADD", client_id="all", group="w")
    lite.send("x1", topic="other")
    held = lite.hold(client_id="all", consumer_group="w", poll_time=20_000)
    assert held == []
    lite.send("b1")
    (answer,) = held
    assert [each.raw_body for each in messages(answer)] == [b"b1"]
    lite.subscribe(action="COMPLETE_REMOVE", client_id="all", group="w")
    lite.send("c1")
    assert lite.pop(client_id="all", consumer_group="w") == []


@pytest.mark.slow
def test_a_broker_has_at_most_100_000_subscriptions(lite):
    many = ["a", *(f"a{number}" for number in range(100_000))]
    assert lite.call(change_of(*many, action="COMPLETE_ADD")) == 2018
    assert lite.call(change_of(*many[:-1], action="COMPLETE_ADD")) == 0
    assert lite.call(change_of("b")) == 2018
    assert lite.call(change_of("a1", action="PARTIAL_REMOVE")) == 0
    assert lite.call(change_of("b")) == 0


def test_a_broker_has_at_most_20_000_clients_with_lite_topics(lite):
    clients = [change_of(client_id=f"c{number}") for number in range(19_999)]
    assert lite.call(*clients) == 0
    assert lite.call(change_of(client_id="one more")) == 2018
    assert lite.call(change_of(action="COMPLETE_REMOVE")) == 0
    assert lite.call(change_of(client_id="one more")) == 0
