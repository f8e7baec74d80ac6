"""The settings of a consumer, with RocketMQ's names and defaults.

Use `dataclasses.replace` to change a setting. A value of a wrong type is refused when
it is set; `checks.check_config` checks the ranges before anything is sent.

Source: DefaultMQPushConsumer and ClientConfig.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from typing import Final

from rmqcli.callbacks import check_callback
from rmqcli.engine.allocate import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueStrategy,
)


class MessageModel(enum.Enum):
    """Whether one member of the group gets a message, or every member."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(enum.Enum):
    """Where a group begins in a queue for which it has committed no offset."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The settings of one consumer. None means unlimited, or chosen at the start.

    `consume_timestamp_ms` is epoch ms (None: half an hour before the start). For
    `max_reconsume_times` None means 16, or no limit when messages are consumed in
    order. `like_4_6_offset_illegal` does not consume a queue for 10 s after a broker
    has corrected its offset, as clients before 5.2 do.

    Java does not have the following settings. `cached_bytes_max` bounds the size of the
    bodies that all queues together hold; a single pull may exceed it when nothing else
    is held, so that a larger message is consumed, too. `await_termination_ms` is how
    long `close` waits for listeners. With `share_slow_pulls`, other threads help to
    consume the messages of one pull once a listener is slow. Without it, a listener
    that raises LeaveRest has consumed all earlier messages.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int | None = None
    strategy: AllocateMessageQueueStrategy = field(
        default_factory=AllocateMessageQueueAveragely
    )
    consume_threads: int = 20
    share_slow_pulls: bool = True
    consume_concurrently_max_span: int = 2_000
    pull_threshold_for_queue: int = 1_000
    pull_threshold_size_for_queue_mib: int = 100
    pull_threshold_for_topic: int | None = None
    pull_threshold_size_for_topic_mib: int | None = None
    pull_interval_ms: int = 0
    pull_batch_size: int = 32
    consume_message_batch_max_size: int = 1
    post_subscription_when_pull: bool = False
    unit_mode: bool = False
    max_reconsume_times: int | None = None
    suspend_current_queue_time_ms: int = 1_000
    consume_timeout_ms: int = 15 * 60 * 1_000
    await_termination_ms: int = 10_000
    pull_time_delay_when_exception_ms: int = 1_000
    poll_namesrv_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    persist_consumer_offset_interval_ms: int = 5_000
    rebalance_interval_ms: int = 20_000
    client_ip: str | None = None
    instance_name: str | None = None
    unit_name: str | None = None
    cached_bytes_max: int | None = 64 * 1024 * 1024
    like_4_6_offset_illegal: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for the first value that is not of its field's type.

        Raises TypeError for a strategy whose `allocate` is an `async def`.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            wanted = str(each.type).split(" | ")
            if not any(_is_a(value, name) for name in wanted):
                raise ValueError(
                    f"{each.name} is {value!r}, {_article(type(value).__name__)}; it"
                    f" must be {' or '.join(_article(name) for name in wanted)}"
                )
        check_callback(self.strategy.allocate, "strategy.allocate")


#: The types of the settings, by the names that they have above.
_TYPES: Final[dict[str, type]] = {
    "MessageModel": MessageModel,
    "ConsumeFromWhere": ConsumeFromWhere,
    "int": int,
    "bool": bool,
    "str": str,
    "None": type(None),
}


def _is_a(value: object, name: str) -> bool:
    if name == "AllocateMessageQueueStrategy":
        return callable(getattr(value, "allocate", None))
    if name == "int" and isinstance(value, bool):
        return False
    return isinstance(value, _TYPES[name])


def _article(name: str) -> str:
    if name == "None":
        return name
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"
