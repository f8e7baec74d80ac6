"""Find the queues to which messages of a topic can be sent.

A topic that does not exist is created by the broker that receives its first message, if
that broker allows it. Such a broker has announced the topic TBW102 to the name servers,
and the new topic gets its queues from TBW102's.

Source: MQClientInstance.updateTopicRouteInfoFromNameServer, SelectMessageQueueByHash.
"""

from __future__ import annotations

import json
import threading
from dataclasses import field
from typing import TYPE_CHECKING

from rmqcli.api.calls.config import AUTO_CREATE_TOPIC_KEY_TOPIC
from rmqcli.clock import Deadline
from rmqcli.dataclass import dataclass
from rmqcli.errors import ConfigError, NotFoundError, RmqError
from rmqcli.hint import Hint, LibraryCall, Setting
from rmqcli.model import MASTER_ID, MessageQueue
from rmqcli.producer.backend import no_writable_queue
from rmqcli.queue_selector import select_queues
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.ids import java_string_hash, message_group_index
from rmqcli.wire.message.properties import SHARDING_KEY

if TYPE_CHECKING:
    from collections.abc import Collection

    from rmqcli.api.client import Client
    from rmqcli.errors import DeniedError
    from rmqcli.model import TopicRoute
    from rmqcli.producer.message import OutgoingMessage
    from rmqcli.queue_selector import QueueSelector

#: The number of queues that is requested for a topic that a broker creates.
DEFAULT_TOPIC_QUEUE_NUMS = 4  # DefaultMQProducer.defaultTopicQueueNums

_CREATED_POLL_MS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTarget:
    """The writable queues of a topic, sorted, and the address of each broker.

    With `is_new` no name server knows the topic; the queues are those that the topic
    will have when it has been created.
    """

    topic: str
    queues: tuple[MessageQueue, ...]
    addresses: dict[str, str] = field(hash=False)
    is_new: bool = False


def find_target(
    client: Client,
    topic: str,
    selectors: Collection[QueueSelector] = (),
    *,
    may_create: bool = False,
) -> PublishTarget:
    """Find the writable queues of `topic`; with `may_create`, also of a new topic.

    Raises NotFoundError when the topic does not exist and may not be created, or no
    broker creates topics, and for a selector that matches no queue; DeniedError when
    none of its queues is writable.
    """
    is_new = False
    try:
        route = client.route(topic)
        queues = route.write_queues()
    except NotFoundError as missing:
        if not may_create:
            missing.hint = Hint(
                "add ",
                Setting("may_create", True),
                " to let a broker create it, or list topics with: ",
                LibraryCall("Admin.topics"),
            )
            raise
        route = _default_route(client, missing)
        queues = queues_of_new_topic(topic, route)
        is_new = True
    if not queues:
        raise no_permission(topic)
    chosen = select_queues(queues, selectors)
    names = {queue.broker_name for queue in chosen}
    addresses = {
        each.broker_name: each.master_address
        for each in route.brokers
        if each.broker_name in names and each.master_address is not None
    }
    if not addresses:  # only fixed queues may be of a broker without a master
        client.master_of(route, chosen[0].broker_name)
    return PublishTarget(
        topic=topic, queues=tuple(chosen), addresses=addresses, is_new=is_new
    )


def no_permission(topic: str) -> DeniedError:
    """The error of a send to a topic whose route has no writable queue."""
    code = ResponseCode.NO_PERMISSION
    return no_writable_queue(topic, code=int(code), name=code.name)


def created_queues(
    client: Client, topic: str, brokers: Collection[str], *, timeout_ms: int
) -> dict[str, int]:
    """Return the number of write queues of a new topic by broker name.

    Waits until the name server shows the topic on all of `brokers`, for at most
    `timeout_ms`; then returns what it shows.
    """
    deadline = Deadline(client.clock, timeout_ms)
    never = threading.Event()
    while True:
        try:
            queues = client.route(topic, refresh=True).queues
        except RmqError:
            queues = ()
        found = {queue.broker_name: queue.write_queue_nums for queue in queues}
        if deadline.is_over() or found.keys() >= set(brokers):
            return found
        client.clock.wait_ms(never, min(_CREATED_POLL_MS, deadline.left_ms()))


def shard_of(message: OutgoingMessage, field_name: str, *, shards: int) -> int:
    """Return the index, below `shards`, of a message's queue; equal in every run.

    Java's hash of a value decides, as in SelectMessageQueueByHash; for a message group
    it is the queue in which a proxy stores the group. The value is a field of the body,
    if the body is a JSON object with that field, and else the property of that name.
    Raises ConfigError when the message has neither.
    """
    value = _field_text(message.body, field_name)
    if value is None:
        value = message.properties.get(field_name)
    if value is None:
        where = f"{message.source}: " if message.source else ""
        raise ConfigError(
            f"{where}neither the body nor the properties have {field_name!r},"
            " by which the queue is chosen"
        )
    if field_name == SHARDING_KEY:
        return message_group_index(value, shards)
    return abs(java_string_hash(value)) % shards


def _field_text(body: bytes, field_name: str) -> str | None:
    if not body.lstrip().startswith(b"{"):
        return None
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return None
    value = data.get(field_name)
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _default_route(client: Client, missing: NotFoundError) -> TopicRoute:
    try:
        return client.route(AUTO_CREATE_TOPIC_KEY_TOPIC)
    except NotFoundError:
        missing.hint = Hint(
            "no broker creates topics by itself; use: ",
            LibraryCall("Admin.create_topic"),
        )
        raise missing from None


def queues_of_new_topic(
    topic: str, route: TopicRoute, *, queue_nums: int = DEFAULT_TOPIC_QUEUE_NUMS
) -> list[MessageQueue]:
    """The queues that a new topic will have; `route` is the route of TBW102."""
    masters = {b.broker_name for b in route.brokers if MASTER_ID in b.addresses}
    return sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queues
        if data.is_writable and data.broker_name in masters
        for queue_id in range(min(queue_nums, data.write_queue_nums))
    )
