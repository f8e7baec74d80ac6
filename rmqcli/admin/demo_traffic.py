"""Live traffic for `rmq demo`: a producer, and a consumer that is slower than it.

Both run in threads of their own with a client of their own, until they are stopped. The
consumer is a plain member of its group: it heartbeats, pulls one queue after the other
under the group's name, and commits what it has taken, never more.
"""

from __future__ import annotations

import dataclasses
import random
import threading
from typing import TYPE_CHECKING, Final

from rmqcli.admin.demo_orders import GROUP, TOPIC, order_events
from rmqcli.admin.send import Sender, SendOptions
from rmqcli.admin.send_ids import UniqueIds
from rmqcli.admin.send_target import find_target
from rmqcli.api.call import make_call, nothing
from rmqcli.api.calls_offset import query_consumer_offset, update_consumer_offset
from rmqcli.api.calls_pull import pull_message
from rmqcli.api.client import Client
from rmqcli.clock import SYSTEM_CLOCK, Deadline
from rmqcli.errors import RmqError
from rmqcli.wire.bodies_consumer import (
    ConsumerRunningInfo,
    ProcessQueueInfo,
    encode_consumer_running_info,
)
from rmqcli.wire.bodies_heartbeat import ConsumerData, HeartbeatData, encode_heartbeat
from rmqcli.wire.codes import RequestCode, ResponseCode
from rmqcli.wire.command import RemotingCommand
from rmqcli.wire.message import decode_messages
from rmqcli.wire.pull_answer import PullStatus
from rmqcli.wire.subscription import SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.admin.send_message import OutgoingMessage
    from rmqcli.config import ClientConfig
    from rmqcli.model import MessageQueue

#: Messages that are there before the tour begins, and rates while it goes on.
PAST_ORDERS: Final = 2_000
_SENT_PER_S: Final = 40
_CONSUMED_PER_TURN: Final = 2
_TURN_MS: Final = 100
_HEARTBEAT_MS: Final = 10_000
_CONSUME_TYPE: Final = "CONSUME_PASSIVELY"


class Traffic:
    """Starts both threads when entered; `stop` ends them. What failed is in `error`."""

    def __init__(self, config: ClientConfig, *, seed: int) -> None:
        self._config = config
        self._seed = seed
        self._over = threading.Event()
        self._ready = threading.Event()
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), name=name)
            for work, name in ((self._produce, "orders"), (self._consume, "billing"))
        ]
        self.error: RmqError | None = None

    def start(self) -> None:
        """Begin; returns when the past orders are stored. Raises what went wrong."""
        for thread in self._threads:
            thread.start()
        self._ready.wait()
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        """End both threads. Idempotent."""
        self._over.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _guarded(self, work: object) -> None:
        try:
            with Client(self._config) as client:
                work(client)  # type: ignore[operator]  # one of the two below
        except RmqError as error:
            self.error = error
        finally:
            self._ready.set()

    def _produce(self, client: Client) -> None:
        rng = random.Random(self._seed)  # noqa: S311  # orders that look alive
        sender = Sender(
            client,
            find_target(client, TOPIC),
            options=SendOptions(shard_by="order"),
            ids=UniqueIds("127.0.0.1", clock=SYSTEM_CLOCK, rng=rng),
            rng=rng,
        )
        for _ in sender.send(self._paced(rng)):
            pass

    def _paced(self, rng: random.Random) -> Iterator[OutgoingMessage | None]:
        events = order_events(rng)
        for _ in range(PAST_ORDERS):
            yield next(events)
        yield None
        self._ready.set()
        while not SYSTEM_CLOCK.wait_ms(self._over, _TURN_MS):
            for _ in range(_SENT_PER_S * _TURN_MS // 1000):
                yield next(events)
            yield None

    def _consume(self, client: Client) -> None:
        member = _Member(client)
        client.remoting.set_request_handler(member.answer)
        while not self._over.is_set():
            turn = Deadline(SYSTEM_CLOCK, _TURN_MS)
            member.turn()
            while (left_ms := turn.left_ms()) > 0:
                client.poll(left_ms)


class _Member:
    """The only member of its group, so all queues are its own."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._queues: list[MessageQueue] = []
        self._offsets: dict[MessageQueue, int] = {}
        self._next = 0
        self._heartbeat_due_ms = 0
        self._pulled_ms = 0

    def turn(self) -> None:
        """Take a few messages of the next queue and commit them."""
        self._queues = self._queues or self._client.route(TOPIC).read_queues()
        self._heartbeat()
        queue = self._queues[self._next % len(self._queues)]
        self._next += 1
        address = self._client.master_of(self._client.route(TOPIC), queue.broker_name)
        at = self._offset(queue, address)
        call = pull_message(queue, at, max_msg_nums=_CONSUMED_PER_TURN)
        fields = {**call.ext_fields, "consumerGroup": GROUP}
        answer = self._client.invoke(
            address, dataclasses.replace(call, ext_fields=fields)
        )
        self._pulled_ms = self._client.clock.epoch_ms()
        if answer.status is PullStatus.FOUND:
            at += len(decode_messages(answer.body))
        elif answer.status is not PullStatus.NO_NEW_MSG:
            at = answer.next_begin_offset  # somebody reset the group
        self._offsets[queue] = at
        commit = update_consumer_offset(GROUP, TOPIC, queue.queue_id, commit_offset=at)
        self._client.invoke(address, commit)

    def answer(self, _address: str, request: RemotingCommand) -> RemotingCommand:
        """What the broker relays: which queues are held, and up to where."""
        if request.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
            return RemotingCommand(code=int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))
        held = {
            queue: ProcessQueueInfo(
                commit_offset=offset,
                last_pull_timestamp=self._pulled_ms,
                last_consume_timestamp=self._pulled_ms,
            )
            for queue, offset in self._offsets.items()
        }
        info = ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": _CONSUME_TYPE}, process_queues=held
        )
        return RemotingCommand(
            code=int(ResponseCode.SUCCESS), body=encode_consumer_running_info(info)
        )

    def _offset(self, queue: MessageQueue, address: str) -> int:
        known = self._offsets.get(queue)
        if known is None:
            call = query_consumer_offset(GROUP, TOPIC, queue.queue_id)
            known = self._client.invoke(address, call) or 0
        return known

    def _heartbeat(self) -> None:
        now_ms = self._client.clock.monotonic_ms()
        if now_ms < self._heartbeat_due_ms:
            return
        self._heartbeat_due_ms = now_ms + _HEARTBEAT_MS
        consumer = ConsumerData(
            group_name=GROUP,
            consume_type=_CONSUME_TYPE,
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscriptions=(SubscriptionData(topic=TOPIC, sub_version=1),),
        )
        body = encode_heartbeat(
            HeartbeatData(client_id="127.0.0.1@demo", consumers=(consumer,))
        )
        call = make_call(RequestCode.HEART_BEAT, nothing, what="heartbeat", body=body)
        for broker in self._client.route(TOPIC).brokers:
            if broker.master_address is not None:
                self._client.invoke(broker.master_address, call)
