"""The settings of a producer, with RocketMQ's names and defaults.

Use `dataclasses.replace` to change a setting.

Source: DefaultMQProducer, TransactionMQProducer and ClientConfig in apache/rocketmq.
"""

from __future__ import annotations

from typing import Final

from rmqcli.checked import check_fields
from rmqcli.dataclass import dataclass

TIMEOUT_MS_MAX: Final = 24 * 60 * 60 * 1_000

#: Setting -> the lowest and the highest value, both allowed.
_RANGES: Final = {
    "send_msg_timeout_ms": (1, TIMEOUT_MS_MAX),
    "send_msg_max_timeout_per_request_ms": (1, TIMEOUT_MS_MAX),
    "retry_times_when_send_failed": (0, 100),
    "retry_times_when_send_async_failed": (0, 100),
    "max_message_size_bytes": (1, 16 << 20),
    "compress_msg_body_over_howmuch_bytes": (1, 2**31 - 1),
    "compress_level": (0, 9),
    "default_topic_queue_nums": (1, 65_535),
    "async_messages_max": (1, 1_000_000),
    "linger_ms": (0, 60_000),
    "poll_namesrv_interval_ms": (100, 10 * 60 * 1_000),
    "heartbeat_broker_interval_ms": (100, 100_000),  # brokers forget a client at 120 s
    "await_termination_ms": (0, 60 * 60 * 1_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of one producer. None means unlimited, or chosen at the start.

    `send_msg_timeout_ms` bounds a send with all its attempts.
    `send_msg_max_timeout_per_request_ms` bounds one attempt; without it an attempt may
    take all the remaining time, so that a send that gets no answer is not retried.
    `retry_another_broker_when_not_store_ok` tries another broker also after a status
    such as FLUSH_DISK_TIMEOUT, which can store a message twice. `create_topic_key` is
    the topic from which a broker takes the number of queues when it creates a topic;
    with None a send to an unknown topic is an error, whatever brokers allow.
    `async_messages_max` is the number of messages that may wait for an answer before
    `submit` blocks. A submitted message waits at most `linger_ms` for others that can
    share its request; with 0 only while requests are in flight.
    `await_termination_ms` is how long `close` waits for messages in flight.

    Raises TypeError for a value of a wrong type, and ConfigError for one that is out of
    its range.
    """

    send_msg_timeout_ms: int = 3_000  # sendMsgTimeout
    send_msg_max_timeout_per_request_ms: int | None = None
    retry_times_when_send_failed: int = 2
    retry_times_when_send_async_failed: int = 2
    retry_another_broker_when_not_store_ok: bool = False
    max_message_size_bytes: int = 4 << 20  # maxMessageSize
    compress_msg_body_over_howmuch_bytes: int = 4_096
    compress_level: int = 5
    default_topic_queue_nums: int = 4
    create_topic_key: str | None = "TBW102"
    async_messages_max: int = 1_024  # backPressureForAsyncSendNum
    linger_ms: int = 0  # ProduceAccumulator.holdMs, which is 10 in Java
    poll_namesrv_interval_ms: int = 30_000
    heartbeat_broker_interval_ms: int = 30_000
    await_termination_ms: int = 10_000
    client_ip: str | None = None
    instance_name: str | None = None

    def __post_init__(self) -> None:
        check_fields(self, ranges=_RANGES)
