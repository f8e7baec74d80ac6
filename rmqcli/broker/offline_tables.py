"""Topics, groups, offsets and the broker's name, as a folder tells them.

A topic that has queues in the folder and is not in its table (the broker has not
written it yet, or the table is lost) is there all the same.

Source: `TopicConfigManager`, whose constructor makes topics named after the broker and
its cluster.
"""

from __future__ import annotations

import dataclasses
import logging
import os
from typing import TYPE_CHECKING, Final

from rmqcli.broker.group_table import GroupTable
from rmqcli.broker.manners import LIKE_4_6_0, LIKE_4_9_7, LIKE_5_5_0
from rmqcli.broker.persistence import DELAYS, GROUPS, OFFSETS, TOPICS, Persistence
from rmqcli.broker.settings import BrokerSettings
from rmqcli.broker.topic_table import (
    DEFAULT_TOPIC,
    PERM_READ,
    PERM_WRITE,
    SCHEDULE_TOPIC,
    TopicTable,
    is_system_topic,
)
from rmqcli.one_line_log import one_line
from rmqcli.store.message_store import StoreError
from rmqcli.wire.bodies_config import TopicConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmqcli.broker.core import Broker
    from rmqcli.broker.manners import Manners
    from rmqcli.store.config_files import ConfigFolder
    from rmqcli.store.read_only import ReadOnlyStore

_NAME: Final = "broker-a"
_CLUSTER: Final = "DefaultCluster"
#: Of a topic that is in no table. A folder is anybody's, and clients make lists.
_QUEUES_MAX: Final = 16_384
_REPLY_POSTFIX: Final = "_REPLY_TOPIC"

_log = one_line(logging.getLogger(__name__))


def settings_of(
    config: ConfigFolder, *, name: str | None, address: str
) -> BrokerSettings:
    """The settings of a broker over the folder.

    The broker's name is its topic of one queue that others inherit from; broker-a
    where that cannot be told.
    """
    try:
        table = config.read(TOPICS)
    except StoreError:
        table = None  # `load_tables` reports it
    found = table if isinstance(table, dict) else {}
    table = found.get("topicConfigTable")
    topics = table if isinstance(table, dict) else {}
    named = _inherited(topics)
    clusters = [
        topic.removesuffix(_REPLY_POSTFIX)
        for topic in topics
        if topic.endswith(_REPLY_POSTFIX) and topic != _REPLY_POSTFIX
    ]
    cluster = clusters[0] if len(clusters) == 1 else _CLUSTER
    names = [each for each in named if each != cluster]
    return BrokerSettings(
        cluster=cluster,
        broker_name=name or (names[0] if len(names) == 1 else _NAME),
        address=address,
        manners=_manners(config, found.get("dataVersion"), topics),
        enable_property_filter=True,
    )


def _manners(
    config: ConfigFolder, version: object, topics: Mapping[str, object]
) -> Manners:
    """Those of the version that wrote the tables, as far as they tell it.

    5.x has state versions in its data versions. 4.x has none, and 4.6.0, unlike 4.9.7,
    has no SCHEDULE_TOPIC_XXXX in its table. Nothing is ever put into the folder.
    """
    if isinstance(version, dict):
        if "stateVersion" in version:
            manners = LIKE_5_5_0
        else:
            manners = LIKE_4_9_7 if SCHEDULE_TOPIC in topics else LIKE_4_6_0
        _log.info("%s is read as of RocketMQ %s", config.directory, manners.name)
    else:
        manners = LIKE_5_5_0
        _log.warning(
            "%s does not tell the version of its broker: read as %s",
            config.directory,
            manners.name,
        )
    return dataclasses.replace(manners, writes_offset_moved_events=False)


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


def clear_tables(broker: Broker) -> None:
    """Take from a new broker the topics that are built in: a folder tells its own."""
    for topic in broker.topics.all():
        broker.topics.delete(topic)


def load_tables(broker: Broker, store: ReadOnlyStore) -> None:
    """Let the broker have the folder's tables instead of its own.

    Of a file that cannot be read the table stays as it was, and a warning says so.
    """
    before = broker.topics, broker.groups
    broker.topics, broker.groups = TopicTable(broker), GroupTable(broker)
    clear_tables(broker)
    errors = Persistence(broker, store.config).load_readable()
    if TOPICS in errors:
        broker.topics = before[0]
    if GROUPS in errors:
        broker.groups = before[1]
    for error in errors.values():
        _log.warning("table is left out: %s", error)
    missing: dict[str, int] = {}
    for topic, queue_id in store.queues():
        if is_system_topic(topic):
            continue  # RocketMQ of that version does not tell clients of it
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
