"""What brokers learn from name servers about ordered topics, when they register.

For the embedded broker and for real ones: 5.x learns which topics are ordered, and 4.x
also that all others are not.
"""

from __future__ import annotations

import json
import uuid

from tests.kit import raw

UPDATE_TOPIC, GET_ALL_TOPIC_CONFIG = 17, 21
PUT_KV, DELETE_KV, GET_KV_LIST = 100, 102, 219
_NAMESPACE = {"namespace": "ORDER_TOPIC_CONFIG"}
#: A real broker registers every 30 s, and 4.x when a topic changes.
_WAIT_MS = 45_000


class Orders:
    """A name server, and a broker that registers with it."""

    def __init__(self, namesrv: str, broker: str) -> None:
        self.namesrv, self.broker = namesrv, broker
        self.mark = uuid.uuid4().hex[:8]

    def put(self, name: str, *, order: bool) -> None:
        """Create or change a topic on the broker."""
        fields = {
            "topic": f"{name}-{self.mark}",
            "defaultTopic": "TBW102",
            "readQueueNums": "2",
            "writeQueueNums": "2",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": str(order).lower(),
        }
        assert raw.ask(self.broker, UPDATE_TOPIC, fields).code == 0

    def fix(self, name: str) -> None:
        """Store the fixed queues of a topic in the name server."""
        fields = {"key": f"{name}-{self.mark}", "value": "broker-a:2", **_NAMESPACE}
        assert raw.ask(self.namesrv, PUT_KV, fields).code == 0

    def unfix(self, name: str) -> None:
        """Remove the fixed queues of a topic from the name server."""
        fields = {"key": f"{name}-{self.mark}", **_NAMESPACE}
        assert raw.ask(self.namesrv, DELETE_KV, fields).code == 0

    def listed(self) -> list[str]:
        """Return the topics of this test that have fixed queues."""
        answer = raw.ask(self.namesrv, GET_KV_LIST, _NAMESPACE)
        assert answer.code == 0
        keys = json.loads(answer.body)["table"]
        return sorted(key[:-9] for key in keys if key.endswith(self.mark))

    def ordered(self) -> list[str]:
        """Return the topics of this test that the broker has as ordered."""
        body = raw.ask(self.broker, GET_ALL_TOPIC_CONFIG).body
        table = json.loads(body)["topicConfigTable"]
        return sorted(
            name[:-9]
            for name, config in table.items()
            if name.endswith(self.mark) and config["order"]
        )

    def wait_for(self, expected: list[str]) -> None:
        """Wait until the broker has these topics as ordered.

        Each look changes a topic, so that the broker registers.
        """

        def is_so() -> bool:
            self.put("Z", order=False)
            return self.ordered() == expected

        raw.wait_until(is_so, timeout_ms=_WAIT_MS, what=lambda: str(self.ordered()))


def check_orders(orders: Orders, version: str) -> None:
    """Ordered are the topics that the name server lists, and on 5.x others, too."""
    is_4 = version.startswith("4.")
    orders.put("A", order=False)
    orders.put("B", order=True)
    orders.fix("A")
    orders.wait_for(["A"] if is_4 else ["A", "B"])
    orders.put("A", order=False)  # it is listed still
    orders.wait_for(["A"] if is_4 else ["A", "B"])
    orders.put("C", order=False)
    orders.fix("C")
    orders.unfix("A")
    orders.put("A", order=False)
    orders.wait_for(["C"] if is_4 else ["B", "C"])
    orders.unfix("C")
    assert orders.listed() == []  # an empty namespace, not one that is unknown
    orders.wait_for([] if is_4 else ["B", "C"])
