"""Clean-ups of consume queues that operators ask for: 306 and 316.

Imitated: a queue of which the log has no message any more is removed, and begins at
offset 0 again, and so are the queues of topics that do not exist. Committed offsets
stay; those of the delay levels and of system topics, too.

Source: `AdminBrokerProcessor.cleanExpiredConsumeQueue` and `cleanUnusedTopic`,
`DefaultMessageStore` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.broker.dispatch import handles
from rmqcli.broker.request import BrokerRequest, Reply
from rmqcli.broker.topic_names import SCHEDULE_TOPIC, is_system_topic
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from rmqcli.broker.state.broker import BrokerState


@handles(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
def clean_expired_queues(broker: BrokerState, _: BrokerRequest) -> Reply:
    """CLEAN_EXPIRED_CONSUMEQUEUE (306)."""
    store = broker.store
    for topic, queue_id in list(store.queues()):
        low, high = store.queue_bounds(topic, queue_id) or (0, 0)
        if topic != SCHEDULE_TOPIC and 0 < high == low:
            store.delete_queue(topic, queue_id)
    return Reply()


@handles(RequestCode.CLEAN_UNUSED_TOPIC)
def clean_unused_topics(broker: BrokerState, _: BrokerRequest) -> Reply:
    """CLEAN_UNUSED_TOPIC (316)."""
    for topic in {topic for topic, _ in broker.store.queues()}:
        if broker.topics.get(topic) is None and not is_system_topic(topic):
            broker.store.delete_topic(topic)
    return Reply()
