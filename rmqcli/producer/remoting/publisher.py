"""A producer's network operations as tasks: routes, sends, transactions, heartbeats.

A failed send is retried as by Java's producer: at another broker if there is one, for
the rest of the send's time, unless the caller chose the queue. Without another broker
it is retried in the same queue, where Java takes the next one, so that what is sent one
after the other to one queue stays in order. An attempt that was not answered may have
stored the message. It is retried only after a lost connection, or when the settings
limit the time of an attempt; the copies have the same id, so that consumers can
recognise them. When no attempt succeeds and one of them was not answered, the caller
gets a SendUnknownError.

Everything here runs in the producer's thread.

Source: DefaultMQProducerImpl, TopicPublishInfo and MQClientInstance in apache/rocketmq.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rmqcli import tasks
from rmqcli.api.calls.client import send_heartbeat, unregister_client
from rmqcli.api.calls.config import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    get_broker_config,
    get_broker_runtime_info,
)
from rmqcli.api.calls.producer import end_transaction
from rmqcli.api.calls.send import SendStatus, send_batch_message, send_message
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import (
    BrokerError,
    ConnectError,
    DeadlineError,
    DeniedError,
    DisconnectedError,
    NotFoundError,
    RmqError,
    TimeLimitError,
    TransportError,
    UnsupportedError,
)
from rmqcli.hint import Hint, LibraryCall, Setting
from rmqcli.log import get_logger
from rmqcli.model import MessageQueue
from rmqcli.producer.backend import SendResult, out_of_time, unknown_send
from rmqcli.producer.delay import LEVEL_MAX, levels_of, no_level
from rmqcli.producer.remoting.target import (
    PublishTarget,
    no_permission,
    queues_of_new_topic,
)
from rmqcli.wire.bodies.heartbeat import HeartbeatData, ProducerData
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.headers.send import SendMessageRequestHeaderV2
from rmqcli.wire.version import V5_0_0, version_name

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from rmqcli.api.call import Call
    from rmqcli.api.calls.send import SendAnswer as Answer
    from rmqcli.api.client import Client
    from rmqcli.model import TopicRoute
    from rmqcli.producer.config import ProducerConfig
    from rmqcli.producer.remoting.trace import SentTraces
    from rmqcli.wire.headers.send import EndTransactionRequestHeader

logger = get_logger(__name__)

#: A group that brokers know by default, so that they store nothing about a producer
#: without a group.
PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"  # MixAll.CLIENT_INNER_PRODUCER_GROUP

_API_TIMEOUT_MS: Final = 3_000  # ClientConfig.mqClientApiTimeout
#: How often a route is requested again while sends fail.
_RENEW_EVERY_MS: Final = 1_000
#: How long a broker is left out, while others have queues, after a request that took so
#: long and was not answered. Java's producers do it with sendLatencyFaultEnable. Each
#: send to a broker that hangs would take the whole time limit of the send, and its
#: messages might or might not be stored.
_LEFT_OUT_MS: Final = 10_000
_UNANSWERED_MS: Final = 1_000
#: How long unregistering from the brokers may take.
_LEAVE_MS: Final = 1_000

#: Response codes after which another broker is tried.  retryResponseCodes
_RETRY_CODES: Final = frozenset(
    (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.FLOW_CONTROL,
    )
)


#: Codes after which each message of a batch is sent alone, as one may be at fault.
_SPLIT_CODES: Final = (ResponseCode.SYSTEM_ERROR, ResponseCode.MESSAGE_ILLEGAL)


@dataclass(slots=True, kw_only=True)
class Prepared:
    """A message or batch, encoded for sending. Treat as immutable.

    All attempts use the same value.
    """

    topic: str
    msg_ids: tuple[str, ...]
    body: bytes
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0
    is_batch: bool = False
    #: first stored in a topic of the broker, so that its offset is not one of its topic
    is_elsewhere: bool = False
    needs_timer: bool = False
    #: brokers may be configured with any number of levels
    delay_level: int | None = None
    born_timestamp_ms: int


class Stored:
    """Where the messages of one request were stored. A result is made on demand."""

    __slots__ = ("_answer", "_is_elsewhere", "_msg_ids", "_offset_msg_ids", "_queue")

    def __init__(
        self, prepared: Prepared, sent_to: MessageQueue, answer: Answer
    ) -> None:
        self._answer = answer
        self._is_elsewhere = prepared.is_elsewhere
        self._msg_ids = prepared.msg_ids
        self._queue = MessageQueue(sent_to.topic, sent_to.broker_name, answer.queue_id)
        ids: tuple[str | None, ...] = answer.offset_msg_ids
        if len(ids) != len(prepared.msg_ids):
            ids = (None,) * len(prepared.msg_ids)
        self._offset_msg_ids = ids

    def result(self, index: int) -> SendResult:
        """The result of a message. Safe from any thread."""
        answer = self._answer
        return SendResult(
            msg_id=self._msg_ids[index],
            status=answer.status,
            queue=self._queue,
            queue_offset=None if self._is_elsewhere else answer.queue_offset + index,
            offset_msg_id=self._offset_msg_ids[index] or None,
            transaction_id=answer.transaction_id,
        )

    def results(self) -> list[SendResult]:
        """The results of all messages, in order."""
        return [self.result(index) for index in range(len(self._msg_ids))]


class Publisher:
    """The tasks of one producer. Without a group it sends no heartbeats."""

    def __init__(
        self,
        client: Client,
        runner: tasks.Runner,
        *,
        config: ProducerConfig,
        group: str | None = None,
        client_id: str = "",
        rng: random.Random,
        traces: SentTraces | None = None,
        on_stored_again: Callable[[tuple[str, ...]], object] = lambda _: None,
    ) -> None:
        """Create it. `on_stored_again` is called with the ids of stored messages.

        A broker may have stored them before, too: its connection was lost.
        """
        self._client = client
        self._traces = traces
        self._on_stored_again = on_stored_again
        self._runner = runner
        self.config = config
        self.clock = client.clock
        self._group = group
        self._producer_group = group or PRODUCER_GROUP
        self._client_id = client_id
        self._targets: dict[str, PublishTarget] = {}
        #: pending route requests by topic, so that many senders share one request
        self._asking: dict[str, tasks.Pending[PublishTarget]] = {}
        #: topics of which only the queues of a given target are used
        self._fixed: set[str] = set()
        #: topic -> the brokers of its newest route, for these topics and those with
        #: queues of a broker that is away
        self._listed: dict[str, frozenset[str]] = {}
        #: when a route was requested again because a send had failed
        self._renewed_ms: dict[str, int] = {}
        #: broker name -> until when it is left out, because it did not answer
        self._left_out_ms: dict[str, int] = {}
        #: brokers to which a heartbeat was sent
        self._greeted: set[str] = set()
        #: address -> how many delay levels the broker has, if that was requested
        self._levels: dict[str, int] = {}
        #: address -> the levels of its broker, which it is being asked for
        self._asking_levels: dict[str, tasks.Pending[list[int] | None]] = {}
        #: address -> MQVersion ordinal of brokers whose version was requested
        self._versions: dict[str, int] = {}
        # Like Java, start at a random queue, so that short runs do not all use queue 0.
        self._turns = itertools.count(rng.randrange(1 << 16))

    def start(self) -> None:
        """Begin the periodic tasks."""
        interval_ms = self.config.poll_namesrv_interval_ms
        tasks.repeat(self._refresh, self._runner, interval_ms=interval_ms)
        if self._group is not None:
            interval_ms = self.config.heartbeat_broker_interval_ms
            tasks.repeat(self._heartbeats, self._runner, interval_ms=interval_ms)

    # --- where topics are ---

    def target(self, topic: str) -> tasks.Task[PublishTarget]:
        """Return the writable queues of a topic.

        Raises NotFoundError for a topic that does not exist and that no broker creates,
        DeniedError for a topic without writable queues, and TransportError when no name
        server answers.
        """
        known = self._targets.get(topic)
        if known is not None:
            return known
        found: PublishTarget = yield self._ask(topic)
        return found

    def _ask(self, topic: str) -> tasks.Pending[PublishTarget]:
        return tasks.shared(self._asking, topic, self._find(topic), self._runner)

    def _renew(self, topic: str) -> None:
        """Request a route again after a failure: a replica may be the master now.

        No send waits for it. Java's producers learn it within 30 s.
        """
        now_ms = self.clock.monotonic_ms()
        if now_ms >= self._renewed_ms.get(topic, now_ms):
            self._renewed_ms[topic] = now_ms + _RENEW_EVERY_MS
            self._ask(topic)

    def note_target(self, target: PublishTarget) -> None:
        """Use the queues of this target for its topic, and no others."""
        self._targets[target.topic] = target
        self._fixed.add(target.topic)
        self._note_listed(target)

    def _note_listed(self, target: PublishTarget) -> None:
        """Note which brokers are there if fixed queues are of others, too."""
        self._listed.pop(target.topic, None)
        if any(each.broker_name not in target.addresses for each in target.queues):
            self._listed[target.topic] = frozenset(target.addresses)

    def known_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The writable queues of a topic whose target is known."""
        return self._targets[topic].queues

    def broker_at(self, address: str) -> str:
        """The name of the broker at an address; empty when no route contains it."""
        for target in self._targets.values():
            for broker_name, each in target.addresses.items():
                if each == address:
                    return broker_name
        return ""

    def _find(self, topic: str) -> tasks.Task[PublishTarget]:
        known = self._targets.get(topic)
        try:
            route = yield from self._route(topic)
            queues = route.write_queues()
        except NotFoundError as missing:
            if known is not None:
                raise  # its broker is away: another one must not create it
            route, queues = yield from self._route_of_new(topic, missing)
        if not queues:
            raise no_permission(topic)
        addresses = {
            broker.broker_name: broker.master_address
            for broker in route.brokers
            if broker.master_address is not None
        }
        target = PublishTarget(topic=topic, queues=tuple(queues), addresses=addresses)
        if known is not None and topic in self._fixed:
            target = replace(known, addresses={**known.addresses, **addresses})
            self._listed[topic] = frozenset(addresses)
        else:
            self._note_listed(target)
        self._client.remember(topic, route)
        self._targets[topic] = target
        return target

    def _route_of_new(
        self, topic: str, missing: NotFoundError
    ) -> tasks.Task[tuple[TopicRoute, list[MessageQueue]]]:
        """The queues that an unknown topic will have once a broker has created it."""
        config = self.config
        missing.hint = Hint(
            "check the message's topic, or create it with ",
            LibraryCall("Admin.create_topic"),
        )
        if config.create_topic_key is None:
            raise missing
        try:
            route = yield from self._route(config.create_topic_key)
        except NotFoundError:
            raise missing from None
        nums = config.default_topic_queue_nums
        return route, queues_of_new_topic(topic, route, queue_nums=nums)

    def _route(self, topic: str) -> tasks.Task[TopicRoute]:
        # The name servers share the time of a send, so that it is not over when the
        # first of them hangs.
        each_ms = _API_TIMEOUT_MS * len(self._client.config.namesrv)
        limit_ms = max(_API_TIMEOUT_MS, min(each_ms, self.config.send_msg_timeout_ms))
        return (yield from self._client.ask_route(topic, timeout_ms=limit_ms))

    def _refresh(self) -> tasks.Task[None]:
        """Request every topic's route again; after a failure keep the known route."""
        found = yield tasks.All([self._find(topic) for topic in list(self._targets)])
        for outcome in found:
            if isinstance(outcome, RmqError):
                logger.warning("route not refreshed error=%s", outcome)

    # --- sending ---

    def send(
        self,
        prepared: Prepared,
        *,
        queue: MessageQueue | None,
        first: MessageQueue | None = None,
        timeout_ms: int,
        retry_times: int,
        is_sent_once: bool = False,
    ) -> tasks.Task[Stored]:
        """Store a message or a batch. See the module.

        With `queue` no other queue is tried; `first` is tried first, then others. With
        `is_sent_once` what a broker may have stored is not sent again.
        """
        config = self.config
        deadline = Deadline(self.clock, timeout_ms)
        target: PublishTarget
        try:
            target = yield tasks.Within(self.target(prepared.topic), timeout_ms)
        except TimeLimitError as error:
            raise out_of_time(prepared.topic, prepared.msg_ids, timeout_ms) from error
        chosen: MessageQueue | None = None
        stored: Stored | None = None
        failure: RmqError | None = None
        unanswered: TransportError | None = None
        for _ in range(1 if queue is not None else 1 + retry_times):
            if deadline.is_over():
                break
            target = self._targets.get(prepared.topic, target)
            if first is not None and first not in self._reachable(target):
                self._renew(prepared.topic)
                first = None
            chosen = queue or first or self._pick(target, last=chosen)
            first = None
            try:
                answer = yield from self._attempt(prepared, chosen, target, deadline)
            except RmqError as error:
                failure = error
                if isinstance(error, TransportError):
                    unanswered = error if error.may_be_done else unanswered
                elif error.may_be_done:
                    # An answer that cannot be read may say that the message is stored,
                    # and a proxy's remoting port may have lost its broker.
                    address = _address(target, chosen)
                    unanswered = DisconnectedError(error.message, address=address)
                if is_sent_once and unanswered is not None:
                    break
                is_away = isinstance(error, NotFoundError)
                if is_away or _is_worth_retrying(error):
                    self._renew(prepared.topic)
                if not _is_worth_retrying(error):
                    break
                if isinstance(error, DeniedError) and len(target.addresses) == 1:
                    break  # Java would retry at the same broker
                continue
            stored = Stored(prepared, chosen, answer)
            is_safe = answer.status is SendStatus.SEND_OK
            if is_safe or not config.retry_another_broker_when_not_store_ok:
                break
        if stored is not None:
            if unanswered is not None:
                self._on_stored_again(prepared.msg_ids)
            return stored
        if unanswered is not None:
            raise unknown_send(
                prepared.topic, prepared.msg_ids, unanswered
            ) from unanswered
        raise failure or out_of_time(prepared.topic, prepared.msg_ids, timeout_ms)

    def send_oneway(
        self, prepared: Prepared, *, queue: MessageQueue | None
    ) -> tasks.Task[None]:
        """Hand a message to the connection, without learning whether it is stored."""
        target = yield from self.target(prepared.topic)
        chosen = queue or self._pick(target, last=None)
        address = _address(target, chosen)
        self._greet(address)
        yield from self._check_delay(prepared, address, _API_TIMEOUT_MS)
        self._client.send_oneway(address, self._call(prepared, chosen))

    def end_transaction(
        self, broker_name: str, header: EndTransactionRequestHeader
    ) -> tasks.Task[None]:
        """Tell the broker that has a half message how its transaction ended."""
        target = yield from self.target(header.topic or "")
        queue = MessageQueue(header.topic or "", broker_name, 0)
        yield from self.end_transaction_at(_address(target, queue), header)

    def end_transaction_at(
        self, address: str, header: EndTransactionRequestHeader
    ) -> tasks.Task[None]:
        """Tell the broker at an address, which has asked, how a transaction ended."""
        if not header.commit_or_rollback:
            # Brokers do not answer an undecided end.
            self._client.send_oneway(address, end_transaction(header))
            return
        try:
            yield tasks.Request(address, end_transaction(header), _API_TIMEOUT_MS)
        except DisconnectedError:
            # The broker can ask again only after a heartbeat on the new connection.
            self._greeted.discard(address)
            self._greet(address)
            raise

    def _attempt(
        self,
        prepared: Prepared,
        queue: MessageQueue,
        target: PublishTarget,
        deadline: Deadline,
    ) -> tasks.Task[Answer]:
        address = _address(target, queue)
        self._greet(address)
        yield from self._check_delay(prepared, address, max(1, deadline.left_ms()))
        timeout_ms = max(1, deadline.left_ms())
        limit_ms = self.config.send_msg_max_timeout_per_request_ms
        if limit_ms is not None:
            timeout_ms = min(timeout_ms, limit_ms)
        call = self._call(prepared, queue)
        started_ms = 0 if self._traces is None else self.clock.epoch_ms()
        begun_ms = self.clock.monotonic_ms()
        try:
            answer: Answer = yield tasks.Request(address, call, timeout_ms)
        except (ConnectError, DisconnectedError, DeadlineError) as error:
            if not isinstance(error, DeadlineError):
                self._greeted.discard(address)  # it has dropped the registration
                self._versions.pop(address, None)  # it may come back with another one
                self._levels.pop(address, None)
            now_ms = self.clock.monotonic_ms()
            if now_ms >= begun_ms + _UNANSWERED_MS:
                self._left_out_ms[queue.broker_name] = now_ms + _LEFT_OUT_MS
            raise
        self._left_out_ms.pop(queue.broker_name, None)
        if self._traces is not None:
            ended_ms = self.clock.epoch_ms()
            self._traces.stored(
                prepared, answer, address, started_ms=started_ms, ended_ms=ended_ms
            )
        return answer

    def _call(self, prepared: Prepared, queue: MessageQueue) -> Call[Answer]:
        config = self.config
        header = SendMessageRequestHeaderV2(
            producer_group=self._producer_group,
            topic=prepared.topic,
            default_topic=config.create_topic_key or AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=config.default_topic_queue_nums,
            queue_id=queue.queue_id,
            sys_flag=prepared.sys_flag,
            born_timestamp=prepared.born_timestamp_ms,
            flag=prepared.flag,
            properties=prepared.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=prepared.is_batch,
            bname=queue.broker_name,
        )
        if prepared.is_batch:
            return send_batch_message(header, prepared.body)
        return send_message(header, prepared.body)

    def _pick(
        self, target: PublishTarget, *, last: MessageQueue | None
    ) -> MessageQueue:
        """The next queue in turn, of another broker than `last`, or else `last`."""
        queues = self._reachable(target)
        for _ in queues:
            queue = queues[next(self._turns) % len(queues)]
            if last is None or queue.broker_name != last.broker_name:
                return queue
        if last in queues:
            return last
        return queues[next(self._turns) % len(queues)]

    def _reachable(self, target: PublishTarget) -> tuple[MessageQueue, ...]:
        """The queues of brokers that the route has and that answer, or else all.

        Each attempt to reach a broker that has left would wait for up to 5 s.
        """
        found = target.queues
        listed = self._listed.get(target.topic)
        if listed is not None:
            found = tuple(q for q in found if q.broker_name in listed) or found
        if self._left_out_ms:
            now_ms = self.clock.monotonic_ms()
            left_out = {n for n, until in self._left_out_ms.items() if now_ms < until}
            found = tuple(q for q in found if q.broker_name not in left_out) or found
        return found

    def _check_delay(
        self, prepared: Prepared, address: str, timeout_ms: int
    ) -> tasks.Task[None]:
        """Raise UnsupportedError for a broker that would deliver at another time."""
        if prepared.needs_timer:
            yield from self._need_timer(address, timeout_ms)
        if prepared.delay_level is not None:
            yield from self._need_level(address, prepared.delay_level, timeout_ms)

    def _need_level(
        self, address: str, level: int, timeout_ms: int
    ) -> tasks.Task[None]:
        """Raise UnsupportedError for a broker without this delay level.

        A broker that refuses to show its settings is not checked. Raises ConnectError
        if it does not answer, because no message was sent.
        """
        if level <= self._levels.get(address, 0):
            return
        ask = self._ask_levels(address, timeout_ms)
        # Messages that are sent side by side share the answer.
        levels = yield tasks.shared(self._asking_levels, address, ask, self._runner)
        if levels is not None and level > len(levels):
            raise no_level(level, levels)

    def _ask_levels(
        self, address: str, timeout_ms: int
    ) -> tasks.Task[list[int] | None]:
        """Return the delay levels of a broker, None if it refuses to show them."""
        try:
            settings = yield tasks.Request(address, get_broker_config(), timeout_ms)
        except (DeadlineError, DisconnectedError) as error:
            raise ConnectError(error.message, address=address) from error
        except BrokerError:
            self._levels[address] = LEVEL_MAX
            return None
        levels = levels_of(settings)
        self._levels[address] = len(levels)
        return levels

    def _need_timer(self, address: str, timeout_ms: int) -> tasks.Task[None]:
        """Raise UnsupportedError for a broker that would deliver without a delay.

        Raises ConnectError if it does not answer, because no message was sent.
        """
        version = self._versions.get(address, 0)
        if version < V5_0_0:  # not known, or the broker may have been upgraded
            call = get_broker_runtime_info()
            try:
                info = yield tasks.Request(address, call, timeout_ms)
            except (DeadlineError, DisconnectedError) as error:
                raise ConnectError(error.message, address=address) from error
            version = self._versions[address] = int(info.get("brokerVersion", V5_0_0))
        if version < V5_0_0:
            raise UnsupportedError(
                f"{address} runs RocketMQ {version_name(version)}, which cannot deliver"
                " a message at a given time",
                hint=Hint("give a level, such as ", Setting("delay_level", 3)),
            )

    # --- heartbeats ---

    def _greet(self, address: str) -> None:
        """Send the first heartbeat to a broker, before the first message."""
        if self._group is not None and address not in self._greeted:
            self._greeted.add(address)
            tasks.start(self._heartbeat(address), self._runner)

    def _heartbeats(self) -> tasks.Task[None]:
        addresses = {
            address
            for target in self._targets.values()
            for address in target.addresses.values()
        }
        self._greeted &= addresses
        yield tasks.All([self._heartbeat(each) for each in sorted(addresses)])

    def _heartbeat(self, address: str) -> tasks.Task[None]:
        assert self._group is not None  # noqa: S101  # checked by the callers
        producer = ProducerData(group_name=self._group)
        data = HeartbeatData(client_id=self._client_id, producers=(producer,))
        try:
            yield tasks.Request(address, send_heartbeat(data), _API_TIMEOUT_MS)
        except RmqError as error:
            self._greeted.discard(address)
            logger.warning("heartbeat failed address=%s error=%s", address, error)

    def leave(self) -> tasks.Task[None]:
        """Unregister from every broker that knows the group."""
        if self._group is None:
            return
        call = unregister_client(self._client_id, producer_group=self._group)
        addresses = sorted(self._greeted)
        outcomes = yield tasks.All(
            [tasks.Request(address, call, _LEAVE_MS) for address in addresses]
        )
        for address, outcome in zip(addresses, outcomes, strict=True):
            if isinstance(outcome, RmqError):
                logger.info("unregister failed address=%s error=%s", address, outcome)


def _address(target: PublishTarget, queue: MessageQueue) -> str:
    address = target.addresses.get(queue.broker_name)
    if address is None:
        raise NotFoundError(
            f"broker {queue.broker_name} of topic {queue.topic} has no master in the"
            " topic's route",
            code=ResponseCode.BROKER_NOT_EXIST,
            hint=Hint("take the queue from ", LibraryCall("Producer.queues")),
        )
    return address


def _is_worth_retrying(error: RmqError) -> bool:
    if isinstance(error, BrokerError):
        # ACL 1.0 answers SYSTEM_ERROR for a wrong secret, which every broker refuses.
        is_acl = isinstance(error, DeniedError) and error.code == 1
        return error.code in _RETRY_CODES and not is_acl
    return isinstance(error, ConnectError | DisconnectedError | DeadlineError)


def may_be_one_message(error: RmqError) -> bool:
    """Whether a broker may have refused a batch because of one message in it."""
    return (
        isinstance(error, BrokerError)
        and not isinstance(error, DeniedError)
        and error.code in _SPLIT_CODES
    )
