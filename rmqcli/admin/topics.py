"""All topics of a cluster, put together from its name server and its brokers.

Brokers know a topic's settings, the name server knows topics of brokers that do not
answer now: so both are asked.

Source: TopicValidator and MixAll in apache/rocketmq, for which topics are its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rmqcli.admin.brokers_ask import ask_each, reader_addresses
from rmqcli.api.calls_config import get_all_topic_config
from rmqcli.api.calls_namesrv import get_all_topic_list
from rmqcli.errors import BrokerError, RmqError
from rmqcli.model import (
    DLQ_GROUP_TOPIC_PREFIX,
    PERM_READ,
    PERM_WRITE,
    RETRY_GROUP_TOPIC_PREFIX,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.api.client import Client
    from rmqcli.model import QueueData
    from rmqcli.wire.bodies_config import TopicConfig
    from rmqcli.wire.bodies_route import ClusterInfo

SYSTEM_TOPICS = frozenset(
    (
        "TBW102",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "SCHEDULE_TOPIC_XXXX",
        "OFFSET_MOVED_EVENT",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "CHECKPOINT_TOPIC",
    )
)
#: TopicValidator.SYSTEM_TOPIC_PREFIX, and how older topics of that kind are written.
SYSTEM_TOPIC_PREFIXES = ("rmq_sys_", "RMQ_SYS_")
REPLY_TOPIC_POSTFIX = "REPLY_TOPIC"  # MixAll.REPLY_TOPIC_POSTFIX

#: TopicAttributes.TOPIC_MESSAGE_TYPE_ATTRIBUTE
MESSAGE_TYPE_ATTRIBUTE = "message.type"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic. Queue counts are sums over `brokers`; None where none told."""

    topic: str
    kind: str
    message_type: str | None
    perm: str | None
    read_queue_nums: int | None
    write_queue_nums: int | None
    order: bool | None
    brokers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicList:
    """Topics by name, and the brokers that did not answer."""

    topics: list[TopicRow]
    errors: dict[str, RmqError] = field(hash=False)


def topic_kind(topic: str, info: ClusterInfo) -> str:
    """`retry`, `dlq`, `system` or `normal`. Topics of clusters and brokers are system.

    Pure.
    """
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return "retry"
    if topic.startswith(DLQ_GROUP_TOPIC_PREFIX):
        return "dlq"
    is_system = (
        topic in SYSTEM_TOPICS
        or topic.startswith(SYSTEM_TOPIC_PREFIXES)
        or topic in info.brokers
        or topic in info.clusters
        or topic.removesuffix(f"_{REPLY_TOPIC_POSTFIX}") in info.clusters
    )
    return "system" if is_system else "normal"


def perm_text(perms: Iterable[int]) -> str | None:
    """`rw`, `r`, `w` or `none`; where brokers differ, all with `/` between."""
    texts = {
        ("r" if perm & PERM_READ else "") + ("w" if perm & PERM_WRITE else "")
        for perm in perms
    }
    return "/".join(sorted(text or "none" for text in texts)) or None


def message_type(configs: Iterable[TopicConfig]) -> str | None:
    """What a 5.x broker says of the messages, e.g. `FIFO`; None when it says nothing.

    Without the attribute messages are NORMAL, but brokers before 5.0 do not know it.
    """
    types = {
        config.attributes[MESSAGE_TYPE_ATTRIBUTE]
        for config in configs
        if MESSAGE_TYPE_ATTRIBUTE in config.attributes
    }
    return "/".join(sorted(types)) or None


def list_topics(client: Client) -> TopicList:
    """All topics, system ones too, sorted by name."""
    info = client.cluster_info()
    answers = ask_each(
        client, reader_addresses(info.brokers.values()), get_all_topic_config()
    )
    configs: dict[str, dict[str, TopicConfig]] = {}
    errors: dict[str, RmqError] = {}
    for broker_name, answer in answers.items():
        if isinstance(answer, RmqError):
            errors[broker_name] = answer
            continue
        for topic, config in answer.items():
            configs.setdefault(topic, {})[broker_name] = config
    rows = [
        _row_of_configs(topic, by_broker, info) for topic, by_broker in configs.items()
    ]
    if errors:
        rest = [topic for topic in _known_names(client) if topic not in configs]
        rows += [_row_of_route(client, topic, info) for topic in rest]
    return TopicList(sorted(rows, key=lambda row: row.topic), errors)


def _known_names(client: Client) -> list[str]:
    try:
        return client.namesrv(get_all_topic_list())
    except BrokerError:  # 5.x can have this list switched off
        return []


def _row_of_configs(
    topic: str, configs: dict[str, TopicConfig], info: ClusterInfo
) -> TopicRow:
    values = configs.values()
    return TopicRow(
        topic=topic,
        kind=topic_kind(topic, info),
        message_type=message_type(values),
        perm=perm_text(config.perm for config in values),
        read_queue_nums=sum(config.read_queue_nums for config in values),
        write_queue_nums=sum(config.write_queue_nums for config in values),
        order=any(config.order for config in values),
        brokers=tuple(sorted(configs)),
    )


def _row_of_route(client: Client, topic: str, info: ClusterInfo) -> TopicRow:
    try:
        queues: tuple[QueueData, ...] = client.route(topic).queues
    except RmqError:  # it went away between two questions
        queues = ()
    return TopicRow(
        topic=topic,
        kind=topic_kind(topic, info),
        message_type=None,
        perm=perm_text(queue.perm for queue in queues),
        read_queue_nums=sum(q.read_queue_nums for q in queues) if queues else None,
        write_queue_nums=sum(q.write_queue_nums for q in queues) if queues else None,
        order=None,
        brokers=tuple(sorted(queue.broker_name for queue in queues)),
    )
