"""A broker's settings that have an effect here, with RocketMQ's names and defaults.

Source: `BrokerConfig` and `MessageStoreConfig` in apache/rocketmq.
"""

from __future__ import annotations

from dataclasses import field

from rmqcli.broker.profiles import VersionProfile
from rmqcli.dataclass import dataclass

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Settings of one broker. `address` is the address that it advertises."""

    cluster: str = "DefaultCluster"
    broker_name: str = "broker-a"
    broker_id: int = 0
    address: str = "127.0.0.1:10911"
    profile: VersionProfile = field(default_factory=VersionProfile)
    auto_create_topic_enable: bool = True
    auto_create_subscription_group: bool = True
    default_topic_queue_nums: int = 8
    enable_property_filter: bool = False
    long_polling_enable: bool = True
    short_polling_time_mills: int = 1_000
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False
    store_reply_message_enable: bool = True
    recall_message_enable: bool = False
    append_topic_for_timer_delete_key: bool = False  # recalls name a topic, too
    enable_mixed_message_type: bool = False
    max_message_size: int = 4 * 1024 * 1024
    #: limits of one answer to a pull, and of the entries that one filter reads
    max_msgs_num_batch: int = 64
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_filter_message_size: int = 16_000  # bytes of entries, enough for 800 entries
    message_delay_level: str = DELAY_LEVELS
    #: A message further than this (bytes) from the log's end counts as "on disk"; None:
    #: no message does. RocketMQ uses 40 % of the machine's memory.
    in_memory_bytes_max: int | None = None
    transaction_timeout_ms: int = 6_000
    transaction_check_interval_ms: int | None = None  # None: the version's default
    transaction_check_max: int = 15
    channel_expired_timeout_ms: int = 120_000
    use_server_side_reset_offset: bool | None = None  # None: the version's default
    enable_retry_topic_v2: bool = False  # %RETRY%group+topic for POP
    #: how many of 100 POP requests read the retry topic first, and how many of those
    #: that read a PRIORITY topic by priority
    pop_from_retry_probability: int = 20
    pop_from_retry_probability_for_priority: int = 0
    priority_order_asc: bool = True  # a higher number is a higher priority
    use_separate_retry_queue: bool = (
        False  # retry topics of POP have their topic's queues
    )
    #: Whether the broker has users and rules (5.3); nothing is enforced.
    authentication_enabled: bool = False
    flush_disk_sync: bool = False  # FlushDiskType.SYNC_FLUSH
