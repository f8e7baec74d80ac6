"""POP loses no message, whatever clients do and whenever the broker is killed.

A message that was acknowledged with its valid handle never comes again, and a message
that was not comes again once its time is over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from rmqcli.wire.codes import RequestCode
from tests.broker.driving import Driver, need
from tests.broker.popping import ack, change, handles, messages, pop
from tests.broker.pulling import PRODUCER, driver_with_topic
from tests.broker.sending import send_header
from tests.kit.doses import doses

if TYPE_CHECKING:
    from rmqcli.wire.receipt_handle import ReceiptHandle

INVISIBLE_MS = 5_000

STEP = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 1)),
    st.tuples(st.just("pop"), st.integers(1, 4)),
    st.tuples(st.just("ack"), st.integers(0, 7)),
    st.tuples(st.just("change"), st.integers(0, 7)),
    st.tuples(st.just("wait"), st.sampled_from([1, 1_000, INVISIBLE_MS])),
    st.tuples(st.just("kill"), st.just(0)),
)


class World:
    """A broker, and which messages were sent, are invisible, and were acknowledged."""

    def __init__(self) -> None:
        self.driver = driver_with_topic()
        self.sent = 0
        self.acked: set[str] = set()
        #: body -> the newest handle, and when it becomes invalid
        self.out: dict[str, tuple[ReceiptHandle, int]] = {}

    def do(self, name: str, number: int) -> None:
        if name == "send":
            header = send_header("T", {}, queue_id=number)
            sent = self.driver.ask(
                RequestCode.SEND_MESSAGE_V2,
                header,
                body=str(self.sent).encode(),
                peer=PRODUCER,
            )
            assert need(sent).code == 0
            self.sent += 1
        elif name == "pop":
            self.pop(number)
        elif name == "wait":
            self.driver.wait(number)
        elif name == "kill":
            self.kill()
        elif self.out:
            body = sorted(self.out)[number % len(self.out)]
            handle, _ = self.out[body]
            if name == "ack":
                assert ack(self.driver, handle) == 0
                if self.is_valid(body):
                    self.acked.add(body)
                    del self.out[body]
            elif self.is_valid(body):
                self.change(body, handle)

    def is_valid(self, body: str) -> bool:
        return self.driver.now.epoch_ms < self.out[body][1]

    def pop(self, count: int) -> int:
        answer = pop(
            self.driver, queue_id=-1, max_msg_nums=count, invisible_time=INVISIBLE_MS
        )
        found = messages(answer) if answer.code == 0 else []
        for message, handle in zip(
            found, handles(answer) if found else [], strict=True
        ):
            body = message.body.decode()
            assert body not in self.acked, "acknowledged, and here again"
            if body in self.out:
                assert not self.is_valid(body), "hidden, and here again"
            self.out[body] = (handle, handle.next_visible_ms)
        return len(found)

    def change(self, body: str, handle: ReceiptHandle) -> None:
        fields = change(self.driver, handle, 2 * INVISIBLE_MS).ext_fields
        renewed = type(handle)(
            start_offset=need(handle.offset),
            pop_time_ms=int(fields["popTime"]),
            invisible_ms=int(fields["invisibleTime"]),
            revive_queue_id=int(fields["reviveQid"]),
            topic_type=handle.topic_type,
            broker_name=handle.broker_name,
            queue_id=handle.queue_id,
            offset=handle.offset,
        )
        self.out[body] = (renewed, renewed.next_visible_ms)

    def kill(self) -> None:
        """Replace the broker by one with the same log; offsets were never stored."""
        before = self.driver.broker
        self.driver = Driver(store=self.driver.store, now=self.driver.now)
        self.driver.broker.topics.load(before.topics.all().values())
        self.driver.broker.groups.load(before.groups.all().values())
        self.driver.broker.check_points.recover(self.driver.now)


@settings(max_examples=doses(3))
@given(st.lists(STEP, max_size=40))
def test_nothing_is_lost_and_nothing_acknowledged_comes_back(steps):
    world = World()
    for name, number in steps:
        world.do(name, number)

    for _ in range(3):
        world.driver.wait(2 * INVISIBLE_MS + 100)
        while world.pop(32):
            for body in list(world.out):
                if world.is_valid(body):
                    world.do("ack", sorted(world.out).index(body))

    assert world.acked == {str(number) for number in range(world.sent)}
    assert len(world.driver.broker.check_points) == 0
