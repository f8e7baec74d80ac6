"""The subscription groups of one broker and their settings.

Imitated: creation at a group's first request; the built-in groups; topics that a group
may not read (5.x); the data version. Not imitated: retry policies.

Source: `SubscriptionGroupManager` in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmqcli.broker.topic_names import DLQ_PREFIX, RETRY_PREFIX, is_stored_name
from rmqcli.files import file_name_fault
from rmqcli.wire.bodies.config import SubscriptionGroupConfig
from rmqcli.wire.bodies.data_version import DataVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmqcli.broker.context import BrokerContext

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"

#: Source: SubscriptionGroupManager.init.
BUILT_IN_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)

GROUP_LENGTH_MAX: Final = 255
#: The number of groups at which clients cannot create more. RocketMQ has no such limit.
GROUPS_MAX: Final = 20_000

_READ_BIT: Final = 1 << 2  # PermName.INDEX_PERM_READ


def group_name_fault(group: str) -> str | None:
    """Return why a group name is illegal; None for a legal one.

    The names of the group's retry and dead letter topics must be legal names of
    folders, even if the store keeps everything in memory. The returned text continues
    a sentence that begins with "the group name".
    """
    if not 0 < len(group) <= GROUP_LENGTH_MAX:
        return f"has {len(group)} characters; it must have 1 to {GROUP_LENGTH_MAX}"
    for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
        fault = file_name_fault(topic)
        if fault is not None:
            return f"would result in a retry or dead letter topic whose name {fault}"
    return None


class GroupTable:
    """Groups by name. Configurations are immutable: to change one, `put` a new one.

    `forbidden`: group -> topic -> permission bits that are denied to the group; treat
    as read-only.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.data_version = DataVersion(timestamp=context.started.epoch_ms)
        self.forbidden: dict[str, dict[str, int]] = {}
        self._groups = self._built_in()

    def _built_in(self) -> dict[str, SubscriptionGroupConfig]:
        names = list(BUILT_IN_GROUPS)
        if self._context.profile.has_transaction_group:
            names.append(TRANSACTION_GROUP)
        return {name: SubscriptionGroupConfig(group_name=name) for name in names}

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's settings; None for an unknown group."""
        return self._groups.get(group)

    @property
    def is_full(self) -> bool:
        """Whether clients may create no more groups."""
        return len(self._groups) >= GROUPS_MAX

    def find_or_create(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the group, and create it if it is unknown and that is allowed.

        Returns None if it is unknown and cannot be created (answered with code 26).
        """
        found = self._groups.get(group)
        if found is not None or group_name_fault(group) is not None:
            return found
        if self.is_full or not self._context.settings.auto_create_subscription_group:
            return None
        created = SubscriptionGroupConfig(group_name=group)
        self.put(created)
        return created

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create or replace a group. Raises ValueError for an illegal name."""
        fault = group_name_fault(config.group_name)
        if fault is not None:
            raise ValueError(f"the group name {fault}")
        self._groups[config.group_name] = config
        self._changed()

    def delete(self, group: str) -> bool:
        """Forget a group. Returns whether it was known."""
        found = self._groups.pop(group, None)
        if found is None:
            return False
        self.forbidden.pop(group, None)
        self._changed()
        return True

    def is_read_forbidden(self, group: str, topic: str) -> bool:
        """Whether the group may not read the topic (a pull is answered with 16)."""
        return bool(self.forbidden.get(group, {}).get(topic, 0) & _READ_BIT)

    def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow or forbid a group to read a topic."""
        topics = self.forbidden.setdefault(group, {})
        if readable:
            topics.pop(topic, None)
        else:
            topics[topic] = topics.get(topic, 0) | _READ_BIT
        if not topics:
            del self.forbidden[group]
        self._changed()

    def all(self) -> dict[str, SubscriptionGroupConfig]:
        """All groups by name; a copy."""
        return dict(self._groups)

    def load(
        self,
        configs: Iterable[SubscriptionGroupConfig],
        forbidden: Mapping[str, Mapping[str, int]] | None = None,
        *,
        version: DataVersion | None = None,
        replaces: bool = False,
    ) -> None:
        """Add stored groups, which take precedence over the built-in ones.

        Groups with illegal names are left out with a warning. With `replaces` all other
        groups are forgotten, except the built-in ones.
        """
        if replaces:
            self._groups = self._built_in()
        for config in configs:
            if is_stored_name("group", config.group_name, group_name_fault):
                self._groups[config.group_name] = config
        if forbidden is not None:
            self.forbidden = {group: dict(of) for group, of in forbidden.items()}
        if version is not None:
            self.data_version = version

    def _changed(self) -> None:
        self.data_version = self.data_version.next()
