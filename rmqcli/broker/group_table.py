"""The subscription groups that a broker knows, and their settings.

Imitated: creation when a group is first seen, the built-in groups, the data version.
Not imitated: forbidden topics of a group (353), retry policies.

Source: `SubscriptionGroupManager` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.data_version import DataVersion
from rmqcli.wire.bodies_config import SubscriptionGroupConfig

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqcli.broker.core import Broker

#: Source: SubscriptionGroupManager.init.
BUILT_IN_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


class GroupTable:
    """Groups by name. Configurations are values: `put` a changed one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.data_version = DataVersion(timestamp=broker.started.epoch_ms)
        self._groups = {
            name: SubscriptionGroupConfig(
                group_name=name, consume_broadcast_enable=True
            )
            for name in BUILT_IN_GROUPS
        }

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's settings; None for one that is unknown."""
        return self._groups.get(group)

    def find_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """The group, created where that is allowed; else None (code 26)."""
        found = self._groups.get(group)
        if found is None and self._broker.settings.auto_create_subscription_group:
            found = SubscriptionGroupConfig(group_name=group)
            self.put(found)
        return found

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group."""
        self._groups[config.group_name] = config
        self.data_version = self.data_version.next()

    def delete(self, group: str) -> bool:
        """Forget a group; whether there was one."""
        found = self._groups.pop(group, None)
        if found is not None:
            self.data_version = self.data_version.next()
        return found is not None

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """All groups by name; a copy."""
        return dict(self._groups)

    def load(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Take what was stored; it wins over what is built in."""
        for config in configs:
            self._groups[config.group_name] = config
