"""What a name server knows: routes and a key-value table, both in memory only.

Handlers work on this state. They register themselves with `handles`, as in
`broker.dispatch`.

Source: `NamesrvController` and `KVConfigManager`, which also writes kvConfig.json.
"""

from __future__ import annotations

from typing import Final

from rmqcli.broker.dispatch import HandlerTable
from rmqcli.broker.namesrv.routes import RouteTable
from rmqcli.broker.profiles import VersionProfile
from rmqcli.broker.request import system_error

#: The lists of fixed queues of ordered topics (NamesrvUtil).
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
ENTRIES_MAX: Final = 10_000
ENTRY_CHARS_MAX: Final = 64 * 1024
#: The settings as GET_NAMESRV_CONFIG shows them, by RocketMQ's name.
SETTINGS: Final = {
    "orderMessageEnable": "false",
    "needWaitForService": "false",
    "clusterTest": "false",
    "productEnvName": "center",
}
NAMESRV_REQUESTS: Final[HandlerTable[NamesrvState]] = HandlerTable()


class KVConfig:
    """The key-value table: texts by namespace and key."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, str]] = {}
        self._count = 0

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value. Raises Refusal(1) if it is too long or there are too many."""
        if len(namespace) + len(key) + len(value) > ENTRY_CHARS_MAX:
            raise system_error(
                f"config item has more than {ENTRY_CHARS_MAX} characters"
            )
        is_new = key not in self._tables.get(namespace, {})
        if is_new and self._count >= ENTRIES_MAX:
            raise system_error(f"more than {ENTRIES_MAX} config items")
        self._count += is_new
        self._tables.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        """One value; None if there is none."""
        return self._tables.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value."""
        table = self._tables.get(namespace, {})
        if table.pop(key, None) is not None:
            self._count -= 1

    def table(self, namespace: str) -> dict[str, str] | None:
        """A namespace's values by key; None if it never had any."""
        found = self._tables.get(namespace)
        return None if found is None else dict(found)


class NamesrvState:
    """Everything that a handler may read or change."""

    def __init__(self, *, profile: VersionProfile | None = None) -> None:
        self.profile = profile or VersionProfile()
        self.routes = RouteTable()
        self.kv = KVConfig()
        self.settings = dict(SETTINGS)


handles = NAMESRV_REQUESTS.handles
