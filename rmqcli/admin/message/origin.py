"""Where the message of a letter was first stored: its queue and its offset there.

A letter has the broker's id of that message, which says where it is in the commit log,
but not in which queue. So the message itself is looked up; it is believed only if it
has the letter's topic and the same id of the producer. If the topic was deleted since,
and created again, another message may have that place: then it is not named.

Source: QueryMessageProcessor.viewMessageById, which does not check the offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.admin.dlq.letter import facts_of
from rmqcli.admin.message.place import check_places
from rmqcli.admin.message.records import decode_found
from rmqcli.api.calls.store import view_message_by_id
from rmqcli.errors import ConfigError, RmqError
from rmqcli.wire.ids import decode_offset_msg_id
from rmqcli.wire.message.record import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqcli.api.client import Client
    from rmqcli.engine.message import PulledMessage
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import DecodeFailure

#: Messages that are looked up at once.
_AT_ONCE = 64


def find_origins(
    client: Client, group: str, letters: Sequence[StoredMessage | DecodeFailure]
) -> list[tuple[MessageQueue, int] | None]:
    """Return queue and offset of the first message of each letter, in order.

    None where the letter does not name it, the message is not stored in its topic any
    more, or its broker does not answer or has another address now.
    """
    names = {
        address: broker.broker_name
        for broker in client.cluster_info().brokers.values()
        for address in broker.addresses.values()
    }
    places: dict[int, tuple[str, int, str]] = {}
    ids: dict[int, str | None] = {}
    for number, letter in enumerate(letters):
        if isinstance(letter, StoredMessage):
            facts = facts_of(group, letter)
            if facts.origin_topic is not None and facts.origin_msg_id is not None:
                place = _place(facts.origin_msg_id, facts.origin_topic)
                if place is not None and place[0] in names:
                    places[number], ids[number] = place, letter.msg_id
    origins: list[tuple[MessageQueue, int] | None] = [None] * len(letters)
    asked = list(places)
    for start in range(0, len(asked), _AT_ONCE):
        questions = {}
        for number in asked[start : start + _AT_ONCE]:
            address, offset, topic = places[number]
            questions[number] = address, view_message_by_id(offset, topic=topic)
        there: dict[int, PulledMessage] = {}
        for number, answer in client.ask_many(questions).items():
            if isinstance(answer, RmqError):
                continue
            address, *wanted = places[number]
            for found in decode_found(answer, names[address])[:1]:
                is_there = [found.commit_log_offset, found.topic] == wanted
                if is_there and found.msg_id == ids[number]:
                    there[number] = found
        gone = {
            id(found)
            for found, state in check_places(client, there.values())
            if state.is_there is False
        }
        for number, found in there.items():
            if id(found) not in gone:
                origins[number] = found.message_queue, found.queue_offset
    return origins


def _place(origin_msg_id: str, topic: str) -> tuple[str, int, str] | None:
    """Return address, commit log offset and topic; None for an id of another kind."""
    try:
        found = decode_offset_msg_id(origin_msg_id)
    except ConfigError:
        return None
    return found.host, found.commit_log_offset, topic
