"""The topics of one broker and their settings.

Imitated: RocketMQ's own topics; creation at the first send, with the settings of TBW102
or of another topic that can be inherited, and at send-back; the data version.
Not imitated: unit flags, the rules of attributes, static topics.

Source: `TopicConfigManager` and `TopicValidator` in apache/rocketmq.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from rmqcli.broker import topic_names
from rmqcli.broker.attributes import BATCH_QUEUES, QUEUE_TYPE
from rmqcli.broker.request import system_error
from rmqcli.files import file_name_fault
from rmqcli.wire.bodies.config import TopicConfig
from rmqcli.wire.bodies.data_version import DataVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from rmqcli.broker.context import BrokerContext

#: The number of topics at which clients cannot create more. RocketMQ has no such limit.
TOPICS_MAX: Final = 50_000

PERM_READ: Final = 4
PERM_WRITE: Final = 2
PERM_INHERIT: Final = 1


class TopicTable:
    """Topics by name. Configurations are immutable: to change one, `put` a new one."""

    def __init__(
        self, context: BrokerContext, *, on_changed: Callable[[], None] | None = None
    ) -> None:
        self._context = context
        self._on_changed = on_changed
        self.data_version = DataVersion(timestamp=context.started.epoch_ms)
        self._topics = {each.topic_name: each for each in _built_in(context)}
        self._picks: dict[str, int] = {}

    def get(self, topic: str) -> TopicConfig | None:
        """The topic's settings; None for an unknown topic."""
        return self._topics.get(topic)

    def all(self) -> dict[str, TopicConfig]:
        """All topics by name; a copy."""
        return dict(self._topics)

    def put(self, config: TopicConfig) -> None:
        """Create or replace a topic. Raises ValueError for an illegal name."""
        fault = file_name_fault(config.topic_name)
        if fault is not None:
            raise ValueError(f"the topic name {fault}")
        self._keep(config)
        self._changed()

    def _keep(self, config: TopicConfig) -> None:
        topic, batch_topics = config.topic_name, self._context.store.batch_topics
        self._topics[topic] = config
        if config.attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
            batch_topics.add(topic)
        else:
            batch_topics.discard(topic)

    def delete(self, topic: str) -> bool:
        """Forget a topic. Returns whether it was known."""
        if self._topics.pop(topic, None) is None:
            return False
        self._picks.pop(topic, None)
        self._changed()
        return True

    def load(
        self,
        configs: Iterable[TopicConfig],
        *,
        version: DataVersion | None = None,
        replaces: bool = False,
    ) -> None:
        """Add stored topics, which take precedence over the built-in ones.

        Topics with illegal names are left out with a warning. With `replaces` all other
        topics are forgotten, including the built-in ones.
        """
        if replaces:
            self._topics.clear()
            self._picks.clear()
        for config in configs:
            if topic_names.is_stored_name("topic", config.topic_name, file_name_fault):
                self._keep(config)
        if version is not None:
            self.data_version = version

    def renew_default_topic(self) -> None:
        """Replace TBW102 by one with the current settings.

        With autoCreateTopicEnable off, this does nothing: see `create_in_send`.
        """
        settings = self._context.settings
        if settings.auto_create_topic_enable:
            nums = settings.default_topic_queue_nums
            self.put(topic_with(topic_names.DEFAULT_TOPIC, queue_nums=nums, perm=7))

    @property
    def is_full(self) -> bool:
        """Whether clients may create no more topics."""
        return len(self._topics) >= TOPICS_MAX

    def create_in_send(
        self, topic: str, default_topic: str, default_queue_nums: int
    ) -> TopicConfig | None:
        """Create an unknown topic with `default_topic`'s settings; None if not allowed.

        It gets `default_queue_nums` queues, or the default topic's number of queues if
        that is smaller. With autoCreateTopicEnable off, TBW102 permanently loses its
        inherit permission, as in RocketMQ.
        Source: TopicConfigManager.createTopicInSendMessageMethod.
        """
        default = self._topics.get(default_topic)
        if default is None or self.is_full:
            return None
        if (
            default_topic == topic_names.DEFAULT_TOPIC
            and not self._context.settings.auto_create_topic_enable
        ):
            default = dataclasses.replace(default, perm=PERM_READ | PERM_WRITE)
            self._topics[default_topic] = default
        if not default.perm & PERM_INHERIT:
            return None
        queue_nums = max(0, min(default_queue_nums, default.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queue_nums,
            write_queue_nums=queue_nums,
            perm=default.perm & ~PERM_INHERIT,
            topic_filter_type=default.topic_filter_type,
        )
        self.put(created)
        return created

    def create_in_send_back(
        self, topic: str, *, queue_nums: int = 1, perm: int = 6
    ) -> TopicConfig:
        """Return a topic such as a retry or DLQ topic, and create it if it is unknown.

        Raises Refusal(1) if there are too many topics.
        Source: TopicConfigManager.createTopicInSendMessageBackMethod.
        """
        found = self._topics.get(topic)
        if found is None:
            if self.is_full:
                raise system_error(
                    f"topic {topic} was not created: the broker already has"
                    f" {TOPICS_MAX} topics"
                )
            found = topic_with(topic, queue_nums=queue_nums, perm=perm)
            self.put(found)
        return found

    def pick_queue(self, topic: str, queue_nums: int) -> int:
        """Return a queue id below `queue_nums` for a message without one, in turn.

        RocketMQ picks at random, but tests need the same queues each time.
        """
        pick = self._picks.get(topic, 0)
        self._picks[topic] = pick + 1
        return pick % queue_nums

    def _changed(self) -> None:
        self.data_version = self.data_version.next()
        self.notify_changed()

    def take_order(self, listed: Collection[str]) -> None:
        """Learn from a name server which topics have a list of fixed queues there.

        Source: TopicConfigManager.updateOrderTopicConfig.
        """
        profile = self._context.profile
        changed = [
            dataclasses.replace(config, order=name in listed)
            for name, config in self._topics.items()
            if config.order != (name in listed)
            and (name in listed or profile.unorders_unlisted_topics)
        ]
        for config in changed:
            self._topics[config.topic_name] = config
        if changed:
            self._changed()

    def register_again(self) -> None:
        """Have the name server store all topics as they are here."""
        self._changed()

    def notify_changed(self) -> None:
        """Report to the name server that topics changed."""
        if self._on_changed is not None:
            self._on_changed()


def _built_in(context: BrokerContext) -> list[TopicConfig]:
    """RocketMQ's own topics. Source: the constructor of TopicConfigManager."""
    settings, profile = context.settings, context.profile
    cluster, name = settings.cluster, settings.broker_name
    topics = [
        topic_with("SELF_TEST_TOPIC"),
        topic_with("BenchmarkTest", queue_nums=1024),
        topic_with(cluster, queue_nums=16, perm=7),
        topic_with(name, perm=7),
        topic_with(topic_names.OFFSET_MOVED_EVENT),
        topic_with(f"{cluster}_REPLY_TOPIC"),
        topic_with(topic_names.HALF_TOPIC),
    ]
    if settings.auto_create_topic_enable:
        nums = settings.default_topic_queue_nums
        topics.append(topic_with(topic_names.DEFAULT_TOPIC, queue_nums=nums, perm=7))
    if profile.has_schedule_topic:
        # However many levels there are (SCHEDULE_TOPIC_QUEUE_NUM).
        topics.append(topic_with(topic_names.SCHEDULE_TOPIC, queue_nums=18))
    if profile.has_timer:
        topics += [
            topic_with(topic_names.OP_TOPIC),
            topic_with(topic_names.TIMER_TOPIC),
            topic_with("RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"),
            topic_with("RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"),
            topic_with(f"rmq_sys_REVIVE_LOG_{cluster}", queue_nums=8),
            topic_with(f"rmq_sys_SYNC_BROKER_MEMBER_{name}", perm=PERM_INHERIT),
        ]
    return topics


def topic_with(topic: str, *, queue_nums: int = 1, perm: int = 6) -> TopicConfig:
    """Return a topic with as many queues to read as to write."""
    return TopicConfig(
        topic_name=topic,
        read_queue_nums=queue_nums,
        write_queue_nums=queue_nums,
        perm=perm,
    )
