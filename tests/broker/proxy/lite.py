"""What consumers of lite topics get: one table for the embedded proxy and a real one.

Each case makes its own topic and group, sends by a raw client, and returns what clients
saw. Lite topics are of a topic of type LITE; a group is bound to that topic.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from rmqcli.wire.protobuf import definition_pb2 as d
from rmqcli.wire.protobuf import service_pb2 as s
from tests.kit.clients.member import GrpcMember
from tests.kit.proxy.raw_client import (
    GrpcClient,
    Received,
    code_of,
    consumer_settings,
    message,
    resource,
)
from tests.kit.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PARTIAL_ADD = d.LiteSubscriptionAction.PARTIAL_ADD
PARTIAL_REMOVE = d.LiteSubscriptionAction.PARTIAL_REMOVE
COMPLETE_ADD = d.LiteSubscriptionAction.COMPLETE_ADD
COMPLETE_REMOVE = d.LiteSubscriptionAction.COMPLETE_REMOVE
#: The shortest time that a proxy takes for a receive.
INVISIBLE_MS = 10_000
_PATIENCE_S = 120


CONSUMED = {"a": ["a1", "a2", "a3"], "b": ["b1", "b2"], "c": []}


def consumed_by(who: str, lite: Lite, directory: Path) -> dict[str, list[str]]:
    """What an official client, "java" or "python", consumes of two lite topics, before
    and after it is restarted. Raises UnavailableError if it cannot be fetched.
    """
    found: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    for round_, bodies in enumerate((("a1", "c1", "b1", "a2"), ("b2", "c2", "a3"))):
        folder = directory / str(round_)
        folder.mkdir()
        member = GrpcMember(
            *(who, "lite"),
            endpoints=lite.endpoints,
            group=lite.group,
            topic=lite.topic,
            directory=folder,
            lite_topics=("a", "b"),
        )
        try:
            lite.send(*bodies)
            wanted = [body for body in bodies if body[0] != "c"]
            _wait_for_bodies(member, len(wanted))
            member.stop()
        finally:
            member.kill()
        for body in sorted(member.bodies("done")):  # its listener has several threads
            found[body[0]].append(body)
    return found


def _wait_for_bodies(member: GrpcMember, count: int) -> None:
    wait_until(lambda: len(member.bodies("done")) >= count, "messages")


@dataclass(frozen=True)
class Case:
    """What clients see. `real` is RocketMQ's answer where ours differs on purpose."""

    act: Callable[[Lite], Any]
    expected: Any
    real: Any


CASES: dict[str, Case] = {}


def case(
    expected: Any, *, real: Any = None
) -> Callable[[Callable[[Lite], Any]], Callable[[Lite], Any]]:
    """Put a function into the table under its name, with what it returns."""

    def keep(act: Callable[[Lite], Any]) -> Callable[[Lite], Any]:
        CASES[act.__name__] = Case(act, expected, expected if real is None else real)
        return act

    return keep


class Lite:
    """One case's topic of type LITE and the groups that are bound to it.

    `wait_for` calls a function that receives messages, and lets time pass meanwhile.
    """

    def __init__(
        self,
        endpoints: str,
        create_topic: Callable[[str, str | None], object],
        create_group: Callable[[str, dict[str, str]], object],
        wait_for: Callable[[Callable[[], Received]], Received],
    ) -> None:
        self.endpoints = endpoints
        self._create_topic = create_topic
        self._create_group = create_group
        self.wait_for = wait_for
        self.topic = self.new_topic("LITE")
        self.group = self.new_group()
        self.producer = GrpcClient(endpoints)

    def close(self) -> None:
        self.producer.close()

    def new_topic(self, kind: str | None) -> str:
        name = f"L{time.time_ns():x}"
        self._create_topic(name, kind)
        return name

    def new_group(self, topic: str | None = None, **attributes: str) -> str:
        """Make a group; `attributes` have _ for a dot."""
        name = f"G{time.time_ns():x}"
        dotted = {key.replace("_", "."): value for key, value in attributes.items()}
        self._create_group(name, {"lite.bind.topic": topic or self.topic, **dotted})
        return name

    def send(self, *names: str) -> list[str]:
        """Send messages such as `a1`, whose lite topic is the letter; their codes."""
        return [
            code_of(
                self.producer.send(
                    message(
                        self.topic,
                        name.encode(),
                        lite_topic=name[0],
                        message_type=d.MessageType.LITE,
                    )
                )
            )
            for name in names
        ]

    @contextmanager
    def member(
        self, *lite_topics: str, group: str = "", **options: Any
    ) -> Iterator[Member]:
        """A member that has subscribed lite topics, one after the other."""
        with Member(self, group or self.group, **options) as member:
            for each in lite_topics:
                assert member.sync(PARTIAL_ADD, each) == "OK"
            yield member


class Member(GrpcClient):
    """A consumer of lite topics with its telemetry stream."""

    def __init__(self, lite: Lite, group: str, **options: Any) -> None:
        super().__init__(lite.endpoints, **options)
        self.lite = lite
        self.group = group
        kind = d.ClientType.LITE_PUSH_CONSUMER
        self.stream = self.telemetry(consumer_settings(group, lite.topic, kind=kind))

    def sync(
        self,
        action: d.LiteSubscriptionAction,
        *lite_topics: str,
        topic: str = "",
        **option: Any,
    ) -> str:
        request = s.SyncLiteSubscriptionRequest(
            action=action,
            topic=resource(topic or self.lite.topic),
            group=resource(self.group),
            lite_topic_set=lite_topics,
        )
        if option:
            request.offset_option.CopyFrom(d.OffsetOption(**option))
        return code_of(self.call("SyncLiteSubscription", request))

    def get(self, **options: Any) -> Received:
        options = {"invisible_ms": INVISIBLE_MS, **options}
        return self.lite.wait_for(
            lambda: self.receive(self.group, self.lite.topic, **options)
        )

    def nothing(self) -> str:
        """The code of a receive that waits for messages in vain."""
        found = self.get()
        return found.code if not found.messages else f"got {names(found.messages)}"

    def gather(self, count: int, *, acks: bool = True) -> list[Any]:
        """Receive until there are `count` messages, and acknowledge them."""
        found: list[Any] = []
        ends = time.monotonic() + _PATIENCE_S
        while len(found) < count and time.monotonic() < ends:
            some = self.get().messages
            found += some
            if acks:
                for each in some:
                    assert self.done(each) == "OK"
        return found

    def done(self, each: Any, **changes: Any) -> str:
        """Acknowledge a message; return the code of its entry."""
        entry = s.AckMessageEntry(
            message_id=each.system_properties.message_id,
            receipt_handle=each.system_properties.receipt_handle,
            lite_topic=each.system_properties.lite_topic,
        )
        entry.MergeFrom(s.AckMessageEntry(**changes))
        answer = self.call(
            "AckMessage",
            s.AckMessageRequest(
                group=resource(self.group),
                topic=resource(self.lite.topic),
                entries=[entry],
            ),
        )
        return code_of(answer.entries[0])

    def later(self, each: Any, invisible_ms: int, **fields: Any) -> tuple[str, str]:
        """Change a message's invisible time; return the code and the new handle."""
        request = s.ChangeInvisibleDurationRequest(
            group=resource(self.group),
            topic=resource(self.lite.topic),
            receipt_handle=each.system_properties.receipt_handle,
            message_id=each.system_properties.message_id,
            lite_topic=each.system_properties.lite_topic,
            **fields,
        )
        request.invisible_duration.FromMilliseconds(invisible_ms)
        answer = self.call("ChangeInvisibleDuration", request)
        return code_of(answer), answer.receipt_handle

    def bury(self, each: Any, *, lite_topic: str) -> str:
        """Forward a message to the group's dead letters; return the code."""
        request = s.ForwardMessageToDeadLetterQueueRequest(
            group=resource(self.group),
            topic=resource(self.lite.topic),
            receipt_handle=each.system_properties.receipt_handle,
            message_id=each.system_properties.message_id,
            lite_topic=lite_topic,
        )
        return code_of(self.call("ForwardMessageToDeadLetterQueue", request))


def names(messages: list[Any]) -> list[str]:
    return [each.body.decode() for each in messages]


def attempts(messages: list[Any]) -> list[str]:
    """Bodies with delivery attempts."""
    return [
        f"{each.body.decode()} {each.system_properties.delivery_attempt}"
        for each in messages
    ]


def by_topic(messages: list[Any]) -> dict[str, list[str]]:
    """Bodies by lite topic, in the order in which they came."""
    found: dict[str, list[str]] = {}
    for each in messages:
        body = each.body.decode()
        found.setdefault(each.system_properties.lite_topic, []).append(body)
    return dict(sorted(found.items()))


@case({"a": ["a1", "a2"], "b": ["b1"]})
def only_subscribed_lite_topics(lite: Lite) -> Any:
    with lite.member("a", "b") as member:
        assert lite.send("a1", "c1", "b1", "a2") == ["OK"] * 4
        found = member.gather(3)
        assert member.nothing() == "MESSAGE_NOT_FOUND"
        return by_topic(found)


@case(
    {
        "body": "a2",
        "lite_topic": "a",
        "type": "LITE",
        "queue_offset": 1,
        "attempt": 1,
        "in lmq": "%LMQ%$TOPIC$a",
        "handle": ["0", "999", "0", "0", "1"],
    }
)
def what_a_message_shows(lite: Lite) -> Any:
    with lite.member("a") as member:
        lite.send("a1", "b1", "a2")
        second = member.gather(2)[-1]
    system = second.system_properties
    handle = system.receipt_handle.split(" ")
    return {
        "body": second.body.decode(),
        "lite_topic": system.lite_topic,
        "type": d.MessageType.Name(system.message_type),
        "queue_offset": system.queue_offset,
        "attempt": system.delivery_attempt,
        "in lmq": second.user_properties["INNER_MULTI_DISPATCH"].replace(
            lite.topic, "TOPIC"
        ),
        "handle": [handle[at] for at in (0, 3, 4, 6, 7)],
    }


@case(["a1", "a2", "a3"])
def messages_from_before_the_subscription(lite: Lite) -> Any:
    lite.send("a1", "a2", "a3")
    with lite.member("a") as member:
        return names(member.gather(3))


@case((["a1 1", "a2 1"], "MESSAGE_NOT_FOUND", ["a1 1", "a2 1", "a3 1"]))
def a_batch_blocks_its_lite_topic_until_it_is_visible_again(lite: Lite) -> Any:
    """With a message that is new, the attempts of the others are not told."""
    with lite.member("a") as member:
        lite.send("a1", "a2")
        first = attempts(member.gather(2, acks=False))
        lite.send("a3")
        waited = member.nothing()
        return first, waited, attempts(member.gather(3))


@case((["a1", "a2"], ["a1 2", "a2 2"]))
def an_acknowledged_message_comes_again_with_its_batch(lite: Lite) -> Any:
    """In order, the group's offset is that of the first message without an ack."""
    with lite.member("a") as member:
        lite.send("a1", "a2")
        first = member.gather(2, acks=False)
        assert member.done(first[1]) == "OK"
        return names(first), attempts(member.gather(2))


@case((["a1"], ["b1"], ["a2"]))
def another_lite_topic_is_not_blocked(lite: Lite) -> Any:
    with lite.member("a", "b") as member:
        lite.send("a1")
        first = member.gather(1, acks=False)
        lite.send("a2", "b1")
        second = member.gather(1)
        assert member.done(first[0]) == "OK"
        return names(first), names(second), names(member.gather(1))


@case([f"a{n}" for n in range(1, 41)])
def order_within_a_lite_topic(lite: Lite) -> Any:
    with lite.member("a") as member:
        lite.send(*(f"a{n}" for n in range(1, 41)))
        return names(member.gather(40))


@case([["a1", "a2"], ["b1", "b2"], ["a3", "b3"]])
def lite_topics_take_turns(lite: Lite) -> Any:
    lite.send("a1", "a2", "a3", "b1", "b2", "b3")
    with lite.member("a", "b") as member:
        batches = []
        for _ in range(3):
            found = member.get(batch_size=2).messages
            for each in found:
                assert member.done(each) == "OK"
            batches.append(names(found))
        return batches


@case((["a1"], "MESSAGE_NOT_FOUND", ["a2", "a3"]))
def unsubscribed_and_subscribed_again(lite: Lite) -> Any:
    """The group keeps its offset."""
    with lite.member("a") as member:
        lite.send("a1")
        first = names(member.gather(1))
        # Without this receive, RocketMQ would deliver once more.
        assert member.nothing() == "MESSAGE_NOT_FOUND"
        assert member.sync(PARTIAL_REMOVE, "a") == "OK"
        lite.send("a2", "a3")
        waited = member.nothing()
        assert member.sync(PARTIAL_ADD, "a") == "OK"
        return first, waited, names(member.gather(2))


@case(({"b": ["b1"], "c": ["c1"]}, "MESSAGE_NOT_FOUND"))
def a_complete_list_replaces_the_subscriptions(lite: Lite) -> Any:
    with lite.member("a", "b") as member:
        assert member.sync(COMPLETE_ADD, "b", "c") == "OK"
        lite.send("a1", "b1", "c1")
        found = by_topic(member.gather(2))
        assert member.sync(COMPLETE_REMOVE) == "OK"
        lite.send("b2")
        return found, member.nothing()


@case(
    {
        "LAST": ["a3"],
        "MIN": ["a1", "a2", "a3"],
        "MAX": [],
        "offset 1": ["a2", "a3"],
        "tail 1": ["a2", "a3"],
    }
)
def offset_options(lite: Lite) -> Any:
    lite.send("a1", "a2", "a3")
    found = {}
    options: dict[str, dict[str, Any]] = {
        "LAST": {"policy": d.OffsetOption.LAST},
        "MIN": {"policy": d.OffsetOption.MIN},
        "MAX": {"policy": d.OffsetOption.MAX},
        "offset 1": {"offset": 1},
        "tail 1": {"tail_n": 1},
    }
    for name, option in options.items():
        with lite.member("a", group=lite.new_group()) as member:
            first = member.get(batch_size=2).messages
            assert names(first) == ["a1", "a2"]
            for each in first:
                assert member.done(each) == "OK"
            assert member.sync(PARTIAL_REMOVE, "a") == "OK"
            assert member.sync(PARTIAL_ADD, "a", **option) == "OK"
            got = member.get().messages
            for each in got:
                assert member.done(each) == "OK"
            found[name] = names(got)
    return found


@case((["a1", "a2"], ["a3"]))
def a_restarted_consumer_goes_on(lite: Lite) -> Any:
    with lite.member("a") as member:
        lite.send("a1", "a2")
        first = names(member.gather(2))
        termination = s.NotifyClientTerminationRequest(group=resource(lite.group))
        assert code_of(member.call("NotifyClientTermination", termination)) == "OK"
    lite.send("a3")
    with lite.member("a") as member:
        return first, names(member.gather(1))


@case(["a1 2"])
def the_messages_of_a_lost_consumer_go_to_another(lite: Lite) -> Any:
    with lite.member("a") as first:
        lite.send("a1")
        assert names(first.gather(1, acks=False)) == ["a1"]
    with lite.member("a") as second:
        return attempts(second.gather(1))


@case(["a1", "a2", "a3", "a4"])
def two_members_share_a_lite_topic(lite: Lite) -> Any:
    with lite.member("a") as one, lite.member("a") as two:
        lite.send("a1", "a2", "a3", "a4")
        found: list[Any] = []
        ends = time.monotonic() + _PATIENCE_S
        while len(found) < 4 and time.monotonic() < ends:
            for member in (one, two):
                for each in member.get(batch_size=1).messages:
                    assert member.done(each) == "OK"
                    found.append(each)
        return sorted(names(found))


@case((["a1"], ["a1"]))
def each_group_gets_all(lite: Lite) -> Any:
    with (
        lite.member("a") as one,
        lite.member("a", group=lite.new_group()) as two,
    ):
        lite.send("a1")
        return names(one.gather(1)), names(two.gather(1))


@case(("a", ["a1"], "MESSAGE_NOT_FOUND"))
def an_exclusive_group_tells_the_former_subscriber(lite: Lite) -> Any:
    group = lite.new_group(lite_sub_model="Exclusive")
    with lite.member("a", group=group) as one, lite.member("a", group=group) as two:
        command = one.stream.receive()
        lite.send("a1")
        told = command.notify_unsubscribe_lite_command.lite_topic
        return told, names(two.gather(1)), one.nothing()


@case((["a1"], ["a1"]))
def an_exclusive_group_may_start_from_the_first_message(lite: Lite) -> Any:
    group = lite.new_group(
        lite_sub_model="Exclusive", lite_sub_reset_offset_exclusive="true"
    )
    lite.send("a1")
    with lite.member("a", group=group) as one:
        first = names(one.gather(1))
        with lite.member("a", group=group) as two:
            return first, names(two.gather(1))


@case((["a1"], ["a1"]))
def a_group_may_start_again_after_it_has_unsubscribed(lite: Lite) -> Any:
    group = lite.new_group(lite_sub_reset_offset_unsubscribe="true")
    lite.send("a1")
    with lite.member("a", group=group) as member:
        first = names(member.gather(1))
        assert member.sync(PARTIAL_REMOVE, "a") == "OK"
        assert member.sync(PARTIAL_ADD, "a") == "OK"
        return first, names(member.gather(1))


@case(("OK", "LITE_SUBSCRIPTION_QUOTA_EXCEEDED", 7))
def more_lite_topics_than_the_quota(lite: Lite) -> Any:
    """A proxy allows 300 more than the group's quota, which the client gets."""
    group = lite.new_group(lite_sub_client_quota="7")
    with lite.member(group=group) as member:
        many = [f"t{n}" for n in range(308)]
        quota = member.stream.answer.settings.subscription.lite_subscription_quota
        return (
            member.sync(COMPLETE_ADD, *many[:307]),
            member.sync(COMPLETE_ADD, *many),
            quota,
        )


@case(
    {
        "bad name": "ILLEGAL_LITE_TOPIC",
        "blank name": "ILLEGAL_LITE_TOPIC",
        "other topic": "ILLEGAL_TOPIC",
        "nothing": "OK",
        "not subscribed": "OK",
    }
)
def subscriptions_that_are_wrong(lite: Lite) -> Any:
    with lite.member() as member:
        return {
            "bad name": member.sync(PARTIAL_ADD, "a", "b.c"),
            "blank name": member.sync(PARTIAL_ADD, " "),
            "other topic": member.sync(PARTIAL_ADD, "a", topic=lite.new_topic("LITE")),
            "nothing": member.sync(PARTIAL_ADD),
            "not subscribed": member.sync(PARTIAL_REMOVE, "z"),
        }


def settings_fail(lite: Lite, settings: d.Settings) -> str:
    with GrpcClient(lite.endpoints) as client:
        try:
            return code_of(client.telemetry(settings).answer)
        except grpc.RpcError as error:
            text = (error.details() or "").replace(lite.topic, "TOPIC")
            return f"{error.code().name} {text.replace(lite.group, 'GROUP')}"


@case(
    {
        "lite": "OK",
        "push": "INVALID_ARGUMENT process client telemetryCommand failed. lite group"
        " must use LITE mode: GROUP",
        "other topic": "INVALID_ARGUMENT process client telemetryCommand failed. lite"
        " group GROUP is expected to bind topic TOPIC, but actual is other",
        "no topic": "OK",
    }
)
def settings_of_a_bound_group(lite: Lite) -> Any:
    kind = d.ClientType.LITE_PUSH_CONSUMER
    return {
        "lite": settings_fail(
            lite, consumer_settings(lite.group, lite.topic, kind=kind)
        ),
        "push": settings_fail(lite, consumer_settings(lite.group, lite.topic)),
        "other topic": settings_fail(
            lite, consumer_settings(lite.group, "other", kind=kind)
        ),
        "no topic": settings_fail(lite, consumer_settings(lite.group, kind=kind)),
    }


@case(
    {
        "not lite": "INTERNAL_SERVER_ERROR",
        "plain": "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    }
)
def topics_of_another_type(lite: Lite) -> Any:
    topic = lite.new_topic(None)
    group = lite.new_group(topic)
    with GrpcClient(lite.endpoints) as client:
        kind = d.ClientType.LITE_PUSH_CONSUMER
        client.telemetry(consumer_settings(group, topic, kind=kind))
        return {
            "not lite": client.receive(group, topic).code,
            "plain": code_of(lite.producer.send(message(lite.topic))),
        }


@case(("OK", ["a1 2"]))
def a_shorter_invisible_time(lite: Lite) -> Any:
    with lite.member("a") as member:
        lite.send("a1")
        (each,) = member.gather(1, acks=False)
        code, _ = member.later(each, 1_000)
        again = attempts(member.get().messages)  # waits for 5 s at most
        return code, again


@case(("OK", "OK", "OK", ["a1 2", "a2 2"]))
def a_suspended_batch(lite: Lite) -> Any:
    with lite.member("a") as member:
        lite.send("a1", "a2")
        first, _ = member.gather(2, acks=False)
        code, _ = member.later(first, 1_000, suspend=True)
        again = member.gather(2, acks=False)
        return code, *(member.done(each) for each in again), attempts(again)


@case(
    {
        "again": "OK",
        "without lite topic": "OK",
        "other lite topic": "OK",
        "after": "MESSAGE_NOT_FOUND",
    }
)
def acknowledgements_that_are_odd(lite: Lite) -> Any:
    with lite.member("a", "b") as member:
        lite.send("a1", "b1")
        found = {each.body: each for each in member.gather(2, acks=False)}
        first, second = found[b"a1"], found[b"b1"]
        assert member.done(first) == "OK"
        return {
            "again": member.done(first),
            "without lite topic": code_of(
                member.ack(
                    lite.group, lite.topic, second.system_properties.receipt_handle
                )
            ),
            "other lite topic": member.done(second, lite_topic="a"),
            "after": member.get(invisible_ms=INVISIBLE_MS).code,
        }


@case(
    (["a1"], "OK", "MESSAGE_NOT_FOUND", ["a2"]),
    real=(["a1"], "OK", "got ['a1']", ["a1"]),
)
def a_dead_letter(lite: Lite) -> Any:
    """RocketMQ 5.5.0 puts the copy into the lite topic, too."""
    with lite.member("a") as member:
        lite.send("a1")
        (each,) = member.gather(1, acks=False)
        code = member.bury(each, lite_topic="a")
        waited = member.nothing()
        lite.send("a2")
        return names([each]), code, waited, names(member.gather(1))


@case((["a1 1"], ["a1 2"]))
def a_message_is_invisible_for_60_s_even_if_the_proxy_renews_it(lite: Lite) -> Any:
    """RocketMQ's proxy renews it without its lite topic, which has no effect."""
    with lite.member("a") as member:
        lite.send("a1")
        first = attempts(member.get(auto_renew=True).messages)
        return first, attempts(member.gather(1))


@case("MESSAGE_NOT_FOUND")
def a_batch_of_messages_is_in_no_lite_topic(lite: Lite) -> Any:
    """A broker does not look at the lite topics of a batch."""
    with lite.member("a") as member:
        batch = [message(lite.topic, b"a1", lite_topic="a") for _ in range(2)]
        assert code_of(lite.producer.send(*batch)) == "OK"
        return member.nothing()


@case((["a1"], ["a2"]))
def every_lite_topic_of_a_wildcard_group(lite: Lite) -> Any:
    group = lite.new_group(lite_sub_wildcard="true")
    with lite.member(group=group) as member:
        assert member.sync(COMPLETE_ADD) == "OK"
        assert member.sync(PARTIAL_ADD, "a") == "INTERNAL_SERVER_ERROR"
        lite.send("a1")
        first = names(member.gather(1))
        lite.send("a2")
        return first, names(member.gather(1))


@case("[-1]")
def a_bound_group_has_one_assignment(lite: Lite) -> Any:
    with lite.member() as member:
        answer = member.call(
            "QueryAssignment",
            s.QueryAssignmentRequest(
                topic=resource(lite.topic), group=resource(lite.group)
            ),
        )
    return str([each.message_queue.id for each in answer.assignments])
