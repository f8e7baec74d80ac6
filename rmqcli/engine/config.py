"""The settings of a consumer, with RocketMQ's names and defaults.

Use `dataclasses.replace` to change a setting. A value that cannot be used is refused
when it is set.

Source: DefaultMQPushConsumer, DefaultMQPushConsumerImpl#checkConfig and ClientConfig.
"""

from __future__ import annotations

import enum
import re
from dataclasses import field
from typing import Final

from rmqcli.checked import check_callback, check_fields
from rmqcli.dataclass import dataclass
from rmqcli.engine.allocate import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueStrategy,
)
from rmqcli.errors import ConfigError

_CLIENT_PART: Final = re.compile(r"[^\s@]+")
#: Setting -> the lowest and the highest value, both allowed.
RANGES: Final = {
    "consume_threads": (1, 1_000),
    "consume_concurrently_max_span": (1, 65_535),
    "pull_threshold_for_queue": (1, 65_535),
    "pull_threshold_size_for_queue_mib": (1, 1_024),
    "pull_threshold_for_topic": (1, 6_553_500),
    "pull_threshold_size_for_topic_mib": (1, 102_400),
    "pull_interval_ms": (0, 65_535),
    "pull_batch_size": (1, 1_024),
    "consume_message_batch_max_size": (1, 1_024),
    # Java does not check these.
    "consume_timestamp_ms": (0, 253_402_300_799_999),  # the last ms of the year 9999
    "consume_ago_ms": (0, 2**63 - 1),
    "max_reconsume_times": (0, 2**31 - 1),
    "suspend_current_queue_time_ms": (10, 30_000),
    "consume_timeout_ms": (1, 24 * 60 * 60 * 1_000),
    "await_termination_ms": (0, 60 * 60 * 1_000),
    "pull_time_delay_when_exception_ms": (10, 60_000),
    "poll_namesrv_interval_ms": (100, 10 * 60 * 1_000),
    # A broker drops a member after 120 s.
    "heartbeat_broker_interval_ms": (100, 100_000),
    "persist_consumer_offset_interval_ms": (100, 10 * 60 * 1_000),
    "rebalance_interval_ms": (100, 10 * 60 * 1_000),
    "cached_bytes_max": (1, 2**63 - 1),
    "probe_broker_interval_ms": (100, 10 * 60 * 1_000),
}


class MessageModel(enum.Enum):
    """Whether one member of the group gets a message, or every member."""

    CLUSTERING = "CLUSTERING"
    BROADCASTING = "BROADCASTING"


class ConsumeFromWhere(enum.Enum):
    """Where a group begins in a queue for which it has committed no offset."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


_TYPES: Final = {"MessageModel": MessageModel, "ConsumeFromWhere": ConsumeFromWhere}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The settings of one consumer. None means unlimited, or chosen at the start.

    `consume_timestamp_ms` is epoch ms (None: `consume_ago_ms` before the start, by the
    broker's clock). For `max_reconsume_times` None means 16, or no limit when messages
    are consumed in order. `like_4_6_offset_illegal` does not consume a queue for 10 s
    after a broker has corrected its offset, as clients before 5.2 do.

    Java does not have `consume_ago_ms` and the following settings. `cached_bytes_max`
    bounds the size of the bodies that all queues together hold; a single pull may
    exceed it when nothing else is held, so that a larger message is consumed, too.
    `await_termination_ms` is how long `close` waits for listeners. With
    `probe_broker_interval_ms` the consumer asks a broker that has held all pulls for
    that long whether it still answers, and logs when it does not. Without it, the
    consumer notices only when a pull times out, after 30 s.

    Raises TypeError for a value of a wrong type, and ConfigError for one that is out of
    its range.
    """

    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int | None = None
    consume_ago_ms: int = 30 * 60 * 1_000
    strategy: AllocateMessageQueueStrategy = field(
        default_factory=AllocateMessageQueueAveragely
    )
    consume_threads: int = 20
    consume_concurrently_max_span: int = 2_000
    pull_threshold_for_queue: int = 1_000
    pull_threshold_size_for_queue_mib: int = 100
    pull_threshold_for_topic: int | None = None
    pull_threshold_size_for_topic_mib: int | None = None
    pull_interval_ms: int = 0
    pull_batch_size: int = 32
    consume_message_batch_max_size: int = 1
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
    cached_bytes_max: int | None = 64 * 1024 * 1024
    like_4_6_offset_illegal: bool = False
    probe_broker_interval_ms: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, ranges=RANGES, types=_TYPES)
        if not callable(getattr(self.strategy, "allocate", None)):
            raise TypeError(
                f"strategy is {self.strategy!r}; it must be an"
                " AllocateMessageQueueStrategy"
            )
        check_callback(self.strategy.allocate, "strategy.allocate")
        for name in ("client_ip", "instance_name"):
            text = getattr(self, name)
            if text is not None and not _CLIENT_PART.fullmatch(text):
                raise ConfigError(
                    f"{name} is {text!r}; it must not be empty or contain blanks or"
                    " '@', because it is part of the client id"
                )
