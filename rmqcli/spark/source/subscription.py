"""Which queues a DataFrame reads, and how to find them in the cluster."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rmqcli.dataclass import dataclass
from rmqcli.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.api.client import Client
    from rmqcli.model import MessageQueue


@dataclass(frozen=True, slots=True)
class Subscription:
    """The queues of these topics, of all topics whose names match, or just some queues.

    The options `subscribe`, `subscribePattern` and `assign`: exactly one field is set.
    The pattern has to match the whole name. It never selects topics of the system, nor
    those for retries and dead letters.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[MessageQueue] = frozenset()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics that match {self.pattern}"
        return ", ".join(self.topics or map(str, sorted(self.assigned)))

    def has_topic(self, topic: str) -> bool:
        """Whether queues of a topic may be read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(q.topic == topic for q in self.assigned)

    def has_queue(self, queue: MessageQueue) -> bool:
        """Whether a queue may be read."""
        if self.assigned:
            return queue in self.assigned
        return self.has_topic(queue.topic)

    def queues(self, client: Client, *, refresh: bool = False) -> list[MessageQueue]:
        """The readable queues at this moment, sorted.

        `refresh` also finds topics and queues that are new. Raises NotFoundError for a
        topic that was named and does not exist.
        """
        found: list[MessageQueue] = []
        for topic in self._topics_now(client):
            try:
                queues = client.route(topic, refresh=refresh).read_queues()
            except NotFoundError:
                if self.pattern is None:
                    raise
                continue  # it was deleted since the names were listed
            found += filter(self.has_queue, queues)
        return sorted(found)

    def check(self, queues: Iterable[MessageQueue]) -> None:
        """Raise UsageError when an assigned queue is not among the readable ones."""
        known = set(queues)
        for queue in sorted(self.assigned - known):
            raise UsageError(f"option assign: queue {queue} does not exist")

    def _topics_now(self, client: Client) -> list[str]:
        if self.pattern is None:
            return sorted({*self.topics, *(queue.topic for queue in self.assigned)})
        from rmqcli.admin.topics import topic_kind
        from rmqcli.api.calls.namesrv import get_all_topic_list, get_broker_cluster_info

        names = client.namesrv(get_all_topic_list())
        info = client.namesrv(get_broker_cluster_info())
        return sorted(
            topic
            for topic in names
            if self.has_topic(topic) and topic_kind(topic, info) == "normal"
        )
