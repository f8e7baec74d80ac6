"""Committed offsets and their resets, as brokers and clients exchange them.

Source: ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper, ResetOffsetBody,
ResetOffsetBodyForC, GetConsumerStatusBody, GroupList in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.errors import BodyError
from rmqcli.wire import fastjson
from rmqcli.wire.bodies.read import (
    get_object,
    get_objects,
    get_queue_numbers,
    get_table,
    get_texts,
    load_object,
    need_int,
    read_queue,
    to_int,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.model import MessageQueue

_TOPIC_GROUP_SEPARATOR = "@"  # ConsumerOffsetManager.TOPIC_GROUP_SEPARATOR


def parse_all_consumer_offset(body: bytes) -> dict[tuple[str, str], dict[int, int]]:
    """The answer to GET_ALL_CONSUMER_OFFSET (43): (group, topic) -> queue id -> offset.

    A queue that is not there was never committed. As in the broker's own listings,
    keys that are not `topic@group` are left out.
    """
    data = load_object(body, "consumer offsets")
    offsets: dict[tuple[str, str], dict[int, int]] = {}
    for key, table in get_table(data, "offsetTable"):
        parts = key.split(_TOPIC_GROUP_SEPARATOR)
        if len(parts) == 2:
            topic, group = parts
            offsets[group, topic] = {
                to_int(queue_id, "queue id"): to_int(offset, "offset")
                for queue_id, offset in table.items()
                if offset is not None
            }
    return offsets


def encode_all_consumer_offset(
    offsets: Mapping[tuple[str, str], Mapping[int, int]],
) -> bytes:
    """The body of an answer to GET_ALL_CONSUMER_OFFSET."""
    table = {
        f"{topic}{_TOPIC_GROUP_SEPARATOR}{group}": {
            str(k): v for k, v in queues.items()
        }
        for (group, topic), queues in offsets.items()
    }
    return fastjson.dumps({"offsetTable": table}).encode()


def parse_delay_offset(body: bytes) -> dict[int, int]:
    """The answer to GET_ALL_DELAY_OFFSET (45): delay level -> next queue offset."""
    table = get_object(load_object(body, "delay offsets"), "offsetTable")
    return {
        to_int(level, "delay level"): to_int(offset, "offset")
        for level, offset in table.items()
        if offset is not None
    }


def parse_reset_offset(body: bytes) -> dict[MessageQueue, int]:
    """The offsets in an answer to 222 or in a push of 220.

    Both forms: a table by queue, and the list that brokers send to clients in C++.
    """
    data = load_object(body, "offset reset")
    if isinstance(data.get("offsetTable"), list):
        return {
            read_queue(item): need_int(item, "offset")
            for item in get_objects(data, "offsetTable")
        }
    return get_queue_numbers(data, "offsetTable")


def encode_reset_offset(offsets: Mapping[MessageQueue, int]) -> bytes:
    """ResetOffsetBody: the form for clients in any language but C++."""
    return fastjson.dumps({"offsetTable": dict(offsets)}).encode()


def encode_reset_offset_for_c(offsets: Mapping[MessageQueue, int]) -> bytes:
    """ResetOffsetBodyForC: the form for clients in C++."""
    table = [
        {
            "brokerName": queue.broker_name,
            "offset": offset,
            "queueId": queue.queue_id,
            "topic": queue.topic,
        }
        for queue, offset in offsets.items()
    ]
    return fastjson.dumps({"offsetTable": table}).encode()


def parse_consumer_status(body: bytes) -> dict[str, dict[MessageQueue, int]]:
    """The answer to 223: client id -> queue -> offset; to 221 under the id `""`."""
    data = load_object(body, "consumer status")
    clients = get_object(data, "consumerTable")
    status = {client_id: get_queue_numbers(clients, client_id) for client_id in clients}
    own = get_queue_numbers(data, "messageQueueTable")
    if own:
        if "" in status:
            raise BodyError("consumerTable has a client without an id")
        status[""] = own
    return status


def encode_consumer_status(offsets: Mapping[MessageQueue, int]) -> bytes:
    """A client's answer to GET_CONSUMER_STATUS_FROM_CLIENT (221)."""
    return fastjson.dumps({"messageQueueTable": dict(offsets)}).encode()


def parse_group_list(body: bytes) -> list[str]:
    """The answer to QUERY_TOPIC_CONSUME_BY_WHO (300), sorted."""
    return sorted(get_texts(load_object(body, "group list"), "groupList"))


def encode_group_list(groups: Iterable[str]) -> bytes:
    """The body of an answer to QUERY_TOPIC_CONSUME_BY_WHO."""
    return fastjson.dumps({"groupList": list(groups)}).encode()
