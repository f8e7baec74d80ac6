"""The names of a broker's groups, without the cost of reading their settings.

Source: SubscriptionGroupManager, MixAll.isSysConsumerGroup, MixAll.PREDEFINE_GROUP_SET
in apache/rocketmq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqcli.api.call import make_call
from rmqcli.wire.bodies.read import get_object, load_object
from rmqcli.wire.codes import RequestCode

if TYPE_CHECKING:
    from rmqcli.api.call import Call

_SYSTEM_PREFIXES = ("CID_RMQ_SYS_", "CID_ONSAPI_")
_SYSTEM_GROUPS = frozenset(
    (
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SCHEDULE_CONSUMER",
        "DEFAULT_CONSUMER",
        "__MONITOR_CONSUMER",
        "CID_ONS-HTTP-PROXY",
        "CID_DefaultHeartBeatSyncerTopic",
    )
)


def get_group_names() -> Call[list[str]]:
    """Every group of which the broker has settings."""
    return make_call(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        lambda answer: list(
            get_object(
                load_object(answer.body, "settings of all groups"),
                "subscriptionGroupTable",
            )
        ),
        what="settings of all groups",
    )


def is_system_group(group: str) -> bool:
    """Whether every broker has this group by itself."""
    return group in _SYSTEM_GROUPS or group.startswith(_SYSTEM_PREFIXES)
