"""Receiving messages by POP: 200050 (5.0 and later).

Imitated: the checks in RocketMQ's order, with code and remark; a request reads one
queue or all of them in turn, from the highest number down, and the retry topic first in
a fifth of the requests and else last; topics of type PRIORITY, which a request reads
from the highest priority on, unless the group's priority.factor is lower; the first
offset of a group without one; the offset that moves when messages are delivered; the
check point; revived messages, which appear in the requested topic, with POP_CK; orderly
POP; long polling.
Not imitated: check points in RocksDB; slaves; registering members of a group from its
requests; `enablePopMessageThreshold`.

RocketMQ chooses a request's first queue, and whether it reads the retry topic first, at
random. Here the number for that is an argument of the broker (`pop_choice`); by default
it follows a fixed cycle.

Source: `PopMessageProcessor` in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final

from rmqcli.broker.attributes import MESSAGE_TYPE, PRIORITY_FACTOR, PRIORITY_FACTOR_MAX
from rmqcli.broker.dispatch import handles
from rmqcli.broker.filter.message_filter import MessageFilter, is_tag_type, tag_filter
from rmqcli.broker.message.copy import fields_as_stored
from rmqcli.broker.message.get import (
    GetMessageResult,
    GetStatus,
    get_message,
    is_on_disk,
)
from rmqcli.broker.request import Refusal, Reply, no_permission, system_error
from rmqcli.broker.requests import pull_message
from rmqcli.broker.state.check_points import Key
from rmqcli.broker.state.topics import PERM_READ
from rmqcli.broker.topic_names import RETRY_PREFIX
from rmqcli.dataclass import dataclass
from rmqcli.store.message_store import StoreError
from rmqcli.wire import receipt_handle
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from rmqcli.wire.message.decode import decode_messages
from rmqcli.wire.message.encode import encode_placed
from rmqcli.wire.message.properties import POP_CK
from rmqcli.wire.message.record import InnerMessage, StoredMessage
from rmqcli.wire.version import V5_0_0

if TYPE_CHECKING:
    from rmqcli.broker.request import BrokerRequest
    from rmqcli.broker.state.broker import BrokerState
    from rmqcli.broker.state.order_info import OrderInfos
    from rmqcli.clock import Now
    from rmqcli.wire.bodies.config import TopicConfig
    from rmqcli.wire.headers.pop import (
        NotificationRequestHeader,
        PollingInfoRequestHeader,
    )

BORN_TIME: Final = "bornTime"

_MESSAGES_MAX: Final = 32
#: Limit of attempt ids, because the broker keeps them with their batch. Clients send
#: UUIDs. RocketMQ has no limit.
_ATTEMPT_ID_CHARACTERS_MAX: Final = 255
#: A request is refused if it is processed this long after its poll time is over.
_TOO_LATE_MS: Final = 500
_INIT_MIN: Final = 0  # ConsumeInitMode.MIN
#: The most bytes of one answer, as clients refuse longer frames.
ANSWER_BYTES_MAX: Final = 15 * 1024 * 1024

WRONG_OFFSET: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.OFFSET_FOUND_NULL,
)
PASSED: Final = (
    GetStatus.NO_MATCHED_MESSAGE,
    GetStatus.OFFSET_FOUND_NULL,
    GetStatus.MESSAGE_WAS_REMOVING,
)


@handles(RequestCode.POP_MESSAGE, since=V5_0_0)
def pop_message(broker: BrokerState, request: BrokerRequest) -> Reply | None:
    """Answer with messages; hold the request if there are none (200050)."""
    header = with_born_time(request, request.now).header(PopMessageRequestHeader)
    return _pop(broker, request, header, request.now)


def with_born_time(request: BrokerRequest, now: Now) -> BrokerRequest:
    """Set the request's bornTime to the broker's time if the client sent none or 0."""
    fields = request.command.ext_fields
    if fields.get(BORN_TIME, "0") == "0":
        fields = {**fields, BORN_TIME: str(now.epoch_ms)}
        request.command.ext_fields = fields
    return request


def _pop(
    broker: BrokerState,
    request: BrokerRequest,
    header: PopMessageRequestHeader,
    now: Now,
) -> Reply | None:
    config = _check(broker, request, header, now)
    message_filter = _find_filter(broker, header)
    pop = _Pop(broker, header, message_filter, now)
    pop.run(config)
    key = (header.topic, header.consumer_group, header.queue_id)
    code, status = ResponseCode.SUCCESS, GetStatus.FOUND
    if pop.count > 0:
        if pop.rest_num > 0:
            _wake_soon(broker, key, now)
    else:
        status = GetStatus.NO_MESSAGE_IN_QUEUE
        refused = broker.pop_holds.hold(
            key,
            request,
            born_time=header.born_time,
            poll_time=header.poll_time,
            now=now,
            again=lambda later: _pop(broker, request, header, later),
            message_filter=message_filter,
        )
        if refused is None:
            if pop.rest_num > 0 and pop.has_moved:
                # There are other messages after those that the filter skipped.
                _wake_soon(broker, key, now)
            return None
        code = refused
    body = b"".join(pop.bodies)
    broker.stats.got(header.topic, header.consumer_group, body, now)
    return Reply(code, status, pop.response(), body=body)


def _wake_soon(broker: BrokerState, key: tuple[str, str, int], now: Now) -> None:
    """Wake the next request for the same queue, which may get the remaining messages.

    A timer does this, because a thousand waiting requests must not call each other
    recursively.
    """
    broker.timers.at(now.monotonic_ms, lambda later: broker.pop_holds.wake(key, later))


def need_master(broker: BrokerState) -> None:
    """Raise Refusal(14) on a slave, because it could not store check points."""
    if broker.settings.broker_id:
        raise Refusal(
            ResponseCode.SERVICE_NOT_AVAILABLE, "a slave does not serve POP requests"
        )


def check_bounds(broker: BrokerState, ends_ms: int, wanted: int, *, now: Now) -> None:
    """Raise Refusal for a request that ended long ago, or wants too many messages."""
    need_master(broker)
    ip = broker.settings.address.rpartition(":")[0]
    if now.epoch_ms - ends_ms > _TOO_LATE_MS:
        raise Refusal(
            ResponseCode.POLLING_TIMEOUT,
            f"the broker[{ip}] pop message is timeout too much",
        )
    if wanted > _MESSAGES_MAX:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"the broker[{ip}] pop message's num is greater than {_MESSAGES_MAX}",
        )


def check_attempt_id(attempt_id: str | None) -> None:
    """Raise Refusal(29) for an attempt id that is too long to be kept."""
    characters = len(attempt_id or "")
    if characters > _ATTEMPT_ID_CHARACTERS_MAX:
        raise Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"the attempt id has {characters} characters; the maximum is"
            f" {_ATTEMPT_ID_CHARACTERS_MAX}",
        )


def check_readable(
    broker: BrokerState,
    request: BrokerRequest,
    header: PopMessageRequestHeader
    | NotificationRequestHeader
    | PollingInfoRequestHeader,
) -> TopicConfig:
    """Check the topic, queue and group of a POP request; return the topic's settings.

    An unknown group is created if that is allowed. Also used for NOTIFICATION and
    POLLING_INFO. Raises Refusal: 17, 16 and 29 for the topic, 26 and 16 for the group.
    """
    topic, group, queue_id = header.topic, header.consumer_group, header.queue_id
    config = pull_message.known_topic(broker, topic)
    if not config.perm & PERM_READ:
        raise no_permission(f"the topic[{topic}] peeking message is forbidden")
    if queue_id >= config.read_queue_nums:
        raise pull_message.illegal_queue(
            ResponseCode.INVALID_PARAMETER, request, config, topic, queue_id
        )
    found = pull_message.known_group(broker, group)
    if not found.consume_enable:
        raise no_permission(f"subscription group no permission, {group}")
    return config


def _check(
    broker: BrokerState,
    request: BrokerRequest,
    header: PopMessageRequestHeader,
    now: Now,
) -> TopicConfig:
    check_bounds(
        broker, header.born_time + header.poll_time, header.max_msg_nums, now=now
    )
    config = check_readable(broker, request, header)
    check_attempt_id(header.attempt_id)
    if header.max_msg_nums < 0:
        raise system_error(
            f"java.lang.IllegalArgumentException: Illegal Capacity: "
            f"{header.max_msg_nums}"
        )
    return config


def _find_filter(
    broker: BrokerState, header: PopMessageRequestHeader
) -> MessageFilter | None:
    """The filter of a request; None if all messages match. Raises Refusal(23)."""
    if not header.exp:
        return None
    subscription = pull_message.parsed_subscription(
        header.topic, header.exp, header.exp_type
    )
    if is_tag_type(header.exp_type):
        return tag_filter(subscription)
    condition = pull_message.sql_condition(broker, subscription)
    if condition is None:
        raise pull_message.not_parsed()
    return MessageFilter(condition=condition)


@dataclass
class _Pop:
    """One attempt to answer a request: the messages found so far in its queues."""

    broker: BrokerState
    header: PopMessageRequestHeader
    message_filter: MessageFilter | None
    now: Now
    count: int = 0
    bodies: list[bytes] = field(default_factory=list)
    body_bytes: int = 0
    rest_num: int = 0
    #: whether the group's offset in a queue has moved
    has_moved: bool = False
    revive_queue_id: int = receipt_handle.ORDER_REVIVE_QUEUE_ID
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    offsets: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    counts: list[tuple[str, int, int | None, int]] = field(default_factory=list)

    def run(self, config: TopicConfig) -> None:
        """Read the queues in turn until there are enough messages."""
        broker, header = self.broker, self.header
        choice = broker.pop_choice()
        if not header.order:
            self.revive_queue_id = broker.check_points.next_queue_id()
        settings = broker.settings
        percent = settings.pop_from_retry_probability
        reads_v1 = choice % 2 == 0
        start = choice
        if self._goes_by_priority(config, choice):
            percent, start = settings.pop_from_retry_probability_for_priority, 0
        retry_first = choice < percent
        if retry_first:
            self._retries(start, reads_v1=reads_v1)
        if header.queue_id < 0:
            self._queues(config, start)
        else:
            self._queue(header.topic, header.queue_id)
        if not retry_first and self.count < header.max_msg_nums:
            self._retries(start, reads_v1=reads_v1)

    def _goes_by_priority(self, config: TopicConfig, choice: int) -> bool:
        header = self.header
        if config.attributes.get(MESSAGE_TYPE) != "PRIORITY" or header.order:
            return False
        group = self.broker.groups.get(header.consumer_group)
        factor = "" if group is None else group.attributes.get(PRIORITY_FACTOR, "")
        return choice < (int(factor) if factor.isdecimal() else PRIORITY_FACTOR_MAX)

    def response(self) -> PopMessageResponseHeader:
        """The header of the answer."""
        order_count_info = None
        if self.header.order:
            order_count_info = receipt_handle.encode_order_count_info(self.counts)
        return PopMessageResponseHeader(
            pop_time=self.now.epoch_ms,
            invisible_time=self.header.invisible_time,
            revive_qid=self.revive_queue_id,
            rest_num=self.rest_num,
            start_offset_info=receipt_handle.encode_start_offset_info(self.starts),
            msg_offset_info=receipt_handle.encode_msg_offset_info(self.offsets),
            order_count_info=order_count_info,
        )

    def _retries(self, start: int, *, reads_v1: bool) -> None:
        """Read the group's retry topic.

        With enableRetryTopicV2, half of the requests (`reads_v1`) read the retry topic
        with the older name instead. An answer has messages of only one of the two
        topics, because both have the same offsets.
        """
        if self.header.order:
            return
        is_v2 = self.broker.settings.enable_retry_topic_v2 and not reads_v1
        topic = receipt_handle.pop_retry_topic(
            self.header.topic, self.header.consumer_group, v2=is_v2
        )
        config = self.broker.topics.get(topic)
        if config is not None:
            self._queues(config, start)

    def _queues(self, config: TopicConfig, start: int) -> None:
        count = config.read_queue_nums
        is_down = self.broker.settings.priority_order_asc
        for turn in range(count):
            first = count - 1 - turn if is_down else turn
            self._queue(config.topic_name, (first + start) % count)

    def _queue(self, topic: str, queue_id: int) -> None:
        """Add messages of one queue to the answer, and count those that remain.

        Source: PopMessageProcessor.popMsgFromQueue.
        """
        broker, header, now = self.broker, self.header, self.now
        group, orders = header.consumer_group, broker.order_infos
        from_min = header.init_mode == _INIT_MIN
        offset = pop_offset(broker, orders, topic, group, queue_id, from_min=from_min)
        if header.order and orders.is_blocked(
            (topic, group, queue_id),
            now,
            attempt_id=header.attempt_id,
            invisible_ms=header.invisible_time,
        ):
            return
        wanted = header.max_msg_nums - self.count
        if wanted <= 0 or (not header.order and broker.check_points.is_full):
            _, end = broker.store.queue_bounds(topic, queue_id) or (0, 0)
            self.rest_num += end - offset
            return
        get = partial(
            get_message,
            broker,
            topic,
            queue_id,
            max_msg_nums=wanted,
            message_filter=self.message_filter,
        )
        result = get(offset=offset)
        if result.status in WRONG_OFFSET:
            self._move(topic, queue_id, result.next_begin_offset)
            offset = result.next_begin_offset
            result = get(offset=offset)
        body_bytes = self.body_bytes + len(result.body)
        if self.bodies and result.body and body_bytes > ANSWER_BYTES_MAX:
            self.rest_num += result.max_offset - offset
            return
        if result.status == GetStatus.FOUND:
            if not self._give_out(topic, queue_id, offset, result):
                self.rest_num += result.max_offset - offset
                return
        elif result.status in PASSED:
            self._move(topic, queue_id, result.next_begin_offset)
        self.rest_num += result.max_offset - result.next_begin_offset

    def _move(self, topic: str, queue_id: int, offset: int) -> None:
        offsets, group = self.broker.offsets, self.header.consumer_group
        if offsets.query(group, topic, queue_id) != offset:
            self.has_moved = True
            offsets.commit(group, topic, queue_id, offset)

    def _give_out(
        self, topic: str, queue_id: int, start: int, result: GetMessageResult
    ) -> bool:
        """Add messages to the answer; False if their check point cannot be stored."""
        header = self.header
        messages = decode_messages(result.body)
        found = [each for each in messages if isinstance(each, StoredMessage)]
        offsets = list(dict.fromkeys(map(_offset_of, found)))
        if len(found) < len(messages):
            # It is not known which of the records the client can decode, so the check
            # point has all of them.
            offsets = list(range(start, result.next_begin_offset))
        if header.order:
            self._give_out_in_order(topic, queue_id, start, offsets)
        elif not self._add_check_point(topic, queue_id, start, offsets):
            return False
        else:
            self._move(topic, queue_id, result.next_begin_offset)
        key = (receipt_handle.topic_type_of(topic), queue_id)
        self.starts[key] = start
        self.offsets[key] = offsets
        body = result.body
        if topic != header.topic:
            body = b"".join(self._renamed(each, start) for each in found)
        self.count += len(offsets)
        self.bodies.append(body)
        self.body_bytes += len(body)
        return True

    def _give_out_in_order(
        self, topic: str, queue_id: int, start: int, offsets: list[int]
    ) -> None:
        header = self.header
        counts = self.broker.order_infos.give_out(
            (topic, header.consumer_group, queue_id),
            offsets,
            attempt_id=header.attempt_id,
            invisible_ms=header.invisible_time,
            now=self.now,
        )
        kind = receipt_handle.topic_type_of(topic)
        self.counts += [(kind, queue_id, offset, count) for offset, count in counts]
        self._move(topic, queue_id, start)

    def _add_check_point(
        self, topic: str, queue_id: int, start: int, offsets: list[int]
    ) -> bool:
        broker, header, now = self.broker, self.header, self.now
        name = broker.settings.broker_name
        points = broker.check_points
        key = Key(topic, header.consumer_group, queue_id, start, now.epoch_ms, name)
        if points.is_known(key):
            return False  # the offset was reset within the same millisecond
        try:
            points.add(
                key,
                offsets,
                invisible_ms=header.invisible_time,
                revive_queue_id=self.revive_queue_id,
                now=now,
            )
        except StoreError:
            return False
        return True

    def _renamed(self, message: StoredMessage, start: int) -> bytes:
        """Encode a revived message as one of the requested topic.

        Its POP_CK property is the handle, which names its place in the retry topic.
        """
        properties = dict(message.properties)
        handle = receipt_handle.ReceiptHandle(
            start_offset=start,
            pop_time_ms=self.now.epoch_ms,
            invisible_ms=self.header.invisible_time,
            revive_queue_id=self.revive_queue_id,
            topic_type=receipt_handle.topic_type_of(message.topic),
            broker_name=self.broker.settings.broker_name,
            queue_id=message.queue_id,
            offset=message.queue_offset,
        )
        properties.setdefault(POP_CK, receipt_handle.encode_receipt_handle(handle))
        fields = fields_as_stored(
            message, properties=properties, topic=self.header.topic
        )
        return encode_placed(
            fields,
            queue_offset=message.queue_offset,
            commit_log_offset=message.commit_log_offset,
        )


def pop_offset(
    broker: BrokerState,
    orders: OrderInfos,
    topic: str,
    group: str,
    queue_id: int,
    *,
    from_min: bool = False,
) -> int:
    """Return the offset from which a group reads a queue, and commit it if it is new.

    It is that of a pending reset, the committed one or the group's first one, which
    `from_min` is for.
    """
    reset = broker.offsets.take_pending_reset(group, topic, queue_id)
    if reset is not None:
        orders.clear((topic, group, queue_id))
        broker.offsets.commit(group, topic, queue_id, reset)
        return reset
    offset = broker.offsets.query(group, topic, queue_id)
    if offset is None:
        offset = _first_offset(broker, topic, queue_id, from_min=from_min)
        broker.offsets.commit(group, topic, queue_id, offset)
    return offset


def _first_offset(
    broker: BrokerState, topic: str, queue_id: int, *, from_min: bool
) -> int:
    """The offset at which a group without an offset begins.

    Source: PopMessageProcessor.getInitOffset.
    """
    low, high = broker.store.queue_bounds(topic, queue_id) or (0, 0)
    if from_min or topic.startswith(RETRY_PREFIX):
        return low
    if low <= 0:
        units = broker.store.units(topic, queue_id, 0, 1)
        if not units or not is_on_disk(broker, units[0].commit_log_offset):
            return 0
    return max(0, high - 1)


def _offset_of(message: StoredMessage) -> int:
    """The queue offset of a message's record: an inner batch is received as one."""
    record = message.record if isinstance(message, InnerMessage) else message
    return record.queue_offset
