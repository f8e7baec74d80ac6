"""Which records a traced listener's calls make, without a broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from rmqcli.consumer.trace import DeliveryTraces, traced_listener
from rmqcli.engine.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    LeaveRest,
)
from rmqcli.model import MessageQueue
from rmqcli.testing import ManualClock
from rmqcli.trace.record import ConsumeReturnType, SubAfter, SubBefore
from tests.kit.rows import each_row

QUEUE = MessageQueue("orders", "broker-a", 0)
TYPES = ConsumeReturnType


@dataclass
class Content:
    """What traces read of a message."""

    msg_id: str | None
    offset_msg_id: str = "offset id"
    keys: str | None = "k"
    reconsume_times: int = 0
    properties: dict[str, str] = field(default_factory=dict)


class Kept:
    """A dispatcher that keeps what it is given."""

    def __init__(self) -> None:
        self.appended: list[list[SubBefore | SubAfter]] = []

    def append(self, records):
        self.appended.append(records)


@dataclass
class World:
    """A consumer's traces and its clock."""

    timeout_ms: int | None = None

    def __post_init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.kept = Kept()
        self.traces = DeliveryTraces(
            self.kept,  # type: ignore[arg-type]  # keeps what it is given
            "billing",
            clock=self.clock,
            consume_timeout_ms=self.timeout_ms,
        )

    def run(self, call, *arguments, one_message=False, is_async=False):
        """Call a listener once; return the records before and after the call."""
        listener = traced_listener(
            call, self.traces, one_message=one_message, is_async=is_async
        )
        result = listener(*arguments)
        if is_async:
            result = asyncio.run(result)
        self.result = result
        before, after = self.kept.appended
        return before, after


def three():
    return [Content("a"), Content("b"), Content("c")]


def test_the_records_of_a_delivery_have_what_java_s_have():
    world = World()
    message = Content(
        "id", keys="k1 k2", reconsume_times=2, properties={"MSG_REGION": "hz"}
    )

    def listen(one):
        assert one is message
        world.clock.advance(7)

    before, after = world.run(listen, message, one_message=True)
    (began,), (ended,) = before, after
    assert began == SubBefore(
        timestamp_ms=1_000_000,
        region_id="hz",
        group="billing",
        request_id=began.request_id,
        msg_id="id",
        retry_times=2,
        keys="k1 k2",
    )
    assert ended == SubAfter(
        request_id=began.request_id,
        msg_id="id",
        cost_ms=7,
        is_success=True,
        keys="k1 k2",
        return_type=TYPES.SUCCESS,
        timestamp_ms=1_000_007,
        group="billing",
    )


def test_a_message_without_a_unique_id_has_that_of_its_offset():
    before, after = World().run(lambda _: None, Content(None), one_message=True)
    assert before[0].region_id == "DefaultRegion"
    assert before[0].msg_id == after[0].msg_id == "offset id"


def test_each_call_has_an_id_of_its_own_that_its_messages_share():
    world = World()
    calls = [world.traces.begin(three()) for _ in range(3)]
    ids = [each.request_id for each in calls]
    assert len(set(ids)) == 3
    assert {each[:-8] for each in ids} == {ids[0][:-8]}
    assert [each[-8:] for each in ids] == ["00000000", "00000001", "00000002"]
    assert [{one.request_id for one in each} for each in world.kept.appended] == [
        {each} for each in ids
    ]
    assert World().traces.begin(three()).request_id not in ids


def test_the_time_of_a_call_is_divided_among_its_messages():
    world = World()
    _, after = world.run(
        lambda *_: world.clock.advance(8), three(), ConsumeConcurrentlyContext(QUEUE)
    )
    assert [each.cost_ms for each in after] == [2, 2, 2]


def test_a_clock_that_is_set_back_makes_no_negative_time():
    world = World()
    _, after = world.run(
        lambda _: world.clock.advance(-8), Content("a"), one_message=True
    )
    assert after[0].cost_ms == 0


def test_messages_of_brokers_that_switched_traces_off_are_left_out():
    """The others keep their place in the batch."""
    batch = three()
    batch[0].properties["TRACE_ON"] = "false"
    batch[1].properties["TRACE_ON"] = "true"
    context = ConsumeConcurrentlyContext(QUEUE)
    context.ack_index = 1
    before, after = World().run(lambda *_: None, batch, context)
    assert [each.msg_id for each in before] == ["b", "c"]
    assert [(each.msg_id, each.is_success) for each in after] == [
        ("b", True),
        ("c", False),
    ]


@pytest.mark.parametrize(
    ("timeout_ms", "took_ms", "return_type"),
    [
        (None, 10**9, TYPES.SUCCESS),
        (10, 9, TYPES.SUCCESS),
        (10, 10, TYPES.TIME_OUT),
        (10, 11, TYPES.TIME_OUT),
    ],
)
def test_a_call_times_out_with_its_limit(timeout_ms, took_ms, return_type):
    world = World(timeout_ms)
    _, (ended,) = world.run(
        lambda _: world.clock.advance(took_ms), Content("a"), one_message=True
    )
    assert ended.return_type is return_type


@each_row("is_async", [False, True])
@each_row(
    ("result", "is_success"),
    [
        (None, True),
        (True, True),
        (False, False),
        (ConsumeConcurrentlyStatus.CONSUME_SUCCESS, True),
        (ConsumeConcurrentlyStatus.RECONSUME_LATER, False),
        (ConsumeOrderlyStatus.SUCCESS, True),
        (ConsumeOrderlyStatus.COMMIT, True),
        (ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, False),
        (1, False),  # equal to True, which the engine does not take it for
    ],
)
def test_a_result_is_a_success_or_a_failure_of_the_whole_batch(
    result, is_success, is_async
):
    def listen(*_):
        return result

    async def listen_async(*_):
        return result

    world = World()
    _, after = world.run(
        listen_async if is_async else listen,
        three(),
        ConsumeOrderlyContext(QUEUE),
        is_async=is_async,
    )
    assert world.result is result
    assert [each.is_success for each in after] == [is_success] * 3
    kind = TYPES.SUCCESS if is_success else TYPES.FAILED
    assert {each.return_type for each in after} == {kind}


@pytest.mark.parametrize(
    ("ack_index", "result", "succeeded"),
    [
        (None, None, [True, True, True]),
        (-2, None, [False, False, False]),
        (-1, None, [False, False, False]),
        (0, None, [True, False, False]),
        (1, None, [True, True, False]),
        (2, None, [True, True, True]),
        (99, None, [True, True, True]),
        (1, False, [False, False, False]),
    ],
)
def test_with_an_ack_index_the_first_messages_succeeded(ack_index, result, succeeded):
    context = ConsumeConcurrentlyContext(QUEUE)

    def listen(_, given):
        assert given is context
        given.ack_index = ack_index
        return result

    _, after = World().run(listen, three(), context)
    assert [each.is_success for each in after] == succeeded
    kind = TYPES.SUCCESS if all(succeeded) else TYPES.FAILED
    assert {each.return_type for each in after} == {kind}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (ValueError("no"), [(each, False, TYPES.EXCEPTION) for each in "abc"]),
        (KeyboardInterrupt(), [(each, False, TYPES.EXCEPTION) for each in "abc"]),
        (LeaveRest(2), [("a", True, TYPES.SUCCESS), ("b", True, TYPES.SUCCESS)]),
        (LeaveRest(1), [("a", True, TYPES.SUCCESS)]),
        (LeaveRest(0), None),
    ],
    ids=["error", "interrupt", "two", "one", "none"],
)
def test_a_listener_that_raises_is_reported_and_its_error_raised(
    error, ended, is_async
):
    world = World()

    def listen(*_):
        raise error

    async def listen_async(*_):
        raise error

    listener = traced_listener(
        listen_async if is_async else listen,
        world.traces,
        one_message=False,
        is_async=is_async,
    )
    context = ConsumeConcurrentlyContext(QUEUE)

    def call():
        result = listener(three(), context)
        if is_async:
            result.send(None)  # it raises before it waits for anything

    with pytest.raises(type(error)):
        call()
    before, *after = world.kept.appended
    assert [each.msg_id for each in before] == ["a", "b", "c"]
    found = [
        (each.msg_id, each.is_success, each.return_type)
        for records in after
        for each in records
        if isinstance(each, SubAfter)
    ]
    assert (found if after else None) == ended
