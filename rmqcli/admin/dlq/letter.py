"""One dead letter: where it came from, and what was tried with it. Pure.

A broker copies a message that a group gave up on to `%DLQ%GROUP`, with the properties
of the message and a few of its own. It records no reason for the last failure.

Source: AbstractSendMessageProcessor.consumerSendMsgBack, KeyBuilder.parseNormalTopic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.dataclass import dataclass
from rmqcli.model import RETRY_GROUP_TOPIC_PREFIX, pop_retry_topics
from rmqcli.units import read_count

if TYPE_CHECKING:
    from rmqcli.model import MessageQueue
    from rmqcli.wire.message.record import StoredMessage

RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
_DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
_DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

#: The properties that a redrive adds: the letter that was sent again last, as
#: BROKER:QUEUE:OFFSET, and how often the message has been redriven.
REDRIVEN_FROM: Final = "RMQ_REDRIVEN_FROM"
REDRIVEN_TIMES: Final = "RMQ_REDRIVEN_TIMES"
#: The property that a flush adds to its copy of a message that waits in a delay level:
#: the place of the original there, as BROKER:QUEUE:OFFSET.
FLUSHED_FROM: Final = "RMQ_FLUSHED_FROM"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFacts:
    """What the properties of a letter say about it.

    `origin_topic` is where it was first sent, `origin_msg_id` the broker's id of the
    stored message there; None where nothing says so. `deliveries` is how often
    consumers failed to consume it. `redriven_times` and `redriven_from` are those of
    earlier redrives of this message, which died again.
    """

    origin_topic: str | None
    origin_msg_id: str | None
    deliveries: int
    redriven_times: int
    redriven_from: str | None


def facts_of(group: str, message: StoredMessage) -> LetterFacts:
    """Read what a letter of `group` says about itself."""
    properties = message.properties
    times = read_count(properties.get(REDRIVEN_TIMES), digits_max=9)
    source = properties.get(REDRIVEN_FROM)
    return LetterFacts(
        origin_topic=_origin_topic(
            group, properties.get(RETRY_TOPIC) or properties.get(_DLQ_ORIGIN_TOPIC)
        ),
        origin_msg_id=properties.get(ORIGIN_MESSAGE_ID)
        or properties.get(_DLQ_ORIGIN_MESSAGE_ID),
        deliveries=message.reconsume_times,
        redriven_times=int(source is not None) if times is None else times,
        redriven_from=source,
    )


def place_of(queue: MessageQueue, queue_offset: int | str | None) -> str:
    """The name of a letter in properties and logs: BROKER:QUEUE:OFFSET."""
    return f"{queue.broker_name}:{queue.queue_id}:{queue_offset}"


def _origin_topic(group: str, topic: str | None) -> str | None:
    """Return the topic behind a retry topic of POP; None for the group's retry topic.

    A message that died after retries by POP names the retry topic as its origin.
    """
    if topic is None or not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return topic
    for prefix in pop_retry_topics(group, ""):
        if topic.startswith(prefix) and topic != prefix:
            return topic.removeprefix(prefix)
    return None
