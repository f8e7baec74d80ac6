"""Topics, groups, offsets and the broker's name, as a folder tells them.

A topic that has queues in the folder and is not in its table (the broker has not
written it yet, or the table is lost) is there all the same.

Source: `TopicConfigManager`, whose constructor makes topics named after the broker and
its cluster.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from rmqcli.broker.group_table import GroupTable
from rmqcli.broker.manners import LIKE_4_9_7, LIKE_5_5_0
from rmqcli.broker.persistence import DELAYS, GROUPS, OFFSETS, TOPICS, Persistence
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.topic_table import (
    DEFAULT_TOPIC,
    PERM_READ,
    PERM_WRITE,
    TopicTable,
    is_system_topic,
)
from rmqcli.wire.bodies_config import TopicConfig

if TYPE_CHECKING:
    from rmqcli.broker.core import Broker
    from rmqcli.store.config_files import ConfigFolder
    from rmqcli.store.read_only import ReadOnlyStore

_NAME: Final = "broker-a"
_CLUSTER: Final = "DefaultCluster"
#: Of a topic that is in no table. A folder is anybody's, and clients make lists.
_QUEUES_MAX: Final = 16_384
_REPLY_POSTFIX: Final = "_REPLY_TOPIC"


def settings_of(
    config: ConfigFolder, *, name: str | None, address: str
) -> BrokerSettings:
    """The settings of a broker over the folder. Raises StoreError.

    The broker's name is its topic of one queue that others inherit from; broker-a
    where that cannot be told.
    """
    table = config.read(TOPICS)
    found = table if isinstance(table, dict) else {}
    topics = found.get("topicConfigTable")
    version = found.get("dataVersion")
    is_5 = not isinstance(version, dict) or "stateVersion" in version
    named = _inherited(topics) if isinstance(topics, dict) else []
    clusters = [
        topic.removesuffix(_REPLY_POSTFIX)
        for topic in (topics if isinstance(topics, dict) else ())
        if topic.endswith(_REPLY_POSTFIX) and topic != _REPLY_POSTFIX
    ]
    cluster = clusters[0] if len(clusters) == 1 else _CLUSTER
    names = [each for each in named if each != cluster]
    return BrokerSettings(
        cluster=cluster,
        broker_name=name or (names[0] if len(names) == 1 else _NAME),
        address=address,
        manners=LIKE_5_5_0 if is_5 else LIKE_4_9_7,
        enable_property_filter=True,
    )


def _inherited(topics: dict[str, object]) -> list[str]:
    """Topics of one queue with the permission to inherit: a broker's own name."""
    return [
        topic
        for topic, config in topics.items()
        if isinstance(config, dict)
        and config.get("perm") == 7
        and config.get("readQueueNums") == 1
        and topic != DEFAULT_TOPIC
        and not is_system_topic(topic)
    ]


def load_tables(broker: Broker, store: ReadOnlyStore) -> None:
    """Let the broker have the folder's tables instead of its own.

    Raises StoreError and BodyError for files that cannot be read, and leaves the
    tables that it had.
    """
    before = broker.topics, broker.groups
    broker.topics, broker.groups = TopicTable(broker), GroupTable(broker)
    for topic in broker.topics.all():
        broker.topics.delete(topic)
    try:
        Persistence(broker, store.config).load()
    except BaseException:
        broker.topics, broker.groups = before
        raise
    missing: dict[str, int] = {}
    for topic, queue_id in store.queues():
        if queue_id < _QUEUES_MAX and broker.topics.get(topic) is None:
            missing[topic] = max(missing.get(topic, 0), queue_id + 1)
    broker.topics.load(
        TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=PERM_READ | PERM_WRITE,
        )
        for topic, queue_nums in missing.items()
    )


def tables_stamp(config: ConfigFolder) -> list[tuple[int, int] | None]:
    """Something that differs once a table was written again."""
    return [
        _stamp(f"{config.directory}/{name}")
        for name in (TOPICS, GROUPS, OFFSETS, DELAYS)
    ]


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
