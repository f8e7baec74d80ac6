"""Finds the one message that `--past-message` names.

Two kinds of id look alike: the offset id says where a record lies, the unique id has to
be looked up in each broker's index. The first is tried when its host is one of the
topic's brokers. Neither answer is believed before topic and id were compared.

Source: MQAdminImpl#queryMessage, QueryMessageProcessor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rmqcli.api.calls_store import query_message, view_message_by_id
from rmqcli.errors import BrokerError, NotFoundError, RmqError, UsageError
from rmqcli.model import MessageQueue
from rmqcli.units import DAY_MS
from rmqcli.wire.codes import ResponseCode
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message import StoredMessage, decode_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqcli.api.client import Client


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """Where a message is."""

    queue: MessageQueue
    queue_offset: int


def find_message(client: Client, topic: str, message_id: str) -> FoundMessage:
    """The message of `topic` that has this id, of either kind.

    Raises NotFoundError when there is none, UsageError when several have it: a producer
    that sends again uses the id again.
    """
    found = list(dict.fromkeys(_by_offset_id(client, topic, message_id)))
    if not found:
        found = list(dict.fromkeys(_by_unique_id(client, topic, message_id)))
    if not found:
        raise NotFoundError(
            f"no message of topic {topic} has the id {message_id}",
            code=int(ResponseCode.NO_MESSAGE),
            name=ResponseCode.NO_MESSAGE.name,
            hint=(
                "the index may not reach back that far; with the message's queue and"
                " offset: --queue BROKER:ID --to OFFSET+1"
            ),
        )
    if len(found) > 1:
        places = ", ".join(f"{each.queue} at {each.queue_offset}" for each in found)
        raise UsageError(
            f"{len(found)} messages have the id {message_id}: {places}",
            hint="name one of them by its offset_msg_id",
        )
    return found[0]


def _by_offset_id(client: Client, topic: str, text: str) -> Iterator[FoundMessage]:
    try:
        wanted = decode_offset_msg_id(text)
    except UsageError:
        # Raised again for what is no id at all; an odd port only means the other kind.
        if len(text) not in (32, 56) or not text.isalnum():
            raise
        return
    route = client.route(topic)
    for broker in route.brokers:
        if wanted.host not in broker.addresses.values():
            continue
        call = view_message_by_id(wanted.commit_log_offset, topic=topic)
        try:
            body = client.invoke(wanted.host, call)
        except BrokerError:
            continue  # nothing there: then it was a unique id
        for message in decode_messages(body):
            if (
                isinstance(message, StoredMessage)
                and message.commit_log_offset == wanted.commit_log_offset
                and message.topic == topic
            ):
                yield _found(message, topic, broker.broker_name)


def _by_unique_id(client: Client, topic: str, text: str) -> Iterator[FoundMessage]:
    route = client.route(topic)
    names = [b.broker_name for b in route.brokers if b.master_address is not None]
    # A producer's clock may be ahead of ours.
    end_ms = client.clock.epoch_ms() + DAY_MS
    pendings = [
        client.submit(
            client.master_of(route, name),
            query_message(topic, text, begin_ms=0, end_ms=end_ms),
        )
        for name in names
    ]
    bodies = client.gather(pendings)
    for name, body in zip(names, bodies, strict=True):
        if isinstance(body, RmqError):
            raise body
        for message in decode_messages(body):
            if (
                isinstance(message, StoredMessage)
                and message.topic == topic
                and message.msg_id == text
            ):
                yield _found(message, topic, name)


def _found(message: StoredMessage, topic: str, broker_name: str) -> FoundMessage:
    queue = MessageQueue(topic, broker_name, message.queue_id)
    return FoundMessage(queue, message.queue_offset)
